//! The document columns with which parts begin, and the opening of parts.

use std::path::{Path, PathBuf};

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StringArray, UInt64Array};
use arrow_select::concat::concat_batches;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::checked::{self, CheckedFile, PARQUET};
use crate::input::{DOCUMENT_COLUMNS, DocumentBatch, NUM_TOKENS};
use polysift_base::error::{Error, Result, Source};
use polysift_base::io::FileStamp;

const NULLABLE: [&str; 4] = [NUM_TOKENS, "logit", "score", "embeddings"];

/// Returns the `columns`, of one length, as a batch, with nulls in those of [`NULLABLE`].
pub(super) fn create_batch(
    op: &'static str,
    columns: impl IntoIterator<Item = (&'static str, ArrayRef)>,
) -> Result<RecordBatch> {
    let columns = columns.into_iter();
    let columns = columns.map(|(name, column)| (name, column, NULLABLE.contains(&name)));
    let batch = RecordBatch::try_from_iter_with_nullable(columns);
    batch.map_err(|e| Error::shape(op, e.to_string()))
}

pub(super) fn write_batch(
    path: &Path,
    batch: &RecordBatch,
    properties: WriterProperties,
) -> Result<FileStamp> {
    let mut writer = checked::create(path, batch.schema(), properties)?;
    writer.write(batch).map_err(|e| Error::write(path, e))?;
    checked::finish(writer)
}

/// Returns the settings of a part's writer: zstd, and encodings for document columns and `numbers`.
pub(super) fn writer_properties(
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

/// Returns a column of the part `path`, nulls allowed; [`Error::Schema`] if none has the type `A`.
pub(super) fn find_column<'a, A: Array + 'static>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a A> {
    let array = batch.column_by_name(name);
    let array = array.ok_or_else(|| Error::schema(path, name, "is missing"))?;
    array.as_any().downcast_ref().ok_or_else(|| {
        Error::schema(path, name, format!("is of the unexpected type {}", array.data_type()))
    })
}

/// Like [`find_column`], but nulls are an error.
pub(super) fn full_column<'a, A: Array + 'static>(
    batch: &'a RecordBatch,
    name: &str,
    path: &Path,
) -> Result<&'a A> {
    let array: &A = find_column(batch, name, path)?;
    if array.null_count() > 0 {
        return Err(Error::schema(path, name, "has nulls"));
    }
    Ok(array)
}

/// Returns the documents in the rows of `batch`, read from the part `path`.
pub(super) fn documents_of(batch: &RecordBatch, path: &Path) -> Result<DocumentBatch> {
    Ok(DocumentBatch {
        rows: full_column::<UInt64Array>(batch, "row", path)?.clone(),
        ids: full_column::<StringArray>(batch, "id", path)?.clone(),
        languages: full_column::<StringArray>(batch, "language", path)?.clone(),
        num_bytes: full_column::<UInt64Array>(batch, "num_bytes", path)?.clone(),
        num_tokens: find_column::<UInt64Array>(batch, NUM_TOKENS, path)?.clone(),
        texts: None,
        embeddings: None,
    })
}

/// An open part with a valid footer.
#[derive(Debug, Clone)]
pub struct PartReader {
    /// Path of the part.
    pub path: PathBuf,
    pub(super) bytes: CheckedFile,
    pub(super) footer: ArrowReaderMetadata,
}

impl PartReader {
    /// Opens the part `path`: [`Error::Missing`] without it, [`Error::Decode`] for another file.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = CheckedFile::open(path)?;
        // The Parquet types imply the arrow types.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&bytes, options);
        let footer = footer.map_err(|e| Error::decode(path, PARQUET, e))?;
        Ok(Self { path: path.to_owned(), bytes, footer })
    }

    /// Returns the number of rows.
    pub fn num_rows(&self) -> usize {
        self.footer.metadata().file_metadata().num_rows().max(0) as usize
    }

    /// Reads the top-level columns `names` from `first_row` on, in batches of `batch_rows` rows.
    pub(super) fn batches(
        &self,
        names: &[&str],
        first_row: usize,
        batch_rows: usize,
    ) -> Result<ParquetRecordBatchReader> {
        let (bytes, footer) = (self.bytes.clone(), self.footer.clone());
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, footer);
        let mask = ProjectionMask::columns(builder.parquet_schema(), names.iter().copied());
        let builder = builder.with_projection(mask).with_batch_size(batch_rows);
        builder.with_offset(first_row).build().map_err(|e| self.damaged(e))
    }

    /// Reads the top-level columns `names` of all rows.
    pub(super) fn read(&self, names: &[&str]) -> Result<RecordBatch> {
        let reader = self.batches(names, 0, self.num_rows().max(1))?;
        let schema = reader.schema();
        let batches: Vec<RecordBatch> =
            reader.collect::<Result<_, _>>().map_err(|e| self.damaged(e))?;
        concat_batches(&schema, &batches).map_err(|e| self.damaged(e))
    }

    /// Returns [`Error::Decode`] for the part.
    pub(super) fn damaged(&self, error: impl Into<Source>) -> Error {
        Error::decode(&self.path, PARQUET, error)
    }
}

/// Reads the document columns of the part `path`.
pub fn read_documents(path: &Path) -> Result<DocumentBatch> {
    documents_of(&PartReader::open(path)?.read(&DOCUMENT_COLUMNS)?, path)
}
