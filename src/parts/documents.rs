//! The columns that every part begins with, which say which document a row is; opening and writing parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::checked::{CheckedFile, PARQUET};
use crate::error::{Error, Result, Source};

/// Column of the token counts, the only one of these with nulls.
pub(crate) const NUM_TOKENS: &str = "num_tokens";
/// All of them, in their order.
pub(super) const DOCUMENT_COLUMNS: [&str; 5] = ["row", "id", "language", "num_bytes", NUM_TOKENS];

/// Which document a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentInfo<'a> {
    /// Row in its shard, from 0.
    pub row: u64,
    /// Its id.
    pub id: &'a str,
    /// Its language code.
    pub language: &'a str,
    /// UTF-8 bytes of the text; 0 without text.
    pub num_bytes: u64,
    /// Content tokens of the text; `None` where they are not counted.
    pub num_tokens: Option<u64>,
}

/// Which documents some rows are.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentColumns {
    rows: UInt64Array,
    ids: StringArray,
    languages: StringArray,
    num_bytes: UInt64Array,
    num_tokens: UInt64Array,
}

impl DocumentColumns {
    /// Number of documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// [`DocumentInfo::row`] of each document.
    pub fn rows(&self) -> &[u64] {
        self.rows.values()
    }

    /// All about document `i`.
    ///
    /// # Panics
    /// As [`DocumentColumns::language`], when `i` is not below [`DocumentColumns::len`].
    pub fn get(&self, i: usize) -> DocumentInfo<'_> {
        DocumentInfo {
            row: self.rows.value(i),
            id: self.ids.value(i),
            language: self.language(i),
            num_bytes: self.num_bytes.value(i),
            num_tokens: self.num_tokens.is_valid(i).then(|| self.num_tokens.value(i)),
        }
    }

    /// [`DocumentInfo::language`] of document `i`.
    pub fn language(&self, i: usize) -> &str {
        self.languages.value(i)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = DocumentInfo<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Those of `batch`, which was read from the part `path`.
    pub(super) fn of_batch(batch: &RecordBatch, path: &Path) -> Result<Self> {
        let numbers = |name| Ok::<_, Error>(column(batch, name, path)?.as_primitive().clone());
        let texts = |name| Ok::<_, Error>(column(batch, name, path)?.as_string().clone());
        Ok(Self {
            rows: numbers("row")?,
            ids: texts("id")?,
            languages: texts("language")?,
            num_bytes: numbers("num_bytes")?,
            num_tokens: numbers(NUM_TOKENS)?,
        })
    }

    /// The columns, as [`document_fields`] describes them.
    pub(super) fn arrays(&self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.rows.clone()),
            Arc::new(self.ids.clone()),
            Arc::new(self.languages.clone()),
            Arc::new(self.num_bytes.clone()),
            Arc::new(self.num_tokens.clone()),
        ]
    }
}

impl Default for DocumentColumns {
    fn default() -> Self {
        DocumentBuilder::default().finish()
    }
}

impl<'a> FromIterator<DocumentInfo<'a>> for DocumentColumns {
    fn from_iter<I: IntoIterator<Item = DocumentInfo<'a>>>(documents: I) -> Self {
        let mut builder = DocumentBuilder::default();
        documents.into_iter().for_each(|document| builder.push(&document));
        builder.finish()
    }
}

/// [`DocumentColumns`] that grow.
#[derive(Debug, Default)]
pub struct DocumentBuilder {
    rows: UInt64Builder,
    ids: StringBuilder,
    languages: StringBuilder,
    num_bytes: UInt64Builder,
    num_tokens: UInt64Builder,
}

impl DocumentBuilder {
    /// Appends a document.
    pub fn push(&mut self, document: &DocumentInfo<'_>) {
        self.rows.append_value(document.row);
        self.ids.append_value(document.id);
        self.languages.append_value(document.language);
        self.num_bytes.append_value(document.num_bytes);
        self.num_tokens.append_option(document.num_tokens);
    }

    /// The documents since the last call.
    pub fn finish(&mut self) -> DocumentColumns {
        DocumentColumns {
            rows: self.rows.finish(),
            ids: self.ids.finish(),
            languages: self.languages.finish(),
            num_bytes: self.num_bytes.finish(),
            num_tokens: self.num_tokens.finish(),
        }
    }
}

/// Fields of the document columns.
fn document_fields() -> impl Iterator<Item = Field> {
    DOCUMENT_COLUMNS.into_iter().map(|name| match name {
        "id" | "language" => Field::new(name, DataType::Utf8, false),
        _ => Field::new(name, DataType::UInt64, name == NUM_TOKENS),
    })
}

