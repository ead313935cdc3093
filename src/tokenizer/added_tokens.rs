//! Added tokens: texts that are matched before the model sees anything.

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// Id of an added token, and the white space it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub id: u32,
    /// Whether the token takes the white space before it.
    pub(super) lstrip: bool,
    /// Whether the token takes the white space after it.
    pub(super) rstrip: bool,
}

/// A match of a token in a text, without the white space that the token takes.
pub(super) struct AddedTokenMatch {
    pub(super) token: AddedToken,
    pub start: usize,
    pub end: usize,
}

pub(super) struct AddedTokens {
    search: AhoCorasick,
    tokens: Vec<AddedToken>,
    longest: usize,
}

impl AddedTokens {
    /// Builds the search. Returns `None` if that fails.
    pub(crate) fn new(tokens: &[(String, AddedToken)]) -> Option<Self> {
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(text, _)| text))
            .ok()?;
        let longest = tokens.iter().map(|(text, _)| text.len()).max()?;
        Some(Self { search, tokens: tokens.iter().map(|(_, token)| *token).collect(), longest })
    }

    /// Returns the bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the first token that starts in `from..to`; of several at one place, the longest.
    pub(crate) fn find(&self, text: &str, from: usize, to: usize) -> Option<AddedTokenMatch> {
        let end = text.len().min(to.saturating_add(self.longest));
        let found = self.search.find(Input::new(text).range(from..end))?;
        let token = self.tokens[found.pattern().as_usize()];
        (found.start() < to).then(|| AddedTokenMatch {
            token,
            start: found.start(),
            end: found.end(),
        })
    }
}
