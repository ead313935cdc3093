//! Filters find documents by rules that need no model.
//!
//! This module owns what each kind of filter finds and the lists it uses. It does not read
//! documents, write files or decide what happens to a found document. A filter looks at one
//! document at a time, so its verdicts do not depend on the order of documents or on how the corpus
//! is split.

mod consent;
mod decontamination;
mod document;
mod ids;
mod license;
mod repetition;
mod strings;
mod urls;
mod words;

use std::collections::BTreeMap;

use consent::ConsentFilter;
pub use consent::{AgentVerdict, RobotsVerdict};
use decontamination::DecontaminationFilter;
pub use decontamination::Leaks;
pub use document::{FilteredDocument, Finding, Verdict};
use ids::IdFilter;
use license::LicenseFilter;
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::{FilterConfig, FilterKind};
use repetition::RepetitionFilter;
pub use strings::{StringSet, hash};
use urls::UrlFilter;
use words::WordFilter;

/// A filter with its lists.
#[derive(Debug)]
pub struct Filter(FilterRule);

#[derive(Debug)]
enum FilterRule {
    Ids(IdFilter),
    Urls(UrlFilter),
    Consent(ConsentFilter),
    Decontamination(DecontaminationFilter),
    License(LicenseFilter),
    Words(WordFilter),
    Repetition(RepetitionFilter),
}

impl Filter {
    /// Opens a filter; reads its lists only when they are needed, after [`Filter::prepare`].
    ///
    /// # Errors
    /// [`Error::Missing`](polysift_base::Error::Missing) for a missing list; errors in lists and
    /// settings.
    pub fn open(name: &str, config: &FilterConfig) -> Result<Self> {
        Ok(Self(match config.kind {
            FilterKind::Ids => FilterRule::Ids(IdFilter::open(config)?),
            FilterKind::Urls => FilterRule::Urls(UrlFilter::open(config)?),
            FilterKind::Robots => FilterRule::Consent(ConsentFilter::open(name, config)?),
            FilterKind::Decontamination => {
                FilterRule::Decontamination(DecontaminationFilter::open(config)?)
            }
            FilterKind::License => FilterRule::License(LicenseFilter::open(name, config)?),
            FilterKind::Words => FilterRule::Words(WordFilter::open(config)?),
            FilterKind::Repetition => FilterRule::Repetition(RepetitionFilter::open(config)),
        }))
    }

    /// Reads robots.txt files in parallel; one thread calls this before any document is judged.
    pub fn prepare(&mut self, stop: &Stop) -> Result<()> {
        match &mut self.0 {
            FilterRule::Consent(filter) => filter.prepare(stop),
            _ => Ok(()),
        }
    }

    /// Returns the BLAKE3 digest of each list of the filter, by path.
    pub fn digests(&self) -> Result<BTreeMap<String, String>> {
        match &self.0 {
            FilterRule::Ids(filter) => filter.lists.digests(),
            FilterRule::Urls(filter) => filter.lists.digests(),
            FilterRule::Consent(filter) => filter.digests(),
            FilterRule::Decontamination(filter) => filter.digests(),
            FilterRule::License(filter) => filter.digests(),
            FilterRule::Words(filter) => filter.digests(),
            FilterRule::Repetition(_) => Ok(BTreeMap::new()),
        }
    }

    /// Returns one verdict per document, in order.
    pub fn judge(&self, documents: &[FilteredDocument<'_>], stop: &Stop) -> Result<Vec<Verdict>> {
        match &self.0 {
            FilterRule::Ids(filter) => filter.judge(documents, stop),
            FilterRule::Urls(filter) => filter.judge(documents, stop),
            FilterRule::Consent(filter) => filter.judge(documents, stop),
            FilterRule::Decontamination(filter) => Ok(filter.judge(documents)),
            FilterRule::License(filter) => Ok(filter.judge(documents)),
            FilterRule::Words(filter) => filter.judge(documents, stop),
            FilterRule::Repetition(filter) => Ok(filter.judge(documents)),
        }
    }

    /// Explains what robots.txt files say of `url`; `None` if the filter has no such files.
    ///
    /// # Errors
    /// [`Error::Config`](polysift_base::Error::Config) for an invalid URL; errors of reading files.
    pub fn explain(&self, url: &str, stop: &Stop) -> Result<Option<RobotsVerdict>> {
        match &self.0 {
            FilterRule::Consent(filter) => filter.explain(url, stop),
            _ => Ok(None),
        }
    }

    /// Returns the number of ids in the lists of an id filter; `None` for other filters.
    ///
    /// # Errors
    /// Errors of reading the lists.
    pub fn num_listed_ids(&self, stop: &Stop) -> Result<Option<u64>> {
        match &self.0 {
            FilterRule::Ids(filter) => filter.lists.count(stop).map(Some),
            _ => Ok(None),
        }
    }

    /// Reports which benchmark items stand in the corpus, given the n-grams that were hit and the
    /// number of documents that hold each; `None` if the filter has no index.
    pub fn leaks(&self, ngrams: &BTreeMap<u32, u64>) -> Option<Leaks> {
        match &self.0 {
            FilterRule::Decontamination(filter) => Some(filter.leaks(ngrams)),
            _ => None,
        }
    }
}