/// Schema of a part: the document columns, then `fields`.
pub(super) fn part_schema(fields: impl IntoIterator<Item = Field>) -> SchemaRef {
    Arc::new(Schema::new(document_fields().chain(fields).collect::<Vec<_>>()))
}

/// Writer settings of a part: zstd, and encodings that suit the document columns and `numbers`.
pub(super) fn properties(
    path: &Path,
    zstd: i32,
    numbers: &[&str],
) -> Result<WriterPropertiesBuilder> {
    let level = ZstdLevel::try_new(zstd).map_err(|e| Error::write(path, e))?;
    let mut builder = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    for name in ["row", "num_bytes", NUM_TOKENS].iter().chain(numbers) {
        let column = ColumnPath::from(*name);
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.set_column_dictionary_enabled(ColumnPath::from("id"), false))
}

/// Column `name` of `batch`, which was read from the part `path`. Only columns of the types and with the
/// nulls of [`document_fields`] are given out.
fn column<'a>(batch: &'a RecordBatch, name: &str, path: &Path) -> Result<&'a ArrayRef> {
    let error = |reason: String| Error::schema(path, name, reason);
    let array = batch.column_by_name(name).ok_or_else(|| error("is missing".into()))?;
    let field = document_fields().find(|field| field.name() == name);
    if let Some(field) = field.filter(|field| field.data_type() != array.data_type()) {
        return Err(error(format!("is of type {}, not {}", array.data_type(), field.data_type())));
    }
    if array.null_count() > 0 && name != NUM_TOKENS {
        return Err(error("has nulls".into()));
    }
    Ok(array)
}

/// Column `name` of numbers without nulls, as [`DocumentColumns::of_batch`].
pub(super) fn numbers<'a>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a UInt64Array> {
    let array = column(batch, name, path)?;
    let reason = || format!("is of type {}, not UInt64", array.data_type());
    array.as_primitive_opt::<UInt64Type>().ok_or_else(|| Error::schema(path, name, reason()))
}

/// Column `name` of texts without nulls, as [`DocumentColumns::of_batch`].
pub(super) fn texts<'a>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a StringArray> {
    let array = column(batch, name, path)?;
    let reason = || format!("is of type {}, not Utf8", array.data_type());
    array.as_string_opt::<i32>().ok_or_else(|| Error::schema(path, name, reason()))
}

/// An open part: its footer is read and valid.
#[derive(Debug, Clone)]
pub(super) struct OpenPart {
    pub(super) path: PathBuf,
    pub(super) bytes: CheckedFile,
    footer: ArrowReaderMetadata,
}

impl OpenPart {
    /// Opens the part `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = CheckedFile::open(path)?;
        // The types of Parquet say all that those of arrow would.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&bytes, options);
        let footer = footer.map_err(|e| Error::decode(path, PARQUET, e))?;
        Ok(Self { path: path.to_owned(), bytes, footer })
    }

    /// What it says of its content.
    pub(super) fn footer(&self) -> &Arc<ParquetMetaData> {
        self.footer.metadata()
    }

    /// Number of rows.
    pub(super) fn num_rows(&self) -> usize {
        self.footer().file_metadata().num_rows().max(0) as usize
    }

    /// The top-level columns `names` from `first_row` on, in batches of `batch_rows` rows.
    pub(super) fn batches(
        &self,
        names: &[&str],
        first_row: usize,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchReader> {
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
            self.bytes.clone(),
            self.footer.clone(),
        );
        let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
        let builder = builder.with_projection(mask).with_batch_size(batch_rows);
        builder.with_offset(first_row).build().map_err(|e| self.damaged(e))
    }

    /// The top-level columns `names` of all rows.
    pub(super) fn read(&self, names: &[&str]) -> Result<RecordBatch> {
        let reader = self.batches(names, 0, self.num_rows().max(1))?;
        let schema = reader.schema();
        let batches: Vec<RecordBatch> =
            reader.collect::<Result<_, _>>().map_err(|e| self.damaged(e))?;
        concat_batches(&schema, &batches).map_err(|e| self.damaged(e))
    }

    /// The error of a part that is not as it was written.
    pub(super) fn damaged(&self, error: impl Into<Source>) -> Error {
        Error::decode(&self.path, PARQUET, error)
    }
}

/// Which documents the rows of the part `path` are.
pub(crate) fn read_documents(path: &Path) -> Result<DocumentColumns> {
    DocumentColumns::of_batch(&OpenPart::open(path)?.read(&DOCUMENT_COLUMNS)?, path)
}
