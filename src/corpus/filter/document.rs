//! A document as filters see it, and the verdict of a filter.

use std::ops::Range;

use rayon::prelude::*;

use polysift_base::error::Result;

#[derive(Debug, Clone, Copy)]
/// A document as filters see it.
pub struct FilteredDocument<'a> {
    /// Id of the document.
    pub id: &'a str,
    /// Language of the document.
    pub language: &'a str,
    /// Present if a filter needs it.
    pub url: Option<&'a str>,
    /// Present if a filter needs it.
    pub text: Option<&'a str>,
}

/// The verdict of a filter on a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Why the document was found; `None` if it was not.
    pub finding: Option<Finding>,
    /// What the filter knew of the document, such as an unreadable URL; counted in reports.
    pub note: Option<&'static str>,
    /// Benchmark n-grams of the document, by index number, ascending; set even without a finding.
    pub ngrams: Vec<u32>,
}

/// Why a filter found a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Short reason; each kind of filter has its own words.
    pub reason: &'static str,
    /// What was found, such as list entries or agents; reports count each one.
    pub details: Vec<String>,
    /// Host of the URL, if the host is the reason.
    pub host: Option<String>,
    /// Byte ranges of the text that remain, if the text is cut.
    pub pieces: Option<Vec<Range<usize>>>,
}

impl Finding {
    /// Makes a finding of the whole document.
    pub fn of(reason: &'static str) -> Self {
        Self { reason, details: Vec::new(), host: None, pieces: None }
    }
}

impl Verdict {
    /// Makes the verdict on a document that was found.
    pub fn of(finding: Finding) -> Self {
        Self { finding: Some(finding), ..Self::default() }
    }

    /// Makes the verdict on a document that was not found but noted.
    pub(super) fn noted(note: &'static str) -> Self {
        Self { note: Some(note), ..Self::default() }
    }
}

/// Judges documents in parallel, each run of one language with what `judge_of` returns for it.
pub(super) fn judge_by_language<J: Fn(&FilteredDocument<'_>) -> Verdict + Sync + Send>(
    documents: &[FilteredDocument<'_>],
    judge_of: impl Fn(&str) -> Result<J>,
) -> Result<Vec<Verdict>> {
    let mut verdicts = Vec::with_capacity(documents.len());
    for run in documents.chunk_by(|a, b| a.language == b.language) {
        verdicts.par_extend(run.par_iter().map(judge_of(run[0].language)?));
    }
    Ok(verdicts)
}
