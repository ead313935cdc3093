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
