//! Added tokens: texts that are matched before the model sees anything.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use tokenizers::AddedToken;

pub(super) struct AddedTokens {
    search: AhoCorasick,
    /// Ids of the tokens, and the tokens with the white space that they take.
    tokens: Vec<(u32, AddedToken)>,
    /// Bytes of the longest token.
    pub(super) longest: usize,
}

impl AddedTokens {
    /// Builds the search, or says why these texts cannot be searched; `None` without tokens.
    pub(super) fn new(
        mut tokens: Vec<(String, (u32, AddedToken))>,
    ) -> Result<Option<Self>, &'static str> {
        tokens.sort_by(|a, b| a.0.cmp(&b.0));
        if tokens.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("two added tokens have one text");
        }
        let (texts, tokens): (Vec<String>, Vec<_>) = tokens.into_iter().unzip();
        let Some(longest) = texts.iter().map(String::len).max() else { return Ok(None) };
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|_| "its added tokens cannot be searched")?;
        Ok(Some(Self { search, tokens, longest }))
    }

    /// Returns the first token from byte `from` on and its place; of several there, the longest.
    pub(crate) fn find(
        &self,
        text: &str,
        from: usize,
    ) -> Option<(&(u32, AddedToken), Range<usize>)> {
        let found = self.search.find(Input::new(text).range(from..))?;
        Some((&self.tokens[found.pattern().as_usize()], found.range()))
    }
}
