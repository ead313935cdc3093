//! The card of a dataset: the sources of all samples, and the reasons for dropping rows.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Serialize;

use polysift_base::error::Result;
use polysift_base::io::{FileStamp, stamp};
use polysift_config::Mode;
use polysift_data::input::InputFile;

/// Sources and contents of a dataset, written as `card.json`; without times or absolute paths.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DatasetCard {
    /// `mkc`, `mkc+` or `toxicity`.
    pub dataset: String,
    /// Language as a FineWeb-2 code.
    pub language: String,
    /// Whether the default or the published rules were followed.
    pub mode: Mode,
    /// Seed of all random choices.
    pub seed: u64,
    /// Version of the program that built the dataset.
    pub polysift_version: String,
    /// Maximum number of positives; `None` if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_positives: Option<usize>,
    /// Sources by name.
    pub sources: BTreeMap<String, SourceCard>,
    /// Number of samples by file.
    pub samples: BTreeMap<String, ClassSizes>,
    /// Size and digest of each written file.
    pub files: BTreeMap<String, FileStamp>,
}

/// One source of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SourceCard {
    /// Name of the language in the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Hub repository that the source was downloaded from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Commit of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Files of the source, sorted by name.
    pub files: Vec<SourceFile>,
    /// Readable rows of the language; malformed rows are only counted as dropped.
    pub rows: u64,
    /// Number of samples from the source.
    pub kept: u64,
    /// Number of samples with repaired text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<NonZeroU64>,
    /// Rows without a sample, by reason.
    pub dropped: BTreeMap<String, u64>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    /// Path below the directory of the source; for a corpus the name of the shard.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// BLAKE3 of the whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// For a corpus: BLAKE3 of the size and the first and last 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Number of rows in the file.
    pub rows: u64,
}

/// Number of samples by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ClassSizes {
    /// Samples of the positive or toxic class.
    pub positive: u64,
    /// Samples of the other class.
    pub negative: u64,
}

impl SourceFile {
    /// Describes a file of which no row is read yet; reads it all for its digest.
    pub(super) fn of(file: &InputFile) -> Result<Self> {
        let FileStamp { bytes, blake3, .. } = stamp(&file.path)?;
        let (name, blake3) = (file.name.clone(), Some(blake3));
        Ok(Self { name, bytes, blake3, fingerprint: None, rows: 0 })
    }
}

impl SourceCard {
    /// Returns the number of rows that were dropped for these reasons.
    pub(super) fn count_dropped(&self, reasons: &[&str]) -> u64 {
        reasons.iter().filter_map(|reason| self.dropped.get(*reason)).sum()
    }

    /// Counts `number` more rows as dropped for `reason`.
    pub(super) fn drop_rows(&mut self, reason: &str, number: u64) {
        if number > 0 {
            *self.dropped.entry(reason.to_owned()).or_default() += number;
        }
    }
}

impl DatasetCard {
    /// Creates a card without sources and samples.
    pub fn new(dataset: &str, language: &str, mode: Mode, seed: u64) -> Self {
        Self {
            dataset: dataset.to_owned(),
            language: language.to_owned(),
            mode,
            seed,
            polysift_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Self::default()
        }
    }
}
