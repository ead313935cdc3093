//! What the part files share: the five columns that say which document a row is, opening, writing.
//!
//! Invariant: these columns have no nulls (`num_tokens`: none or only nulls), and all columns of a
//! part have one length.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, RecordBatch, StringArray, UInt64Array,
    new_null_array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::checked::{self, CheckedFile};
use super::pages::OpenPart;
use crate::error::{Error, Result};
use crate::io::FileStamp;

/// Format named in [`Error::Decode`].
pub(super) const PARQUET: &str = "parquet";
/// Column of the token counts.
pub(crate) const NUM_TOKENS: &str = "num_tokens";

/// The document columns of a part, borrowed for writing.
pub(super) struct Documents<'a> {
    pub(super) rows: &'a [u64],
    pub(super) ids: &'a [String],
    pub(super) languages: &'a [String],
    pub(super) num_bytes: &'a [u64],
    pub(super) num_tokens: Option<&'a [u64]>,
}

impl Documents<'_> {
    /// Checks that all columns have one length and says which.
    pub(super) fn checked_len(&self, op: &'static str) -> Result<usize> {
        let lens = [
            self.rows.len(),
            self.ids.len(),
            self.languages.len(),
            self.num_bytes.len(),
            self.num_tokens.map_or(self.rows.len(), <[u64]>::len),
        ];
        if lens.iter().any(|&len| len != lens[0]) {
            let reason = format!(
                "rows, ids, languages, num_bytes, num_tokens have {lens:?} values; all need as many"
            );
            return Err(Error::shape(op, reason));
        }
        Ok(lens[0])
    }

    /// The rows of `range` as columns, in the order of [`document_fields`].
    pub(super) fn arrays(&self, range: &Range<usize>) -> Vec<ArrayRef> {
        let numbers = |values: &[u64]| -> ArrayRef {
            Arc::new(UInt64Array::from(values[range.clone()].to_vec()))
        };
        let texts = |values: &[String]| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(&values[range.clone()]))
        };
        vec![
            numbers(self.rows),
            texts(self.ids),
            texts(self.languages),
            numbers(self.num_bytes),
            match self.num_tokens {
                Some(counts) => numbers(counts),
                None => new_null_array(&DataType::UInt64, range.len()),
            },
        ]
    }
}

/// The document columns of a part, as read.
pub(super) struct OwnedDocuments {
    pub(super) rows: Vec<u64>,
    pub(super) ids: Vec<String>,
    pub(super) languages: Vec<String>,
    pub(super) num_bytes: Vec<u64>,
    pub(super) num_tokens: Option<Vec<u64>>,
}

impl Default for OwnedDocuments {
    /// No rows, and so no token count that is missing.
    fn default() -> Self {
        let (rows, ids, languages, num_bytes) = Default::default();
        Self { rows, ids, languages, num_bytes, num_tokens: Some(Vec::new()) }
    }
}

impl OwnedDocuments {
    /// Takes over the rows of a batch read from `path`.
    pub(super) fn append(&mut self, batch: &RecordBatch, path: &Path) -> Result<()> {
        match (&mut self.num_tokens, token_counts(batch, path)?) {
            (Some(all), Some(counts)) => all.extend_from_slice(counts),
            (all, None) if self.rows.is_empty() || all.is_none() => *all = None,
            _ => return Err(some_nulls(path)),
        }
        self.rows.extend_from_slice(numbers(batch, "row", path)?);
        self.ids.extend(texts(batch, "id", path)?.iter().flatten().map(String::from));
        self.languages.extend(texts(batch, "language", path)?.iter().flatten().map(String::from));
        self.num_bytes.extend_from_slice(numbers(batch, "num_bytes", path)?);
        Ok(())
    }
}

/// Fields of the document columns.
pub(super) fn document_fields() -> Vec<Field> {
    vec![
        Field::new("row", DataType::UInt64, false),
        Field::new("id", DataType::Utf8, false),
        Field::new("language", DataType::Utf8, false),
        Field::new("num_bytes", DataType::UInt64, false),
        Field::new(NUM_TOKENS, DataType::UInt64, true),
    ]
}

/// Writer settings of a part: zstd, and encodings that suit the document columns.
pub(super) fn properties(path: &Path, zstd: i32) -> Result<WriterPropertiesBuilder> {
    let level = ZstdLevel::try_new(zstd).map_err(|e| Error::write(path, e))?;
    let mut builder = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    for name in ["row", "num_bytes", NUM_TOKENS] {
        let column = ColumnPath::from(name);
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.set_column_dictionary_enabled(ColumnPath::from("id"), false))
}

