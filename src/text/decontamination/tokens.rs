//! Splits text into the tokens of an index.

use std::ops::Range;

use super::settings::{IndexSettings, Normalisation};
use super::{datatrove, words};

/// Calls `take` with each token of `text` in normal form, and its place in `text`, in bytes. No
/// token is empty or contains a space.
pub(super) fn for_each_token(
    settings: &IndexSettings,
    language: &str,
    text: &str,
    take: impl FnMut(&[u8], Range<usize>),
) {
    match settings.normalisation {
        Normalisation::Default => words::for_each_word(text, settings.numbers, take),
        Normalisation::Datatrove => datatrove::for_each_word(text, language, take),
    }
}

/// Tokens, numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// All tokens, each followed by a space.
    pub(super) text: Vec<u8>,
    /// End of each token in `text`, after that space.
    pub(super) ends: Vec<usize>,
}

impl Tokens {
    pub(super) fn push(&mut self, token: &[u8]) {
        self.text.extend_from_slice(token);
        self.text.push(b' ');
        self.ends.push(self.text.len());
    }

    /// Returns the bytes of tokens, with the space after the last.
    pub(super) fn bytes(&self, tokens: Range<usize>) -> &[u8] {
        let end = |token: usize| token.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[end(tokens.start)..end(tokens.end)]
    }

    pub(super) fn truncate(&mut self, num_tokens: usize) {
        self.ends.truncate(num_tokens);
        self.text.truncate(self.ends.last().copied().unwrap_or(0));
    }
}
