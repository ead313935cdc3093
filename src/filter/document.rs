//! A document as filters see it, and what they say of it.

use crate::error::Result;

/// A document as filters see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FilteredDocument<'a> {
    pub(crate) id: &'a str,
    pub(crate) language: &'a str,
    /// Where the filter asked for it.
    pub(crate) url: Option<&'a str>,
}

/// What a filter says of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Why it was found, if it was.
    pub(crate) finding: Option<Finding>,
    /// What could not be looked at, by which documents are counted too.
    pub(crate) note: Option<&'static str>,
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
}

impl Finding {
    /// One without more to say.
    pub(super) fn of(reason: &'static str) -> Self {
        Self { reason, details: Vec::new(), host: None }
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
