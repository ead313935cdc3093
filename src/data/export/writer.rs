//! The exported Parquet files.
//!
//! Rows are gathered into slices that end after a number of rows or bytes, regardless of the
//! batches in which they arrive. Row groups and files end where a slice ends, so the same rows give
//! the same bytes. Pages end by content (content-defined chunking), so that files with most rows in
//! common share most of their bytes on a deduplicating store. Pages end by nothing else, and each
//! row group restarts the search: where the content ends a page that a limit (size, rows, a full
//! dictionary, the row group) has just ended, parquet 60 writes a page without values, which Arrow
//! C++ takes for the end of the column.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, ListArray, OffsetSizeTrait, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, LogicalType, Type, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{CdcOptions, EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;

use polysift_base::error::{Error, Result};
use polysift_base::io::{AtomicFile, FileStamp, FirstError, NewFile, is_url};
use polysift_remote::upload;

const SLICE_ROWS: usize = 1024;
/// Uncompressed bytes after which a slice ends. The limit is lower if files are small.
const SLICE_BYTES: u64 = 1 << 22;
/// Number of slices per file if files have a maximum size, so that a file ends near that size.
const SLICES_PER_FILE: u64 = 16;
const MAX_GROUP_ROWS: usize = 1 << 20;
/// Pages end as often as with the defaults: the rate follows from the range of sizes, and each
/// level halves it. Only a first value of 2 GiB would leave a page without values: none is so big.
const PAGES: CdcOptions =
    CdcOptions { min_chunk_size: 256 << 10, max_chunk_size: 1 << 31, norm_level: 11 };

/// Settings of an [`ExportWriter`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// Level of zstd compression.
    pub zstd: i32,
    /// Uncompressed bytes after which a row group ends.
    pub row_group_bytes: u64,
    /// Bytes after which a file ends and the next one starts; `None` writes one file.
    pub max_file_bytes: Option<u64>,
    /// Key-value pairs added to the schema's in the footer of every file.
    pub metadata: Vec<(String, String)>,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedFile {
    /// Path or URL of the file.
    pub path: PathBuf,
    /// Number of rows in the file.
    pub rows: u64,
    /// Size and digest of the file.
    pub stamp: FileStamp,
}

/// Writes rows to `<base>.parquet`, or to `<base>-00000.parquet`, `<base>-00001.parquet`, ... if
/// files have a maximum size. No file gets its name before [`ExportWriter::finish`].
#[derive(Debug)]
pub struct ExportWriter {
    base: PathBuf,
    schema: SchemaRef,
    properties: WriterProperties,
    options: WriterOptions,
    pending: PendingRows,
    /// Uncompressed bytes in the open row group.
    group_bytes: u64,
    open: Option<OpenFile>,
    /// Files that wait for their names, with their paths and rows.
    full: Vec<(PathBuf, u64, Box<dyn NewFile>)>,
    failure: FirstError,
}

#[derive(Debug, Default)]
struct PendingRows {
    parts: Vec<RecordBatch>,
    rows: usize,
    bytes: u64,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    rows: u64,
    writer: SerializedFileWriter<Box<dyn NewFile>>,
    /// The row group that is not yet in the file.
    group: Option<ArrowWriter<Vec<u8>>>,
}

impl ExportWriter {
    /// Starts the first file. Returns [`Error::Io`] for a schema that Parquet cannot hold.
    pub fn create(base: &Path, schema: &Schema, options: &WriterOptions) -> Result<Self> {
        let mut writer = Self {
            properties: properties(base, schema, options)?,
            base: base.to_owned(),
            schema: Arc::new(schema.clone()),
            options: options.clone(),
            pending: PendingRows::default(),
            group_bytes: 0,
            open: None,
            full: Vec::new(),
            failure: FirstError::default(),
        };
        writer.open = Some(writer.start_file()?);
        Ok(writer)
    }

