//! Embedding parts: the embeddings of consecutive documents of a shard.
//!
//! The column `embeddings` is the same as in the export: per document a list of one list per chunk.
//! The reader takes the lengths from `num_chunks` and the footer, and the values from the pages, in
//! a third of the time of reading arrow's lists.
//!
//! Invariants: values are read back bit for bit as [`round_to`] rounded them. Where pages and row
//! groups end depends on the rows alone, so the same rows give the same bytes however they arrive.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Float16Array, Float32Array, ListArray, RecordBatch, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef};
use bytes::{Buf, Bytes};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Encoding, LogicalType, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::EnabledStatistics;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{ColumnDescPtr, ColumnPath};

use super::checked::{self, CheckedFile, CheckedWriter};
use super::documents::{self, PartReader, documents_of, full_column};
use crate::input::{DOCUMENT_COLUMNS, DocumentBatch, DocumentBuilder, DocumentInfo};
use polysift_base::error::{Error, Result};
use polysift_base::io::FileStamp;
use polysift_config::EmbeddingDtype;

const NUM_CHUNKS: &str = "num_chunks";
const EMBEDDINGS: &str = "embeddings";
/// Name of list elements, as in pyarrow.
const ELEMENT: &str = "element";
const HIDDEN_SIZE: &str = "polysift.hidden_size";
const GROUP_ROWS: usize = 25_000;
/// Number of values after which a row group ends. Its compressed pages are held in memory.
const GROUP_VALUES: usize = 1 << 24;
/// Maximum rows passed to the Parquet writer at a time.
const SLICE_ROWS: usize = 1024;
/// Number of values after which rows are passed to the Parquet writer.
const SLICE_VALUES: usize = 1 << 22;

/// The rows of one embedding part, in the order of the input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingRows {
    /// Documents of the rows.
    pub documents: DocumentBatch,
    /// Shape `[documents + 1]`. The chunks of document `i`, none if it has no text, are
    /// `chunk_offsets[i]..chunk_offsets[i + 1]`.
    pub chunk_offsets: Vec<usize>,
    /// Embeddings, shape `[chunks, hidden_size]`, f32.
    pub values: Vec<f32>,
    /// Length of one embedding.
    pub hidden_size: usize,
}

impl EmbeddingRows {
    /// Returns the embeddings `[chunks, hidden_size]` of document `i` or panics; none without text.
    pub fn chunks(&self, i: usize) -> &[f32] {
        let d = self.hidden_size;
        &self.values[self.chunk_offsets[i] * d..self.chunk_offsets[i + 1] * d]
    }
}

/// Rounds `values` to `dtype`, to nearest with ties to even. NaN stays NaN, and values beyond the
/// largest become infinite. Scores come from rounded values, and so again from the stored ones.
pub fn round_to(values: &mut [f32], dtype: EmbeddingDtype) {
    match dtype {
        EmbeddingDtype::F32 => {}
        EmbeddingDtype::F16 => {
            let mut buffer = [f16::ZERO; 1024];
            for part in values.chunks_mut(buffer.len()) {
                let rounded = &mut buffer[..part.len()];
                rounded.convert_from_f32_slice(part);
                rounded.convert_to_f32_slice(part);
            }
        }
        EmbeddingDtype::Bf16InF32 => {
            for value in values {
                *value = bf16::from_f32(*value).to_f32();
            }
        }
    }
}

/// From here on, f16 rounds to infinity.
const F16_INFINITE: f32 = 65_520.0;

/// Returns true if `value` is finite, also when it is rounded to `dtype`.
pub fn is_finite_in(value: f32, dtype: EmbeddingDtype) -> bool {
    match dtype {
        EmbeddingDtype::F32 => value.is_finite(),
        EmbeddingDtype::F16 => value.abs() < F16_INFINITE,
        EmbeddingDtype::Bf16InF32 => bf16::from_f32(value).is_finite(),
    }
}

/// Returns the column type of embeddings: per document (null without text) a list of each chunk's.
pub fn embeddings_type(dtype: EmbeddingDtype) -> DataType {
    let value = match dtype {
        EmbeddingDtype::F16 => DataType::Float16,
        EmbeddingDtype::F32 | EmbeddingDtype::Bf16InF32 => DataType::Float32,
    };
    DataType::List(list_element(DataType::List(list_element(value))))
}

