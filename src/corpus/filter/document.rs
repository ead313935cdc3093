//! The trait of filters, the documents that filters judge, and their verdicts.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::FilterAction;
use polysift_data::parts::FoundRow;

/// A document as filters see it.
#[derive(Debug, Clone, Copy)]
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
    /// A note that reports count, such as an unreadable URL, whether or not the document was found.
    pub note: Option<&'static str>,
    /// Benchmark n-grams of the document, by index number, ascending; set even without a finding.
    pub ngrams: Vec<u32>,
}

/// Why a filter found a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Short reason; each kind of filter has its own words.
    pub reason: &'static str,
    /// The list entries or agents that matched; reports count each one.
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

    /// Returns the row of the finding of `filter` in the file of verdicts.
    pub fn row(&self, filter: &str, action: FilterAction) -> FoundRow {
        let (filter, reason) = (filter.to_owned(), self.reason.to_owned());
        let (details, pieces) = (self.details.join(","), self.pieces.clone().unwrap_or_default());
        FoundRow { filter, action, reason, details, pieces }
    }
}

impl Verdict {
    /// Makes the verdict on a document from what was found, if anything was.
    pub fn of(finding: impl Into<Option<Finding>>) -> Self {
        Self { finding: finding.into(), ..Self::default() }
    }

    /// Makes the verdict on a document that is not found, with a note.
    pub(super) fn noted(note: &'static str) -> Self {
        Self { note: Some(note), ..Self::default() }
    }
}

/// The verdict of a host's robots.txt on a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RobotsVerdict {
    /// The URL.
    pub url: String,
    /// True if the sources have a robots.txt for the host.
    pub has_robots_file: bool,
    /// One verdict per agent of the settings.
    pub agents: Vec<AgentVerdict>,
}

/// The verdict of a robots.txt for one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentVerdict {
    /// The agent.
    pub agent: String,
    /// True if the agent may not fetch the URL.
    pub is_blocked: bool,
    /// The line of the file that decides, if one does.
    pub line: Option<String>,
}

/// How much of the benchmarks is in the whole corpus.
pub struct Leaks {
    /// The leaks of each task, and the n-grams that are in the most documents, for a report.
    pub report: Value,
    /// Task, id and covered share of tokens of each item that is hit.
    pub items: Vec<Value>,
}

/// A filter with its lists.
pub trait Filter: Debug + Send + Sync {
    /// Returns the files that verdicts depend on.
    fn files(&self) -> Vec<&Path> {
        Vec::new()
    }

    /// Reads robots.txt files in parallel; one thread calls this before any document is judged.
    fn prepare(&mut self, _stop: &Stop) -> Result<()> {
        Ok(())
    }

    /// Judges a document; for filters whose verdict depends on nothing but the document.
    fn verdict(&self, _document: &FilteredDocument<'_>) -> Verdict {
        Verdict::default()
    }

    /// Returns one verdict per document, in order; reads lists when they are needed.
    fn judge(&self, documents: &[FilteredDocument<'_>], _stop: &Stop) -> Result<Vec<Verdict>> {
        Ok(documents.par_iter().map(|document| self.verdict(document)).collect())
    }

    /// Explains what robots.txt files say of `url`; `None` if the filter has no such files.
    fn explain(&self, _url: &str, _stop: &Stop) -> Result<Option<RobotsVerdict>> {
        Ok(None)
    }

    /// Returns the number of ids in the lists of an id filter; `None` for other filters.
    fn num_listed_ids(&self, _stop: &Stop) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Reports which items of the index are in the corpus, from n-grams and their documents.
    fn leaks(&self, _ngrams: &BTreeMap<u32, u64>) -> Option<Leaks> {
        None
    }
}

/// Judges documents in parallel, each with the function that `judge_of` returns for its language.
pub(super) fn judge_by_language<J: Fn(&FilteredDocument<'_>) -> Verdict + Sync + Send>(
    documents: &[FilteredDocument<'_>],
    judge_of: impl Fn(&str) -> Result<J>,
) -> Result<Vec<Verdict>> {
    let mut by_language: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, document) in documents.iter().enumerate() {
        by_language.entry(document.language).or_default().push(at);
    }
    let mut verdicts = vec![Verdict::default(); documents.len()];
    for (language, own) in by_language {
        let judge = judge_of(language)?;
        let judged: Vec<Verdict> = own.par_iter().map(|&at| judge(&documents[at])).collect();
        own.into_iter().zip(judged).for_each(|(at, verdict)| verdicts[at] = verdict);
    }
    Ok(verdicts)
}
