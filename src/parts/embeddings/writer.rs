//! An embedding part while it grows: rows come one by one and leave for the file in slices, so that
//! memory does not depend on the size of a part.
//!
//! Invariant: where slices and row groups end depends on the rows alone, so that the same rows give
//! the same bytes however they arrive.

use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::EnabledStatistics;
use parquet::schema::types::ColumnPath;

use super::{ELEMENT, EMBEDDINGS, HIDDEN_SIZE, embeddings_array, embeddings_type};
use crate::config::EmbeddingDtype;
use crate::error::{Error, Result};
use crate::io::FileStamp;
use crate::parts::checked::{self, CheckedWriter};
use crate::parts::columns;

/// Most rows of a row group.
pub(super) const GROUP_ROWS: usize = 25_000;
/// Number of values after which a row group ends: what of it is compressed is in memory.
const GROUP_VALUES: usize = 1 << 24;
/// Most rows of a slice.
const SLICE_ROWS: usize = 1024;
/// Number of values after which a slice ends.
const SLICE_VALUES: usize = 1 << 22;

/// One document of a part.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddingRow<'a> {
    /// Row in its shard, from 0.
    pub row: u64,
    /// Its id.
    pub id: &'a str,
    /// Its language code.
    pub language: &'a str,
    /// UTF-8 bytes of the text.
    pub num_bytes: u64,
    /// Content tokens of the text; `None` where they are not counted.
    pub num_tokens: Option<u64>,
    /// `[chunks, hidden_size]`, f32; no chunks without text.
    pub values: &'a [f32],
    /// Length of one embedding; anything without chunks.
    pub hidden_size: usize,
}

/// Writes a part row by row.
pub struct EmbeddingWriter {
    writer: ArrowWriter<CheckedWriter>,
    schema: SchemaRef,
    dtype: EmbeddingDtype,
    slice: Slice,
    /// Of the chunks so far; 0 before the first.
    hidden_size: usize,
    /// Rows and values of the row group so far.
    group: (usize, usize),
}

/// Rows that are not with the Parquet writer yet.
struct Slice {
    rows: UInt64Builder,
    ids: StringBuilder,
    languages: StringBuilder,
    num_bytes: UInt64Builder,
    num_tokens: UInt64Builder,
    chunk_offsets: Vec<usize>,
    values: Vec<f32>,
}

impl Slice {
    fn new() -> Self {
        Self {
            rows: UInt64Builder::new(),
            ids: StringBuilder::new(),
            languages: StringBuilder::new(),
            num_bytes: UInt64Builder::new(),
            num_tokens: UInt64Builder::new(),
            chunk_offsets: vec![0],
            values: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.chunk_offsets.len() - 1
    }
}

impl EmbeddingWriter {
    /// Starts the part `path` with values rounded to `dtype`, at compression level `zstd`.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Write`].
    pub fn create(path: &Path, dtype: EmbeddingDtype, zstd: i32) -> Result<Self> {
        let schema = columns::part_schema([Field::new(EMBEDDINGS, embeddings_type(dtype), true)]);
        let leaf = ColumnPath::new(
            [EMBEDDINGS, "list", ELEMENT, "list", ELEMENT].map(String::from).into(),
        );
        let properties = columns::split_floats(columns::properties(path, zstd)?, leaf.clone())
            .set_column_statistics_enabled(leaf, EnabledStatistics::None)
            .build();
        let writer = checked::create(path, Arc::clone(&schema), properties)?;
        Ok(Self { writer, schema, dtype, slice: Slice::new(), hidden_size: 0, group: (0, 0) })
    }

    /// Appends a document.
    ///
    /// # Errors
    /// [`Error::Shape`] if `values` are not whole embeddings of the width of those before;
    /// [`Error::Write`].
    pub fn push(&mut self, row: &EmbeddingRow<'_>) -> Result<()> {
        let slice = &mut self.slice;
        if !row.values.is_empty() {
            let width = if self.hidden_size == 0 { row.hidden_size } else { self.hidden_size };
            if row.hidden_size != width || !row.values.len().is_multiple_of(width.max(1)) {
                let (values, given) = (row.values.len(), row.hidden_size);
                let reason = format!("{values} values of width {given}; those before have {width}");
                return Err(Error::shape("EmbeddingWriter::push", reason));
            }
            self.hidden_size = width;
        }
        slice.rows.append_value(row.row);
        slice.ids.append_value(row.id);
        slice.languages.append_value(row.language);
        slice.num_bytes.append_value(row.num_bytes);
        slice.num_tokens.append_option(row.num_tokens);
        slice.values.extend_from_slice(row.values);
        slice.chunk_offsets.push(slice.values.len() / self.hidden_size.max(1));
        self.group = (self.group.0 + 1, self.group.1 + row.values.len());
        let group_ends = self.group.0 == GROUP_ROWS || self.group.1 >= GROUP_VALUES;
        if group_ends || slice.len() == SLICE_ROWS || slice.values.len() >= SLICE_VALUES {
            self.write_slice()?;
        }
        if group_ends {
            self.group = (0, 0);
            self.writer.flush().map_err(|e| Error::write(self.writer.inner().path(), e))?;
        }
        Ok(())
    }

    fn write_slice(&mut self) -> Result<()> {
        let mut slice = std::mem::replace(&mut self.slice, Slice::new());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(slice.rows.finish()),
            Arc::new(slice.ids.finish()),
            Arc::new(slice.languages.finish()),
            Arc::new(slice.num_bytes.finish()),
            Arc::new(slice.num_tokens.finish()),
            embeddings_array(&slice.chunk_offsets, &slice.values, self.hidden_size, self.dtype)?,
        ];
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        let written = batch.map_err(Into::into).and_then(|batch| self.writer.write(&batch));
        written.map_err(|e| Error::write(self.writer.inner().path(), e))
    }

    /// Writes what is left and gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Write`].
    pub fn finish(mut self) -> Result<FileStamp> {
        if self.slice.len() > 0 {
            self.write_slice()?;
        }
        let hidden_size = KeyValue::new(HIDDEN_SIZE.into(), self.hidden_size.to_string());
        self.writer.append_key_value_metadata(hidden_size);
        checked::finish(self.writer)
    }
}
