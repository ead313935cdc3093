//! Samples of a dataset, and keys for rows without a text key.

use polysift_base::sample::key_of;

/// A sample that is not yet written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DatasetSample {
    /// Unique within a dataset: the source and the sample's place in it.
    pub id: String,
    /// The text.
    pub text: String,
    /// Folder of the source for a positive, `corpus` for a negative, file for a toxicity sample.
    pub source: String,
    /// Whether the sample is in the positive (toxic) class.
    pub positive: bool,
    /// Samples with equal keys are duplicates: a hash of the text, or in published mode, which
    /// keeps duplicates, of the place.
    pub key: u128,
    /// Samples of one group are always in the same split.
    pub group: u128,
    /// Whether the group exists in all languages and must be in the same split in each.
    pub is_translated: bool,
}

pub(super) fn place_key(file: &str, row: u64) -> u128 {
    key_of("place", &[file, &row.to_string()])
}
