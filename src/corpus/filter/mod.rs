//! Filters find documents by rules that need no model.
//!
//! This module owns what each kind of filter finds and the lists it uses. It does not read
//! documents, write files or decide what happens to a found document. A filter looks at one
//! document at a time, so its verdicts depend neither on their order nor on the shards.

mod consent;
mod decontamination;
mod document;
mod rules;
mod strings;
mod urls;

use std::collections::BTreeMap;
use std::path::Path;

use consent::ConsentFilter;
pub(crate) use decontamination::CONTAMINATED;
use decontamination::DecontaminationFilter;
pub use document::{
    AgentVerdict, Filter, FilteredDocument, Finding, Leaks, RobotsVerdict, Verdict,
};
use polysift_base::error::{Error, Result};
use polysift_base::io::stamp;
use polysift_config::{FilterConfig, FilterKind};
use rules::{LicenseFilter, RepetitionFilter, WordFilter};
use strings::IdFilter;
pub use strings::hash;
use urls::UrlFilter;

/// Opens the filter `name`, which must not compare documents with each other.
pub fn open_filter(name: &str, config: &FilterConfig) -> Result<Box<dyn Filter>> {
    Ok(match &config.kind {
        FilterKind::Ids(ids) => Box::new(IdFilter::open(ids)?),
        FilterKind::Urls(urls) => Box::new(UrlFilter::open(urls)?),
        FilterKind::Robots(robots) => Box::new(ConsentFilter::open(name, robots)?),
        FilterKind::Decontamination(decontamination) => {
            Box::new(DecontaminationFilter::open(decontamination, config.action)?)
        }
        FilterKind::License(license) => {
            Box::new(LicenseFilter::open(name, license, config.action)?)
        }
        FilterKind::Words(words) => Box::new(WordFilter::open(words)?),
        FilterKind::Repetition(repetition) => {
            Box::new(RepetitionFilter::open(repetition, config.action))
        }
        FilterKind::Embeddings(_) => {
            let reason = "compares documents with each other and judges none alone";
            return Err(Error::config(format!("filters.{name}"), reason));
        }
    })
}

/// Returns the BLAKE3 digest of each file of `filter`, by path.
pub fn digests(filter: &dyn Filter) -> Result<BTreeMap<String, String>> {
    let digest = |path: &Path| Ok((path.to_string_lossy().into_owned(), stamp(path)?.blake3));
    filter.files().into_iter().map(digest).collect()
}
