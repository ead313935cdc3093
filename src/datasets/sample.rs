//! Samples, and the hashes that stand for their places.

use polysift_base::sample::key_of;

/// A sample on its way into a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DatasetSample {
    /// Unique within a dataset: the source, and where in it the sample comes from.
    pub id: String,
    /// The text.
    pub text: String,
    /// Folder of the source of a positive, `corpus` for a negative, file of a toxicity sample.
    pub source: String,
    /// Whether it is of the positive (toxic) class.
    pub positive: bool,
    /// What makes it the same sample as another: a hash of its text, or of its place in
    /// published mode, which drops no duplicates.
    pub key: u128,
    /// Samples of one group are never separated by a split.
    pub group: u128,
    /// Whether the group goes through all languages, so that it has to be in one split in all of them.
    pub is_translated: bool,
}

/// Key of a row of a file.
pub(super) fn place_key(file: &str, row: u64) -> u128 {
    key_of("place", &[file, &row.to_string()])
}
