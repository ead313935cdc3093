//! The PII found in a shard, with its document, position and kind.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use super::{checked, documents};
use polysift_base::error::{Error, Result};
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
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    let mut fields = vec![
        field("row", DataType::UInt64),
        field("id", DataType::Utf8),
        field("kind", DataType::Utf8),
        field("start", DataType::UInt64),
        field("end", DataType::UInt64),
        field("placeholder", DataType::Boolean),
    ];
    let numbers = |of: fn(&PiiRow) -> u64| -> ArrayRef {
        Arc::new(found.iter().map(of).collect::<UInt64Array>())
    };
    let placeholders: Vec<bool> = found.iter().map(|found| found.is_placeholder).collect();
    let mut arrays = vec![
        numbers(|found| found.row),
        Arc::new(StringArray::from_iter_values(found.iter().map(|found| &found.id))),
        Arc::new(StringArray::from_iter_values(found.iter().map(|found| found.kind))),
        numbers(|found| found.start),
        numbers(|found| found.end),
        Arc::new(BooleanArray::from(placeholders)),
    ];
    if has_values {
        let values = found.iter().map(|found| found.value.as_deref().unwrap_or_default());
        fields.push(field("value", DataType::Utf8));
        arrays.push(Arc::new(StringArray::from_iter_values(values)));
    }
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)
        .map_err(|e| Error::shape("write_pii", e.to_string()))?;
    let properties = documents::properties(path, zstd, &["start", "end"])?.build();
    let mut writer = checked::create(path, schema, properties)?;
    writer.write(&batch).map_err(|e| Error::write(path, e))?;
    checked::finish(writer)
}