/// Adds BYTE_STREAM_SPLIT without a dictionary for the leaf `column`, whose order says nothing.
pub(super) fn split_floats(
    builder: WriterPropertiesBuilder,
    column: ColumnPath,
) -> WriterPropertiesBuilder {
    builder
        .set_column_dictionary_enabled(column.clone(), false)
        .set_column_encoding(column, Encoding::BYTE_STREAM_SPLIT)
}

/// Writes one row group per batch into `path`.
pub(super) fn write_part(
    path: &Path,
    schema: &SchemaRef,
    properties: WriterProperties,
    batches: impl Iterator<Item = Result<Vec<ArrayRef>>>,
) -> Result<FileStamp> {
    let mut writer = checked::create(path, Arc::clone(schema), properties)?;
    for columns in batches {
        let batch = RecordBatch::try_new(Arc::clone(schema), columns?)
            .map_err(|e| Error::write(path, e))?;
        writer.write(&batch).and_then(|()| writer.flush()).map_err(|e| Error::write(path, e))?;
    }
    checked::finish(writer)
}

/// Schema of a part: the document columns, then `fields`.
pub(super) fn part_schema(fields: impl IntoIterator<Item = Field>) -> SchemaRef {
    Arc::new(Schema::new(document_fields().into_iter().chain(fields).collect::<Vec<_>>()))
}

/// Opens the part `path`.
pub(super) fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<CheckedFile>> {
    OpenPart::open(path)?.columns()
}

/// Calls `visit` with the batches of `builder`, at most `batch_rows` rows each; only the top-level
/// columns `names` are decoded.
pub(super) fn for_each_batch(
    builder: ParquetRecordBatchReaderBuilder<CheckedFile>,
    path: &Path,
    names: &[&str],
    batch_rows: usize,
    mut visit: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
    let reader = builder
        .with_projection(mask)
        .with_batch_size(batch_rows)
        .build()
        .map_err(|e| Error::decode(path, PARQUET, e))?;
    for batch in reader {
        visit(&batch.map_err(|e| Error::decode(path, PARQUET, e))?)?;
    }
    Ok(())
}

/// Column `name` of a batch read from `path`.
pub(super) fn column<'a>(batch: &'a RecordBatch, name: &str, path: &Path) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::schema(path, name, "is missing"))
}

/// Numeric column `name`, nulls allowed.
pub(super) fn primitives<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a PrimitiveArray<T>> {
    let array = column(batch, name, path)?;
    array.as_primitive_opt().ok_or_else(|| {
        let reason = format!("is of type {}, not {}", array.data_type(), T::DATA_TYPE);
        Error::schema(path, name, reason)
    })
}

/// Column `name` of unsigned integers without nulls.
pub(super) fn numbers<'a>(batch: &'a RecordBatch, name: &str, path: &Path) -> Result<&'a [u64]> {
    let array = primitives::<UInt64Type>(batch, name, path)?;
    without_nulls(array, name, path)?;
    Ok(array.values())
}

/// The column of token counts; `None` where they were not counted.
pub(super) fn token_counts<'a>(batch: &'a RecordBatch, path: &Path) -> Result<Option<&'a [u64]>> {
    let array = primitives::<UInt64Type>(batch, NUM_TOKENS, path)?;
    match array.null_count() {
        0 => Ok(Some(array.values())),
        nulls if nulls == array.len() => Ok(None),
        _ => Err(some_nulls(path)),
    }
}

fn some_nulls(path: &Path) -> Error {
    Error::schema(path, NUM_TOKENS, "has nulls in some of its rows")
}

/// Column `name` of texts without nulls.
pub(super) fn texts<'a>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a StringArray> {
    let array = column(batch, name, path)?;
    let texts = array.as_string_opt::<i32>().ok_or_else(|| {
        Error::schema(path, name, format!("is of type {}, not Utf8", array.data_type()))
    })?;
    without_nulls(texts, name, path)?;
    Ok(texts)
}

fn without_nulls(array: &dyn Array, name: &str, path: &Path) -> Result<()> {
    if array.null_count() == 0 { Ok(()) } else { Err(Error::schema(path, name, "has nulls")) }
}
