//! One embedding part: the embeddings of some consecutive documents of a shard.
//!
//! Owns the column types of embeddings, in the parts and in the export, and the rounding to the
//! stored type. Does not compute anything with them.
//!
//! Invariant: what is read back is, bit for bit, what [`round_to`] made of what was written.

use std::path::Path;
use std::sync::Arc;

pub use self::writer::{EmbeddingRow, EmbeddingWriter};
use super::columns::{self, Documents, OwnedDocuments};
use crate::config::EmbeddingDtype;
use crate::error::{Error, Result};
use crate::io::FileStamp;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type};
use arrow_array::{Array, ArrayRef, Float16Array, Float32Array, ListArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, FieldRef};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use parquet::file::metadata::FileMetaData;

/// Column of the embeddings.
pub(super) const EMBEDDINGS: &str = "embeddings";
/// Name of list elements, as pyarrow writes it.
pub(super) const ELEMENT: &str = "element";
/// Key of the file metadata that holds the hidden size.
const HIDDEN_SIZE: &str = "polysift.hidden_size";
/// Rows decoded at a time.
const READ_ROWS: usize = 4096;

/// The rows of one embedding part, in the order of the input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddingRows {
    /// Row of each document in its shard, from 0.
    pub rows: Vec<u64>,
    /// Id of each document.
    pub ids: Vec<String>,
    /// Language code of each document.
    pub languages: Vec<String>,
    /// UTF-8 bytes of each text.
    pub num_bytes: Vec<u64>,
    /// Content tokens of each text; `None` where they were not counted.
    pub num_tokens: Option<Vec<u64>>,
    /// `[documents + 1]`: document `i` has the chunks `chunk_offsets[i]..chunk_offsets[i + 1]`;
    /// none when it has no text.
    pub chunk_offsets: Vec<usize>,
    /// `[chunks, hidden_size]`, f32.
    pub values: Vec<f32>,
    /// Length of one embedding.
    pub hidden_size: usize,
}

impl EmbeddingRows {
    /// Number of documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Embeddings `[chunks, hidden_size]` of document `i`; empty when it has no text.
    ///
    /// # Panics
    /// When `i` is not below [`EmbeddingRows::len`].
    pub fn chunks(&self, i: usize) -> &[f32] {
        let d = self.hidden_size;
        &self.values[self.chunk_offsets[i] * d..self.chunk_offsets[i + 1] * d]
    }

    /// The document columns, borrowed.
    fn documents(&self) -> Documents<'_> {
        Documents {
            rows: &self.rows,
            ids: &self.ids,
            languages: &self.languages,
            num_bytes: &self.num_bytes,
            num_tokens: self.num_tokens.as_deref(),
        }
    }
}

/// Rounds `values` to what `dtype` can hold, to nearest with ties to even; NaN stays NaN and
/// what is beyond the largest value becomes an infinity. Scores are computed from rounded values,
/// so that they can be reproduced from the stored ones.
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

/// Column type of embeddings: a list per document (null without text) of a list per chunk.
pub(crate) fn embeddings_type(dtype: EmbeddingDtype) -> DataType {
    DataType::List(element(DataType::List(element(value_type(dtype)))))
}

/// The column of embeddings of the documents whose chunks start and end at `chunk_offsets`
/// `[documents + 1]` of `values` `[chunks, hidden_size]`; a document without chunks is null.
/// Values are rounded to `dtype`.
pub(crate) fn embeddings_array(
    chunk_offsets: &[usize],
    values: &[f32],
    hidden_size: usize,
    dtype: EmbeddingDtype,
) -> Result<ArrayRef> {
    let op = "embeddings_array";
    let (Some(&first), Some(&last)) = (chunk_offsets.first(), chunk_offsets.last()) else {
        return Err(Error::shape(op, "chunk_offsets is empty; documents + 1 are needed"));
    };
    let is_sorted = chunk_offsets.is_sorted();
    let Some(used) = (is_sorted.then_some(()))
        .and_then(|()| values.get(first * hidden_size..last * hidden_size))
    else {
        let reason = format!(
            "chunk_offsets {first}..{last} (ascending: {is_sorted}) do not fit {} values of hidden \
             size {hidden_size}",
            values.len()
        );
        return Err(Error::shape(op, reason));
    };
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
    let chunks = ListArray::try_new(element(leaf.data_type().clone()), chunks, leaf, None);
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let documents = chunks.and_then(|chunks| {
        let field = element(chunks.data_type().clone());
        ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), Arc::new(chunks), nulls)
    });
    Ok(Arc::new(documents.map_err(|e| Error::shape(op, e.to_string()))?))
}

