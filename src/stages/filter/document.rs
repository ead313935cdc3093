//! A document as filters see it, and what they say of it.

use std::ops::Range;

use polysift_base::error::Result;

/// A document as filters see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilteredDocument<'a> {
    pub id: &'a str,
    pub language: &'a str,
    /// Where a filter asked for it.
    pub(crate) url: Option<&'a str>,
    /// Where a filter asked for it.
    pub(crate) text: Option<&'a str>,
}

/// What a filter says of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Why it was found, if it was.
    pub(crate) finding: Option<Finding>,
    /// What could not be looked at, by which documents are counted too.
    pub(crate) note: Option<&'static str>,
    /// The n-grams of an index that it holds, ascending, found or not.
    pub(crate) ngrams: Vec<u32>,
}

/// Why a filter found a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// A word of the kind of filter.
    pub(crate) reason: &'static str,
    /// What of it was found, each counted on its own.
    pub(crate) details: Vec<String>,
    /// The host that it is from, where that is why.
    pub(crate) host: Option<String>,
    /// What is left of its text, in bytes, where it is cut.
    pub(crate) pieces: Option<Vec<Range<usize>>>,
}

impl Finding {
    /// One without more to say.
    pub(crate) fn of(reason: &'static str) -> Self {
        Self { reason, details: Vec::new(), host: None, pieces: None }
    }
}

impl Verdict {
    /// Of a document that was found.
    pub(crate) fn of(finding: Finding) -> Self {
        Self { finding: Some(finding), ..Self::default() }
    }

    /// Of a document of which only this is noted.
    pub(super) fn noted(note: &'static str) -> Self {
        Self { note: Some(note), ..Self::default() }
    }
}

/// What `judge` says of each run of `documents` of one language.
pub(super) fn for_each_language(
    documents: &[FilteredDocument<'_>],
    mut judge: impl FnMut(&str, &[FilteredDocument<'_>], &mut Vec<Verdict>) -> Result<()>,
) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::with_capacity(documents.len());
    for run in documents.chunk_by(|a, b| a.language == b.language) {
        judge(run[0].language, run, &mut verdicts)?;
    }
    Ok(verdicts)
}
