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
use std::fmt::Debug;
use std::path::Path;

use consent::ConsentFilter;
pub use consent::{AgentVerdict, RobotsVerdict};
use decontamination::DecontaminationFilter;
pub use decontamination::Leaks;
pub use document::{FilteredDocument, Finding, Verdict};
use ids::IdFilter;
use license::LicenseFilter;
use polysift_base::error::Result;
use polysift_base::io::stamp;
use polysift_base::progress::Stop;
use polysift_config::{FilterConfig, FilterKind};
use repetition::RepetitionFilter;
pub use strings::{StringSet, hash};
use urls::UrlFilter;
use words::WordFilter;

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

    /// Returns one verdict per document, in order; reads lists when they are needed.
    fn judge(&self, documents: &[FilteredDocument<'_>], stop: &Stop) -> Result<Vec<Verdict>>;

    /// Explains what robots.txt files say of `url`; `None` if the filter has no such files.
    ///
    /// # Errors
    /// [`Error::Config`](polysift_base::Error::Config) for an invalid URL; errors of reading files.
    fn explain(&self, _url: &str, _stop: &Stop) -> Result<Option<RobotsVerdict>> {
        Ok(None)
    }

    /// Returns the number of ids in the lists of an id filter; `None` for other filters.
    fn num_listed_ids(&self, _stop: &Stop) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Reports which benchmark items stand in the corpus, given the n-grams that were hit and the
    /// number of documents that hold each; `None` if the filter has no index.
    fn leaks(&self, _ngrams: &BTreeMap<u32, u64>) -> Option<Leaks> {
        None
    }
}

/// Opens the filter `name`.
///
/// # Errors
/// [`Error::Missing`](polysift_base::Error::Missing) for a missing list; errors in lists and
/// settings.
pub fn open_filter(name: &str, config: &FilterConfig) -> Result<Box<dyn Filter>> {
    Ok(match config.kind {
        FilterKind::Ids => Box::new(IdFilter::open(config)?),
        FilterKind::Urls => Box::new(UrlFilter::open(config)?),
        FilterKind::Robots => Box::new(ConsentFilter::open(name, config)?),
        FilterKind::Decontamination => Box::new(DecontaminationFilter::open(config)?),
        FilterKind::License => Box::new(LicenseFilter::open(name, config)?),
        FilterKind::Words => Box::new(WordFilter::open(config)?),
        FilterKind::Repetition => Box::new(RepetitionFilter::open(config)),
    })
}

/// Returns the BLAKE3 digest of each file of `filter`, by path.
pub fn digests(filter: &dyn Filter) -> Result<BTreeMap<String, String>> {
    let digest = |path: &Path| Ok((path.to_string_lossy().into_owned(), stamp(path)?.blake3));
    filter.files().into_iter().map(digest).collect()
}
