//! Collects the verdicts of filters on a shard, and counts the documents that they found.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use polysift_base::error::Result;
use polysift_corpus::Context;
use polysift_corpus::filter::Verdict;
use polysift_data::input::{DocumentBuilder, DocumentInfo};
use polysift_data::parts::{FoundRow, VerdictRows, write_verdicts};
use polysift_runs::run::{DocumentAmount, PartFile};

/// Maximum number of hosts, and of details, that a report names.
const MAX_NAMED: usize = 1000;

/// The verdicts on the documents of a shard, in row order.
#[derive(Default)]
pub(crate) struct ShardVerdicts {
    documents: DocumentBuilder,
    found: Vec<FoundRow>,
}

impl ShardVerdicts {
    /// Adds what a filter found; documents come in the order of their rows.
    pub(crate) fn push(&mut self, document: &DocumentInfo<'_>, found: FoundRow) {
        self.documents.push(document);
        self.found.push(found);
    }

    /// Writes the file `path`; returns its entry in a marker.
    pub(crate) fn write(mut self, context: Context<'_>, path: &Path) -> Result<PartFile> {
        let rows = VerdictRows { documents: self.documents.finish(), found: self.found };
        let stamp = write_verdicts(path, &rows, context.config.parts.zstd)?;
        Ok(context.run.file(path, rows.found.len() as u64, stamp))
    }
}

/// Counts of the documents of a language that a filter judged and found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct FilterCounts {
    /// Documents that the filter judged.
    pub(crate) seen: DocumentAmount,
    /// Documents that it found.
    pub(crate) found: DocumentAmount,
    /// Found documents by reason.
    pub(crate) reasons: BTreeMap<String, DocumentAmount>,
    /// Found documents by detail, several per document; reports keep the most frequent details.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) details: BTreeMap<String, DocumentAmount>,
    /// Found documents by host, if the host is the reason; reports keep the most frequent hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) hosts: BTreeMap<String, DocumentAmount>,
    /// Judged documents by note, found or not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) notes: BTreeMap<String, DocumentAmount>,
    /// Number of documents by n-gram of an index; left out of reports, which name the leaks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ngrams: BTreeMap<u32, u64>,
}

impl FilterCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.seen.add(other.seen);
        self.found.add(other.found);
        for (own, others) in [
            (&mut self.reasons, other.reasons),
            (&mut self.details, other.details),
            (&mut self.hosts, other.hosts),
            (&mut self.notes, other.notes),
        ] {
            for (key, amount) in others {
                own.entry(key).or_default().add(amount);
            }
        }
        for (ngram, documents) in other.ngrams {
            *self.ngrams.entry(ngram).or_default() += documents;
        }
    }

    /// Keeps the most frequent hosts and details, ties by name, and drops the n-grams.
    pub(crate) fn keep_for_report(&mut self) {
        self.ngrams.clear();
        for counts in [&mut self.hosts, &mut self.details] {
            let mut largest: Vec<(String, DocumentAmount)> =
                std::mem::take(counts).into_iter().collect();
            largest.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.documents));
            *counts = largest.into_iter().take(MAX_NAMED).collect();
        }
    }

    /// Counts a document that the filter judged.
    pub(crate) fn count(&mut self, document: DocumentInfo<'_>, verdict: &Verdict) {
        let amount = DocumentAmount::from(document);
        self.seen.add(amount);
        let add = |counts: &mut BTreeMap<String, DocumentAmount>, key: &str| {
            counts.entry(key.to_owned()).or_default().add(amount);
        };
        if let Some(note) = verdict.note {
            add(&mut self.notes, note);
        }
        for &ngram in &verdict.ngrams {
            *self.ngrams.entry(ngram).or_default() += 1;
        }
        let Some(finding) = &verdict.finding else { return };
        self.found.add(amount);
        add(&mut self.reasons, finding.reason);
        finding.details.iter().for_each(|detail| add(&mut self.details, detail));
        finding.host.iter().for_each(|host| add(&mut self.hosts, host));
    }
}