/// Returns the column of embeddings of documents, rounded to `dtype`. A document has the chunks in
/// `values` `[chunks, hidden_size]` that `chunk_offsets` `[documents + 1]` gives it; none is null.
pub fn embeddings_array(
    chunk_offsets: &[usize],
    values: &[f32],
    hidden_size: usize,
    dtype: EmbeddingDtype,
) -> Result<ArrayRef> {
    let op = "embeddings_array";
    let [first, last] = [chunk_offsets.first(), chunk_offsets.last()].map(|end| *end.unwrap_or(&0));
    let used = values.get(first * hidden_size..last * hidden_size);
    let used = used.filter(|_| chunk_offsets.is_sorted()).ok_or_else(|| {
        let len = values.len();
        let reason =
            format!("chunks {first}..{last} are not in {len} values of {hidden_size} each");
        Error::shape(op, reason)
    })?;
    if i32::try_from(used.len().max(last - first)).is_err() {
        return Err(Error::shape(op, format!("{} values in one row group", used.len())));
    }
    let leaf: ArrayRef = match dtype {
        EmbeddingDtype::F16 => {
            let mut halves = vec![f16::ZERO; used.len()];
            halves.convert_from_f32_slice(used);
            Arc::new(Float16Array::from(halves))
        }
        EmbeddingDtype::F32 | EmbeddingDtype::Bf16InF32 => {
            let mut rounded = used.to_vec();
            round_to(&mut rounded, dtype);
            Arc::new(Float32Array::from(rounded))
        }
    };
    let lengths = chunk_offsets.windows(2).map(|w| w[1] - w[0]);
    let nulls = lengths.clone().map(|len| len > 0).collect::<NullBuffer>();
    let chunks = OffsetBuffer::from_repeated_length(hidden_size, last - first);
    let chunks = ListArray::try_new(list_element(leaf.data_type().clone()), chunks, leaf, None);
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let documents = chunks.and_then(|chunks| {
        let field = list_element(chunks.data_type().clone());
        ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), Arc::new(chunks), nulls)
    });
    Ok(Arc::new(documents.map_err(|e| Error::shape(op, e.to_string()))?))
}

fn list_element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new(ELEMENT, data_type, true))
}

/// Returns the path of the values, below two levels of lists.
fn leaf_path() -> ColumnPath {
    ColumnPath::new([EMBEDDINGS, "list", ELEMENT, "list", ELEMENT].map(String::from).into())
}

/// Writes a part row by row, in slices, so that memory does not depend on the size of a part.
pub struct EmbeddingWriter {
    writer: ArrowWriter<CheckedWriter>,
    dtype: EmbeddingDtype,
    /// Rows that were not yet passed to the Parquet writer.
    documents: DocumentBuilder,
    chunk_offsets: Vec<usize>,
    values: Vec<f32>,
    /// Hidden size of the chunks so far; 0 before the first.
    hidden_size: usize,
    /// Numbers of rows and values of the current row group.
    group: (usize, usize),
}

impl EmbeddingWriter {
    /// Starts the part `path`, with values rounded to `dtype` and compression level `zstd`.
    pub fn create(path: &Path, dtype: EmbeddingDtype, zstd: i32) -> Result<Self> {
        let schema = create_batch(&DocumentBatch::default(), &[0], &[], 0, dtype)?.schema();
        let properties = documents::writer_properties(path, zstd, &[NUM_CHUNKS])?
            .set_column_dictionary_enabled(leaf_path(), false)
            .set_column_encoding(leaf_path(), Encoding::BYTE_STREAM_SPLIT)
            .set_column_statistics_enabled(leaf_path(), EnabledStatistics::None);
        let writer = checked::create(path, schema, properties.build())?;
        Ok(Self {
            writer,
            dtype,
            documents: DocumentBuilder::default(),
            chunk_offsets: vec![0],
            values: Vec::new(),
            hidden_size: 0,
            group: (0, 0),
        })
    }

    /// Appends a document with the embeddings `values` `[chunks, hidden_size]`, of the same width
    /// as earlier ones. Without chunks, `hidden_size` may be any number.
    pub fn push(
        &mut self,
        document: &DocumentInfo<'_>,
        values: &[f32],
        hidden_size: usize,
    ) -> Result<()> {
        if !values.is_empty() {
            let width = if self.hidden_size == 0 { hidden_size } else { self.hidden_size };
            if hidden_size != width || !values.len().is_multiple_of(width.max(1)) {
                let len = values.len();
                let reason =
                    format!("{len} values of width {hidden_size}; those before have {width}");
                return Err(Error::shape("EmbeddingWriter::push", reason));
            }
            self.hidden_size = width;
        }
        self.documents.push(document);
        self.values.extend_from_slice(values);
        self.chunk_offsets.push(self.values.len() / self.hidden_size.max(1));
        self.group = (self.group.0 + 1, self.group.1 + values.len());
        let group_ends = self.group.0 == GROUP_ROWS || self.group.1 >= GROUP_VALUES;
        let slice_rows = self.chunk_offsets.len() - 1;
        if group_ends || slice_rows == SLICE_ROWS || self.values.len() >= SLICE_VALUES {
            self.write_slice()?;
        }
        if group_ends {
            self.group = (0, 0);
            self.writer.flush().map_err(|e| Error::write(self.writer.inner().file.path(), e))?;
        }
        Ok(())
    }

