//! Added tokens: texts that are matched before the model sees anything.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// Id of an added token, and the white space it takes, which is not a part of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub id: u32,
    /// Whether the token takes the white space before it.
    pub(super) lstrip: bool,
    /// Whether the token takes the white space after it.
    pub(super) rstrip: bool,
}

pub(super) struct AddedTokens {
    search: AhoCorasick,
    tokens: Vec<AddedToken>,
    /// Bytes of the longest token.
    pub(super) longest: usize,
}

impl AddedTokens {
    /// Builds the search, or says why these texts cannot be searched; `None` without tokens.
    pub(super) fn new(mut tokens: Vec<(String, AddedToken)>) -> Result<Option<Self>, &'static str> {
        tokens.sort_by(|a, b| a.0.cmp(&b.0));
        if tokens.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("two added tokens have one text");
        }
        let (texts, tokens): (Vec<String>, Vec<AddedToken>) = tokens.into_iter().unzip();
        let Some(longest) = texts.iter().map(String::len).max() else { return Ok(None) };
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|_| "its added tokens cannot be searched")?;
        Ok(Some(Self { search, tokens, longest }))
    }

    /// Returns the first token at `from` or later; of several at one place, the longest.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<(AddedToken, Range<usize>)> {
        let found = self.search.find(Input::new(text).range(from..))?;
        Some((self.tokens[found.pattern().as_usize()], found.range()))
    }
}
