//! The exported Parquet files.
//!
//! Rows are gathered into pieces that end after a number of rows or bytes, whatever batches they
//! came in; row groups and files end where a piece ends. So the same rows give the same bytes.
//! Pages end by content (content-defined chunking), so that files with most rows in common share
//! most of their bytes on a deduplicating store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, LogicalType, Type, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{CdcOptions, EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnDescriptor;

use super::size::{dense, row_bytes};
use super::target::Target;
use crate::error::{Error, Result};
use crate::io::FileStamp;
use crate::io::FirstError;

/// Most rows of a piece.
const PIECE_ROWS: usize = 1024;
/// Uncompressed bytes after which a piece ends; less when files are small.
const PIECE_BYTES: u64 = 1 << 22;
/// Pieces of a file that has a largest size, so that it ends near it.
const PIECES_PER_FILE: u64 = 16;

/// How the files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// Compression level.
    pub zstd: i32,
    /// Uncompressed bytes after which a row group ends.
    pub row_group_bytes: u64,
    /// Bytes after which a file ends and the next one starts; `None`: one file.
    pub max_file_bytes: Option<u64>,
    /// Key-value pairs for the metadata of every file, beside those of the schema.
    pub metadata: Vec<(String, String)>,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// The file.
    pub path: PathBuf,
    /// Number of its rows.
    pub rows: u64,
    /// Its size and digest.
    pub stamp: FileStamp,
}

/// Writes rows to `<base>.parquet`, or to `<base>-00000.parquet`, `<base>-00001.parquet`, ...
/// when files have a largest size. None has its name before [`ExportWriter::finish`]; dropped
/// without it, the writer leaves nothing behind.
#[derive(Debug)]
pub struct ExportWriter {
    base: PathBuf,
    schema: SchemaRef,
    properties: WriterProperties,
    options: WriterOptions,
    piece: Piece,
    /// Uncompressed bytes in the open row group.
    group_bytes: u64,
    open: Option<OpenFile>,
    full: Vec<(Target, u64)>,
    failure: FirstError,
}

/// Rows that are written together.
#[derive(Debug, Default)]
struct Piece {
    parts: Vec<RecordBatch>,
    rows: usize,
    bytes: u64,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    rows: u64,
    writer: ArrowWriter<Target>,
}

impl ExportWriter {
    /// Starts the first file. A schema that Parquet cannot hold is an [`Error::Write`].
    pub fn create(base: &Path, schema: &Schema, options: &WriterOptions) -> Result<Self> {
        // Arrow's readers look for metadata in the schema that they are given, others in the footer.
        let mut metadata = schema.metadata().clone();
        metadata.extend(options.metadata.iter().cloned());
        let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
        let mut writer = Self {
            properties: properties(base, &schema, options)?,
            base: base.to_owned(),
            schema: Arc::new(schema),
            options: options.clone(),
            piece: Piece::default(),
            group_bytes: 0,
            open: None,
            full: Vec::new(),
            failure: FirstError::default(),
        };
        writer.open = Some(writer.next_file()?);
        Ok(writer)
    }

