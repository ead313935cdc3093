//! Filters: which documents are found by rules that need no model.
//!
//! Owns what each kind of filter finds, and the lists it goes by. Does not read documents, write files or
//! decide what becomes of what was found: that is the stage's and the settings' business.
//!
//! A filter looks at one document at a time and knows nothing of others, so what it finds does not depend on
//! their order or on how the corpus is split.

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
pub(crate) use decontamination::Leaks;
pub(crate) use document::{FilteredDocument, Finding, Verdict};
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
pub(crate) struct Filter(FilterRule);

/// What a filter goes by.
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
    /// The filter `name` of these settings. Its lists are read when they are needed, after [`Filter::prepare`].
    ///
    /// # Errors
    /// [`Error::Missing`](polysift_base::Error::Missing) where a list is not there, and others of finding them.
    pub(crate) fn open(name: &str, config: &FilterConfig) -> Result<Self> {
        Ok(Self(match config.kind {
            FilterKind::Ids => FilterRule::Ids(IdFilter::open(config)?),
            FilterKind::Urls => FilterRule::Urls(UrlFilter::open(config)?),
            FilterKind::Robots => FilterRule::Consent(ConsentFilter::open(name, config)?),
            FilterKind::Decontamination => {
                FilterRule::Decontamination(DecontaminationFilter::open(name, config)?)
            }
            FilterKind::License => FilterRule::License(LicenseFilter::open(name, config)?),
            FilterKind::Words => FilterRule::Words(WordFilter::open(config)?),
            FilterKind::Repetition => FilterRule::Repetition(RepetitionFilter::open(config)),
        }))
    }

    /// Reads what it needs for all documents, in parallel: before they are looked at, by one thread.
    pub(crate) fn prepare(&mut self, stop: &Stop) -> Result<()> {
        match &mut self.0 {
            FilterRule::Consent(filter) => filter.prepare(stop),
            _ => Ok(()),
        }
    }

    /// BLAKE3 digest of each of its lists, by path.
    pub(crate) fn digests(&self) -> Result<BTreeMap<String, String>> {
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

    /// What it says of each of `documents`.
    pub(crate) fn judge(
        &self,
        documents: &[FilteredDocument<'_>],
        stop: &Stop,
    ) -> Result<Vec<Verdict>> {
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

    /// What decides of `url` by robots.txt files; `None` where the filter has none.
    ///
    /// # Errors
    /// [`Error::Config`](polysift_base::Error::Config) for what is no URL; those of reading the files.
    pub(crate) fn explain(&self, url: &str, stop: &Stop) -> Result<Option<RobotsVerdict>> {
        match &self.0 {
            FilterRule::Consent(filter) => filter.explain(url, stop),
            _ => Ok(None),
        }
    }

    /// Number of the ids in the lists of a filter of ids; `None` of others.
    ///
    /// # Errors
    /// Those of reading the lists.
    pub(crate) fn num_listed_ids(&self, stop: &Stop) -> Result<Option<u64>> {
        match &self.0 {
            FilterRule::Ids(filter) => filter.lists.count(stop).map(Some),
            _ => Ok(None),
        }
    }

    /// What of benchmarks stands in a corpus of which these are the n-grams that were hit, with the number of their
    /// documents; `None` where the filter has no index.
    pub(crate) fn leaks(&self, ngrams: &BTreeMap<u32, u64>) -> Option<Leaks> {
        match &self.0 {
            FilterRule::Decontamination(filter) => Some(filter.leaks(ngrams)),
            _ => None,
        }
    }
}
