//! The card beside a dataset: where every sample comes from and what became of the others.

use std::collections::BTreeMap;

use serde::Serialize;

use polysift_base::io::FileStamp;
use polysift_config::Mode;

/// What a dataset was made of; `card.json`. Holds neither times nor absolute paths.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatasetCard {
    /// `mkc`, `mkc+` or `toxicity`.
    pub dataset: String,
    /// FineWeb-2 code.
    pub language: String,
    /// Whose rules were followed.
    pub mode: Mode,
    /// Seed of all choices.
    pub seed: u64,
    /// Version of the program that made it.
    pub polysift_version: String,
    /// Most positives; `None` where there is no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_positives: Option<usize>,
    /// What was read, by source.
    pub sources: BTreeMap<String, SourceCard>,
    /// Samples by file.
    pub samples: BTreeMap<String, ClassSizes>,
    /// Size and digest of the files written.
    pub files: BTreeMap<String, FileStamp>,
}

/// One source of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SourceCard {
    /// What the language is called there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Repository of the hub that it was downloaded from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Commit of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The files, sorted by name.
    pub files: Vec<SourceFile>,
    /// Rows of the language that could be read; malformed ones are only among the dropped.
    pub rows: u64,
    /// Samples that it gave.
    pub kept: u64,
    /// Those of them whose text was repaired.
    #[serde(skip_serializing_if = "is_zero")]
    pub repaired: u64,
    /// Rows that gave none, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    /// Path below the directory of the source; name of the shard for a corpus.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// For a corpus: BLAKE3 of the size, the first and the last 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// All rows of the file.
    pub rows: u64,
}

/// Samples by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ClassSizes {
    /// Of the positive or toxic class.
    pub positive: u64,
    /// Of the other.
    pub negative: u64,
}

/// Whether a count says nothing.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl SourceCard {
    /// Rows that gave no sample for one of `reasons`.
    pub(super) fn dropped_of(&self, reasons: &[&str]) -> u64 {
        reasons.iter().filter_map(|reason| self.dropped.get(*reason)).sum()
    }

    /// Counts `number` rows that gave no sample.
    pub(super) fn drop_rows(&mut self, reason: &str, number: u64) {
        if number > 0 {
            *self.dropped.entry(reason.to_owned()).or_default() += number;
        }
    }
}

impl DatasetCard {
    /// A card without sources and samples.
    pub fn new(dataset: &str, language: &str, mode: Mode, seed: u64) -> Self {
        Self {
            dataset: dataset.to_owned(),
            language: language.to_owned(),
            mode,
            seed,
            polysift_version: env!("CARGO_PKG_VERSION").to_owned(),
            max_positives: None,
            sources: BTreeMap::new(),
            samples: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }
}