    /// Adds the rows of `batch`, whose columns must be those of the schema ([`Error::Shape`]).
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.schema_ref().fields() != self.schema.fields() {
            let reason = format!("{:?} expected, got {:?}", self.schema, batch.schema_ref());
            return Err(Error::shape("export", reason));
        }
        let batch = dense(batch).map_err(|e| Error::write(&self.base, e))?;
        let piece_bytes = match self.options.max_file_bytes {
            Some(bytes) => (bytes / PIECES_PER_FILE).min(PIECE_BYTES),
            None => PIECE_BYTES,
        };
        let mut start = 0;
        for (i, bytes) in row_bytes(&batch).into_iter().enumerate() {
            let end = i + 1;
            self.piece.rows += 1;
            self.piece.bytes += bytes;
            let is_full = self.piece.rows == PIECE_ROWS || self.piece.bytes >= piece_bytes;
            if is_full || end == batch.num_rows() {
                self.piece.parts.push(batch.slice(start, end - start));
                start = end;
            }
            if is_full {
                self.write_piece()?;
            }
        }
        Ok(())
    }

    /// Completes the files and gives them their names, in their order.
    pub fn finish(mut self) -> Result<Vec<ExportedFile>> {
        self.write_piece()?;
        self.close_file()?;
        let mut files = Vec::with_capacity(self.full.len());
        for (file, rows) in self.full {
            let path = file.path().to_owned();
            files.push(ExportedFile { path, rows, stamp: file.commit()? });
        }
        Ok(files)
    }

    /// Writes the gathered rows, and ends the row group or the file when it is full.
    fn write_piece(&mut self) -> Result<()> {
        let piece = std::mem::take(&mut self.piece);
        let Some(first) = piece.parts.first() else {
            return Ok(());
        };
        // Alone, a batch would come back as the slice it is, and the page chunker of parquet 60
        // hashes the values of a sliced list from the start of the array it was cut from.
        let empty = RecordBatch::new_empty(first.schema());
        let rows = concat_batches(&first.schema(), [&empty].into_iter().chain(&piece.parts))
            .map_err(|e| Error::write(&self.base, e))?;
        let mut file = match self.open.take() {
            Some(file) => file,
            None => self.next_file()?,
        };
        file.rows += piece.rows as u64;
        file.writer.write(&rows).map_err(|e| self.failed(&file.path, e))?;
        self.group_bytes += piece.bytes;
        if self.group_bytes >= self.options.row_group_bytes {
            file.writer.flush().map_err(|e| self.failed(&file.path, e))?;
            self.group_bytes = 0;
        }
        let file_bytes = (file.writer.bytes_written() + file.writer.in_progress_size()) as u64;
        self.open = Some(file);
        if self.options.max_file_bytes.is_some_and(|max| file_bytes >= max) {
            self.close_file()?;
        }
        Ok(())
    }

    /// Writes the footer of the open file, if there is one.
    fn close_file(&mut self) -> Result<()> {
        if let Some(OpenFile { path, rows, writer }) = self.open.take() {
            let file = writer.into_inner().map_err(|e| self.failed(&path, e))?;
            self.full.push((file, rows));
            self.group_bytes = 0;
        }
        Ok(())
    }

    /// What made writing `path` fail, `error` or what is behind it.
    fn failed(&self, path: &Path, error: ParquetError) -> Error {
        self.failure.or(Error::write(path, error))
    }

    fn next_file(&self) -> Result<OpenFile> {
        let mut name = self.base.clone().into_os_string();
        match self.options.max_file_bytes {
            Some(_) => name.push(format!("-{:05}.parquet", self.full.len())),
            None => name.push(".parquet"),
        }
        let path = PathBuf::from(name);
        let file = Target::create(&path, &self.failure)?;
        let schema = Arc::clone(&self.schema);
        let writer = ArrowWriter::try_new(file, schema, Some(self.properties.clone()))
            .map_err(|e| self.failed(&path, e))?;
        Ok(OpenFile { path, rows: 0, writer })
    }
}

/// Settings of every file: zstd, page index, content-defined pages, stream split for vectors.
fn properties(base: &Path, schema: &Schema, options: &WriterOptions) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(options.zstd).map_err(|e| Error::write(base, e))?;
    let pairs = schema.metadata().iter();
    let pairs = pairs.map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_content_defined_chunking(Some(CdcOptions::default()))
        .set_key_value_metadata(Some(pairs));
    let columns = ArrowSchemaConverter::new().convert(schema).map_err(|e| Error::write(base, e))?;
    for column in columns.columns().iter().filter(|column| column.max_rep_level() > 0) {
        let Some(encoding) = vector_encoding(column) else {
            continue;
        };
        builder = builder
            .set_column_encoding(column.path().clone(), encoding)
            .set_column_dictionary_enabled(column.path().clone(), false)
            .set_column_statistics_enabled(column.path().clone(), EnabledStatistics::None);
    }
    Ok(builder.build())
}

/// Encoding of floats in lists, which are embeddings, ours or those of the input.
fn vector_encoding(column: &ColumnDescriptor) -> Option<Encoding> {
    if matches!(column.logical_type_ref(), Some(LogicalType::Float16)) {
        // DuckDB 2.0 does not read split f16; it would save 8 % of the bytes.
        return Some(Encoding::PLAIN);
    }
    let is_float = matches!(column.physical_type(), Type::FLOAT | Type::DOUBLE);
    is_float.then_some(Encoding::BYTE_STREAM_SPLIT)
}