    /// Adds the rows of `batch`, which has no dictionaries. Parquet must store its columns as it
    /// stores the schema's; otherwise the end of the row group is an error.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let file_bytes = self.options.max_file_bytes.unwrap_or(u64::MAX);
        let slice_bytes = (file_bytes / SLICES_PER_FILE).min(SLICE_BYTES);
        let mut start = 0;
        for (i, bytes) in row_bytes(batch.columns(), batch.num_rows()).into_iter().enumerate() {
            let end = i + 1;
            self.pending.rows += 1;
            self.pending.bytes += bytes;
            let is_full = self.pending.rows == SLICE_ROWS || self.pending.bytes >= slice_bytes;
            if is_full || end == batch.num_rows() {
                self.pending.parts.push(batch.slice(start, end - start));
                start = end;
            }
            if is_full {
                self.write_pending()?;
            }
        }
        Ok(())
    }

    /// Completes the files and gives them their names, in order.
    pub fn finish(mut self) -> Result<Vec<ExportedFile>> {
        self.write_pending()?;
        self.close_file()?;
        let named = |(path, rows, file): (_, _, Box<dyn NewFile>)| -> Result<ExportedFile> {
            Ok(ExportedFile { path, rows, stamp: file.commit()? })
        };
        self.full.into_iter().map(named).collect()
    }

    /// Writes the pending rows as one slice, and ends the row group and the file if they are full.
    fn write_pending(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let Some(first) = pending.parts.first() else { return Ok(()) };
        // `concat_batches` would return a single batch as the slice it is, and the page chunker of
        // parquet 60 hashes the values of a sliced list from the start of the original array.
        let empty = RecordBatch::new_empty(first.schema());
        let rows = concat_batches(&first.schema(), [&empty].into_iter().chain(&pending.parts))
            .map_err(|e| Error::write(&self.base, e))?;
        let mut file = self.open.take().map_or_else(|| self.start_file(), Ok)?;
        file.rows += pending.rows as u64;
        let wrong = |e| Error::write(&self.base, e);
        let new = || ArrowWriter::try_new(Vec::new(), rows.schema(), Some(self.properties.clone()));
        let mut group = file.group.take().map_or_else(new, Ok).map_err(wrong)?;
        group.write(&rows).map_err(wrong)?;
        self.group_bytes += pending.bytes;
        let is_full = self.group_bytes >= self.options.row_group_bytes
            || group.in_progress_rows() >= MAX_GROUP_ROWS;
        let group_bytes = if is_full { 0 } else { group.in_progress_size() };
        file.group = Some(group);
        if is_full {
            self.close_group(&mut file)?;
        }
        let file_bytes = (file.writer.bytes_written() + group_bytes) as u64;
        self.open = Some(file);
        if self.options.max_file_bytes.is_some_and(|max| file_bytes >= max) {
            self.close_file()?;
        }
        Ok(())
    }

    /// Copies the open row group, which is encoded in memory, to the end of `file`.
    fn close_group(&mut self, file: &mut OpenFile) -> Result<()> {
        self.group_bytes = 0;
        let Some(mut group) = file.group.take() else { return Ok(()) };
        let copied = group.finish().and_then(|metadata| {
            let bytes = Bytes::from(std::mem::take(group.inner_mut()));
            let (written, pages) = (metadata.row_group(0), metadata.page_index_for_row_group(0));
            let mut writer = file.writer.next_row_group()?;
            for (at, column) in written.columns().iter().enumerate() {
                let close = ColumnCloseResult {
                    bytes_written: column.compressed_size().cast_unsigned(),
                    rows_written: written.num_rows().cast_unsigned(),
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: pages.column_index(at).cloned(),
                    offset_index: pages.offset_index(at).cloned(),
                };
                writer.append_column(&bytes, close)?;
            }
            writer.close()
        });
        copied.map(drop).map_err(|e| self.write_error(&file.path, e))
    }

    /// Completes the open file, if there is one; [`Self::finish`] gives it its name.
    fn close_file(&mut self) -> Result<()> {
        if let Some(mut file) = self.open.take() {
            self.close_group(&mut file)?;
            let OpenFile { path, rows, writer, .. } = file;
            let file = writer.into_inner().map_err(|e| self.write_error(&path, e))?;
            self.full.push((path, rows, file));
        }
        Ok(())
    }

    /// Returns the store's error, if there is one, in place of the `error` of writing `path`.
    fn write_error(&self, path: &Path, error: ParquetError) -> Error {
        self.failure.take_or(Error::write(path, error))
    }

    /// Starts the next file under its path, locally or in a store, with the metadata of its footer.
    fn start_file(&self) -> Result<OpenFile> {
        let mut path = self.base.clone().into_os_string();
        if self.options.max_file_bytes.is_some() {
            path.push(format!("-{:05}", self.full.len()));
        }
        path.push(".parquet");
        let path = PathBuf::from(path);
        let file: Box<dyn NewFile> = match path.to_str() {
            Some(url) if is_url(url) => upload(&path, &self.failure)?,
            _ => Box::new(AtomicFile::create(&path)?),
        };
        // Arrow's readers look for metadata in the schema they get, other readers in the footer.
        let pairs = self.schema.metadata().iter();
        let pairs = pairs.chain(self.options.metadata.iter().map(|(key, value)| (key, value)));
        let pairs = pairs.map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
        let properties = self.properties.clone().into_builder();
        let properties = properties.set_key_value_metadata(Some(pairs)).build();
        let writer = ArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties))
            .and_then(ArrowWriter::into_serialized_writer);
        let (writer, _) = writer.map_err(|e| self.write_error(&path, e))?;
        Ok(OpenFile { path, rows: 0, writer, group: None })
    }
}