/// Writes the part `path`, values rounded to `dtype`, at compression level `zstd`. Columns that
/// do not fit together are an [`Error::Shape`].
pub fn write_embeddings(
    path: &Path,
    rows: &EmbeddingRows,
    dtype: EmbeddingDtype,
    zstd: i32,
) -> Result<FileStamp> {
    let len = rows.documents().checked_len("write_embeddings")?;
    let offsets = &rows.chunk_offsets;
    let num_chunks = offsets.last().copied().unwrap_or_default();
    let is_partition = offsets.first() == Some(&0) && offsets.is_sorted();
    if offsets.len() != len + 1
        || !is_partition
        || rows.values.len() != num_chunks * rows.hidden_size
    {
        let reason = format!(
            "{len} documents, {} chunk offsets up to {num_chunks} (ascending from 0: \
             {is_partition}), {} values of hidden size {}",
            offsets.len(),
            rows.values.len(),
            rows.hidden_size
        );
        return Err(Error::shape("write_embeddings", reason));
    }
    let mut writer = EmbeddingWriter::create(path, dtype, zstd)?;
    for i in 0..len {
        writer.push(&EmbeddingRow {
            row: rows.rows[i],
            id: &rows.ids[i],
            language: &rows.languages[i],
            num_bytes: rows.num_bytes[i],
            num_tokens: rows.num_tokens.as_ref().map(|counts| counts[i]),
            values: rows.chunks(i),
            hidden_size: rows.hidden_size,
        })?;
    }
    writer.finish()
}

/// Reads the part `path`. A file that is not one is an [`Error::Decode`], [`Error::Schema`] or
/// [`Error::Corrupt`].
pub fn read_embeddings(path: &Path) -> Result<EmbeddingRows> {
    let builder = columns::open(path)?;
    let hidden_size = hidden_size(builder.metadata().file_metadata(), path)?;
    let mut documents = OwnedDocuments::default();
    let mut chunk_offsets = vec![0];
    let mut values = Vec::new();
    let names = ["row", "id", "language", "num_bytes", "num_tokens", EMBEDDINGS];
    columns::for_each_batch(builder, path, &names, READ_ROWS, |batch| {
        documents.append(batch, path)?;
        append_values(batch, path, hidden_size, &mut chunk_offsets, &mut values)
    })?;
    Ok(EmbeddingRows {
        rows: documents.rows,
        ids: documents.ids,
        languages: documents.languages,
        num_bytes: documents.num_bytes,
        num_tokens: documents.num_tokens,
        chunk_offsets,
        values,
        hidden_size,
    })
}

/// The hidden size that the footer of the part `path` tells.
pub(super) fn hidden_size(footer: &FileMetaData, path: &Path) -> Result<usize> {
    (footer.key_value_metadata().into_iter().flatten())
        .find(|pair| pair.key == HIDDEN_SIZE)
        .and_then(|pair| pair.value.as_ref()?.parse().ok())
        .ok_or_else(|| Error::corrupt(path, format!("has no `{HIDDEN_SIZE}` in its metadata")))
}

/// Appends the embeddings of `batch` to `chunk_offsets` and `values`.
fn append_values(
    batch: &RecordBatch,
    path: &Path,
    hidden_size: usize,
    chunk_offsets: &mut Vec<usize>,
    values: &mut Vec<f32>,
) -> Result<()> {
    let documents = columns::column(batch, EMBEDDINGS, path)?;
    let wrong_type = || {
        let reason = format!("is of type {}, not a list of lists of floats", documents.data_type());
        Error::schema(path, EMBEDDINGS, reason)
    };
    let documents = documents.as_list_opt::<i32>().ok_or_else(wrong_type)?;
    let chunks = documents.values().as_list_opt::<i32>().ok_or_else(wrong_type)?;
    let start = documents.value_offsets()[0] as usize;
    let end = documents.value_offsets()[documents.len()] as usize;
    let chunks = chunks.slice(start, end - start);
    let offsets = chunks.value_offsets();
    let leaf_range = offsets[0] as usize..offsets[chunks.len()] as usize;
    let leaf = chunks.values().slice(leaf_range.start, leaf_range.len());
    if chunks.null_count() > 0 || leaf.null_count() > 0 {
        return Err(Error::schema(path, EMBEDDINGS, "has nulls inside a document"));
    }
    if offsets.windows(2).any(|w| (w[1] - w[0]) as usize != hidden_size) {
        let reason = format!("has an embedding whose length is not {hidden_size}");
        return Err(Error::corrupt(path, reason));
    }
    if let Some(floats) = leaf.as_primitive_opt::<Float32Type>() {
        values.extend_from_slice(floats.values());
    } else if let Some(halves) = leaf.as_primitive_opt::<Float16Type>() {
        let filled = values.len();
        values.resize(filled + halves.len(), 0.0);
        halves.values().as_ref().convert_to_f32_slice(&mut values[filled..]);
    } else {
        return Err(wrong_type());
    }
    let mut total = chunk_offsets.last().copied().unwrap_or_default();
    for i in 0..documents.len() {
        total += documents.value_length(i) as usize;
        chunk_offsets.push(total);
    }
    Ok(())
}

fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new(ELEMENT, data_type, true))
}

fn value_type(dtype: EmbeddingDtype) -> DataType {
    match dtype {
        EmbeddingDtype::F16 => DataType::Float16,
        EmbeddingDtype::F32 | EmbeddingDtype::Bf16InF32 => DataType::Float32,
    }
}

mod writer;

#[cfg(test)]
mod tests;