    /// Passes the gathered rows to the Parquet writer.
    fn write_slice(&mut self) -> Result<()> {
        let offsets = std::mem::replace(&mut self.chunk_offsets, vec![0]);
        let documents = self.documents.finish();
        let batch = create_batch(&documents, &offsets, &self.values, self.hidden_size, self.dtype)?;
        self.values.clear();
        self.writer.write(&batch).map_err(|e| Error::write(self.writer.inner().file.path(), e))
    }

    /// Writes the remaining rows and gives the file its name.
    pub fn finish(mut self) -> Result<FileStamp> {
        if self.chunk_offsets.len() > 1 {
            self.write_slice()?;
        }
        let hidden_size = KeyValue::new(HIDDEN_SIZE.into(), self.hidden_size.to_string());
        self.writer.append_key_value_metadata(hidden_size);
        checked::finish(self.writer)
    }
}

/// Makes the columns of a part; the batch of no documents has its schema.
fn create_batch(
    documents: &DocumentBatch,
    chunk_offsets: &[usize],
    values: &[f32],
    hidden_size: usize,
    dtype: EmbeddingDtype,
) -> Result<RecordBatch> {
    let num_chunks = chunk_offsets.windows(2).map(|pair| (pair[1] - pair[0]) as u64);
    let num_chunks: ArrayRef = Arc::new(num_chunks.collect::<UInt64Array>());
    let embeddings = embeddings_array(chunk_offsets, values, hidden_size, dtype)?;
    let columns = [(NUM_CHUNKS, num_chunks), (EMBEDDINGS, embeddings)];
    documents::create_batch("EmbeddingWriter", documents.columns().chain(columns))
}

/// Reads the part `path`, with the errors of [`EmbeddingScan::open`].
pub fn read_embeddings(path: &Path) -> Result<EmbeddingRows> {
    let mut scan = EmbeddingScan::open(path)?;
    let mut rows = EmbeddingRows { hidden_size: scan.hidden_size, ..EmbeddingRows::default() };
    scan.next(usize::MAX, &mut rows.chunk_offsets, &mut rows.values)?;
    rows.documents = scan.documents;
    Ok(rows)
}

/// Reads the embeddings of a part in order.
pub struct EmbeddingScan {
    part: PartReader,
    /// Documents of the part.
    pub documents: DocumentBatch,
    num_chunks: UInt64Array,
    /// Length of one embedding.
    pub hidden_size: usize,
    /// Index of the next document, and of the row group after that of `pages`.
    next: (usize, usize),
    column: usize,
    is_half: bool,
    pages: Option<SerializedPageReader<CheckedFile>>,
    /// Values of a page as byte streams, and the number of values taken from them.
    page: (Bytes, usize),
}

impl EmbeddingScan {
    /// Opens the part `path`: [`Error::Decode`], `Schema` or `Corrupt` for any other file.
    pub fn open(path: &Path) -> Result<Self> {
        let part = PartReader::open(path)?;
        let footer = part.footer.metadata().file_metadata();
        let hidden_size = (footer.key_value_metadata().into_iter().flatten())
            .find(|pair| pair.key == HIDDEN_SIZE)
            .and_then(|pair| pair.value.as_ref()?.parse().ok())
            .ok_or_else(|| {
                Error::corrupt(path, format!("has no `{HIDDEN_SIZE}` in its metadata"))
            })?;
        let columns = footer.schema_descr().columns();
        let is_half =
            |at: &ColumnDescPtr| matches!(at.logical_type_ref(), Some(LogicalType::Float16));
        let is_read = |at: &ColumnDescPtr| {
            *at.path() == leaf_path() && (at.physical_type() == Type::FLOAT || is_half(at))
        };
        let wrong = || Error::schema(path, EMBEDDINGS, "is not a list of lists of floats");
        let column = columns.iter().position(is_read).ok_or_else(wrong)?;
        let is_half = is_half(&columns[column]);
        let batch = part.read(&[&DOCUMENT_COLUMNS[..], &[NUM_CHUNKS]].concat())?;
        let num_chunks = full_column::<UInt64Array>(&batch, NUM_CHUNKS, path)?.clone();
        // A document without chunks counts as one null value.
        let expected = |chunks: &u64| (chunks * hidden_size as u64).max(1);
        let expected: u64 = num_chunks.values().iter().map(expected).sum();
        let groups = part.footer.metadata().row_groups().iter();
        let found: i64 = groups.map(|group| group.column(column).num_values()).sum();
        if u64::try_from(found) != Ok(expected) {
            let reason = format!("holds {found} values, not {expected} by its numbers of chunks");
            return Err(Error::corrupt(path, reason));
        }
        Ok(Self {
            documents: documents_of(&batch, path)?,
            num_chunks,
            part,
            hidden_size,
            next: (0, 0),
            column,
            is_half,
            pages: None,
            page: (Bytes::new(), 0),
        })
    }