/// Settings of row groups: zstd, page index, content-defined pages, stream split for vectors.
fn properties(base: &Path, schema: &Schema, options: &WriterOptions) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(options.zstd).map_err(|e| Error::write(base, e))?;
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_content_defined_chunking(Some(PAGES))
        .set_data_page_size_limit(usize::MAX)
        .set_data_page_row_count_limit(2 * MAX_GROUP_ROWS)
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(None);
    let stored = ArrowSchemaConverter::new().convert(schema).map_err(|e| Error::write(base, e))?;
    // Floats in lists are embeddings, either ours or the input's.
    for column in stored.columns().iter().filter(|column| column.max_rep_level() > 0) {
        let encoding = match (column.physical_type(), column.logical_type_ref()) {
            // DuckDB 2.0 cannot read split f16, which would save 8 % of the bytes.
            (_, Some(LogicalType::Float16)) => Encoding::PLAIN,
            (Type::FLOAT | Type::DOUBLE, _) => Encoding::BYTE_STREAM_SPLIT,
            _ => continue,
        };
        builder = builder
            .set_column_encoding(column.path().clone(), encoding)
            .set_column_statistics_enabled(column.path().clone(), EnabledStatistics::None);
    }
    Ok(builder.build())
}

const OTHER_BYTES: u64 = 8;

/// Returns the uncompressed bytes of each of `len` rows, without offsets and null masks.
fn row_bytes(columns: &[ArrayRef], len: usize) -> Vec<u64> {
    let mut total = vec![0; len];
    for column in columns {
        total.iter_mut().zip(value_bytes(column)).for_each(|(total, bytes)| *total += bytes);
    }
    total
}

/// Returns the bytes of each value of `array`; a null has 0.
fn value_bytes(array: &dyn Array) -> Vec<u64> {
    let len = array.len();
    let mut bytes = match array.data_type() {
        DataType::Utf8 => offset_bytes(array.as_string::<i32>().value_offsets(), 1),
        DataType::LargeUtf8 => offset_bytes(array.as_string::<i64>().value_offsets(), 1),
        DataType::Binary => offset_bytes(array.as_binary::<i32>().value_offsets(), 1),
        DataType::LargeBinary => offset_bytes(array.as_binary::<i64>().value_offsets(), 1),
        DataType::Utf8View => array.as_string_view().lengths().map(u64::from).collect(),
        DataType::BinaryView => array.as_binary_view().lengths().map(u64::from).collect(),
        DataType::List(_) => list_bytes(array.as_list::<i32>()),
        DataType::LargeList(_) => list_bytes(array.as_list::<i64>()),
        DataType::Map(_, _) => list_bytes(&ListArray::from(array.as_map().clone())),
        DataType::FixedSizeList(_, size) => {
            let values = value_bytes(array.as_fixed_size_list().values());
            let size = usize::try_from(*size).unwrap_or_default();
            (0..len).map(|i| values[i * size..(i + 1) * size].iter().sum()).collect()
        }
        DataType::Struct(_) => row_bytes(array.as_struct().columns(), len),
        other => vec![fixed_bytes(other).unwrap_or(OTHER_BYTES); len],
    };
    if let Some(nulls) = array.nulls() {
        bytes.iter_mut().zip(nulls).for_each(|(bytes, is_valid)| *bytes *= u64::from(is_valid));
    }
    bytes
}

/// Returns the bytes of a value if all values of the type have the same width.
fn fixed_bytes(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(size) => u64::try_from(*size).ok(),
        other => other.primitive_width().map(|width| width as u64),
    }
}

/// Returns the bytes of each list or text whose items have `width` bytes.
fn offset_bytes<O: OffsetSizeTrait>(offsets: &[O], width: u64) -> Vec<u64> {
    offsets.windows(2).map(|w| (w[1] - w[0]).as_usize() as u64 * width).collect()
}

/// Returns the bytes of the items of each list.
fn list_bytes<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> Vec<u64> {
    let (offsets, values) = (list.value_offsets(), list.values());
    if let Some(width) = fixed_bytes(values.data_type()) {
        return offset_bytes(offsets, width);
    }
    let start = offsets[0].as_usize();
    let values = values.slice(start, offsets[offsets.len() - 1].as_usize() - start);
    let bytes = value_bytes(&values);
    let sum = |w: &[O]| bytes[w[0].as_usize() - start..w[1].as_usize() - start].iter().sum();
    offsets.windows(2).map(sum).collect()
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, StringArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{ArrowError, Field};

    use super::*;

    #[test]
    fn a_row_has_the_size_of_its_values() -> Result<(), ArrowError> {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("ab"), None, Some("äöü"), Some("")]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let lists = ListArray::try_new(
            Arc::new(Field::new("element", DataType::Utf8, true)),
            OffsetBuffer::new(vec![0, 2, 2, 3, 4].into()),
            Arc::clone(&texts),
            None,
        )?;
        let batch = RecordBatch::try_from_iter([
            ("text", texts),
            ("number", numbers),
            ("list", Arc::new(lists) as ArrayRef),
        ])?;
        assert_eq!(row_bytes(batch.columns(), 4), [2 + 4 + 2, 0, 6 + 4 + 6, 4]);
        assert_eq!(row_bytes(batch.slice(2, 2).columns(), 2), [6 + 4 + 6, 4]);
        Ok(())
    }
}
