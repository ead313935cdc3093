//! The PII found in a shard, with its document, position and kind.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, StringArray, UInt64Array};

use super::documents;
use polysift_base::error::Result;
use polysift_base::io::FileStamp;

/// PII found in a text. Rows are ordered by position.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PiiRow {
    /// Row of the document in the input.
    pub row: u64,
    /// First byte of the PII in the original text.
    pub start: u64,
    /// First byte after the PII.
    pub end: u64,
    /// Id of the document.
    pub id: String,
    /// Name of the kind of PII, as in the settings.
    pub kind: &'static str,
    /// Whether the PII is one of the values with which FineWeb replaces real ones.
    pub is_placeholder: bool,
    /// The PII itself; `None` if it must not be recorded.
    pub value: Option<String>,
}

/// Writes the file `path` at compression level `zstd`; `has_values` adds the PII itself.
pub fn write_pii(path: &Path, found: &[PiiRow], has_values: bool, zstd: i32) -> Result<FileStamp> {
    let numbers = |of: fn(&PiiRow) -> u64| -> ArrayRef {
        Arc::new(found.iter().map(of).collect::<UInt64Array>())
    };
    let texts = |of: fn(&PiiRow) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(found.iter().map(of)))
    };
    let placeholders: Vec<bool> = found.iter().map(|found| found.is_placeholder).collect();
    let columns = [
        ("row", numbers(|found| found.row)),
        ("id", texts(|found| &found.id)),
        ("kind", texts(|found| found.kind)),
        ("start", numbers(|found| found.start)),
        ("end", numbers(|found| found.end)),
        ("placeholder", Arc::new(BooleanArray::from(placeholders))),
    ];
    let values = || ("value", texts(|found| found.value.as_deref().unwrap_or_default()));
    let values = has_values.then(values);
    let batch = documents::batch_of("write_pii", columns.into_iter().chain(values))?;
    let properties = documents::properties(path, zstd, &["start", "end"])?.build();
    documents::write_batch(path, &batch, properties)
}