    /// Replaces `chunk_offsets` (`[documents + 1]`, from 0) and `values` (`[chunks, hidden_size]`)
    /// by those of the next `limit` documents: fewer at the end, and none after it.
    pub fn next(
        &mut self,
        limit: usize,
        chunk_offsets: &mut Vec<usize>,
        values: &mut Vec<f32>,
    ) -> Result<()> {
        let start = self.next.0;
        let end = start.saturating_add(limit).min(self.documents.len());
        self.next.0 = end;
        chunk_offsets.clear();
        chunk_offsets.push(0);
        let mut num_chunks = 0;
        chunk_offsets.extend(self.num_chunks.values()[start..end].iter().map(|&chunks| {
            num_chunks += chunks as usize;
            num_chunks
        }));
        values.clear();
        values.resize(num_chunks * self.hidden_size, 0.0);
        let mut left = &mut values[..];
        while !left.is_empty() {
            let (streams, taken) = &mut self.page;
            let in_page = streams.len() / if self.is_half { 2 } else { 4 };
            if *taken == in_page {
                self.page = (self.next_page()?, 0);
                continue;
            }
            let (out, rest) = left.split_at_mut(left.len().min(in_page - *taken));
            if self.is_half {
                join_f16(streams, *taken, out);
            } else {
                join_f32(streams, *taken, out);
            }
            *taken += out.len();
            left = rest;
        }
        Ok(())
    }

    /// Returns the values of the next page, which may be in the next row group.
    fn next_page(&mut self) -> Result<Bytes> {
        loop {
            if let Some(pages) = &mut self.pages
                && let Some(page) = pages.get_next_page().map_err(|e| self.part.damaged(e))?
            {
                return self.values_of(page);
            }
            let group = self.part.footer.metadata().row_groups().get(self.next.1);
            let group = group.ok_or_else(|| self.part.damaged("has fewer values than chunks"))?;
            let rows = group.num_rows().max(0) as usize;
            let bytes = Arc::new(self.part.bytes.clone());
            let pages = SerializedPageReader::new(bytes, group.column(self.column), rows, None);
            self.pages = Some(pages.map_err(|e| self.part.damaged(e))?);
            self.next.1 += 1;
        }
    }

    /// Returns the byte streams of `page`, which follow its levels.
    fn values_of(&self, page: Page) -> Result<Bytes> {
        let Page::DataPage { mut buf, encoding: Encoding::BYTE_STREAM_SPLIT, .. } = page else {
            return Err(self.part.damaged("has a page of another kind than was written"));
        };
        for _levels in ["repetition", "definition"] {
            let length =
                buf.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize + 4);
            if length == 0 || length > buf.len() {
                return Err(self.part.damaged("has a page that ends within its levels"));
            }
            buf.advance(length);
        }
        Ok(buf)
    }
}

/// Joins f32 values from index `from` on of their four `streams` (Parquet's `BYTE_STREAM_SPLIT`).
fn join_f32(streams: &[u8], from: usize, out: &mut [f32]) {
    let (count, length) = (streams.len() / 4, out.len());
    let stream = |i: usize| &streams[count * i + from..][..length];
    let (a, b, c, d) = (stream(0), stream(1), stream(2), stream(3));
    for (i, value) in out.iter_mut().enumerate() {
        *value = f32::from_le_bytes([a[i], b[i], c[i], d[i]]);
    }
}

/// Like [`join_f32`], for f16 values, which are widened exactly.
fn join_f16(streams: &[u8], from: usize, out: &mut [f32]) {
    let (count, length) = (streams.len() / 2, out.len());
    let stream = |i: usize| &streams[count * i + from..][..length];
    let mut joined = [f16::ZERO; 1024];
    let bytes = stream(0).chunks(joined.len()).zip(stream(1).chunks(joined.len()));
    for ((low, high), out) in bytes.zip(out.chunks_mut(joined.len())) {
        for (i, value) in joined[..out.len()].iter_mut().enumerate() {
            *value = f16::from_le_bytes([low[i], high[i]]);
        }
        joined[..out.len()].convert_to_f32_slice(out);
    }
}

#[cfg(test)]
mod tests;
