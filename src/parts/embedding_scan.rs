//! The embeddings of a part some documents at a time, straight from the pages: nothing is held whole,
//! and the lists of lists are looked at run by run, not value by value.

use std::path::Path;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_select::concat::concat_batches;
use parquet::arrow::ProjectionMask;
use polysift_kernels::Isa;

use super::columns::{self, PARQUET};
use super::embeddings::{ELEMENT, EMBEDDINGS, hidden_size};
use super::pages::{FloatPage, FloatPages, OpenPart};
use crate::error::{Error, Result};

/// Levels of a list of lists that may all be null: where a value repeats in its chunk, and where it
/// begins the next chunk of its document.
const SAME_CHUNK: u8 = 2;
const NEXT_CHUNK: u8 = 1;
/// Highest definition level of a document without chunks: its list is empty.
const NO_CHUNK: u8 = 1;
/// Definition level of a chunk without values.
const EMPTY_CHUNK: u8 = 3;

/// The columns of a part that say which documents its rows are, as they are stored.
#[derive(Debug)]
pub(crate) struct DocumentColumns {
    batch: RecordBatch,
}

impl DocumentColumns {
    /// Number of documents.
    pub(crate) fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// Language code of each document of the part `path`.
    pub(crate) fn languages(&self, path: &Path) -> Result<Vec<&str>> {
        Ok(columns::texts(&self.batch, "language", path)?.iter().flatten().collect())
    }

    /// Column `name` of numbers, of the part `path`.
    pub(crate) fn numbers(&self, name: &str, path: &Path) -> Result<&[u64]> {
        columns::numbers(&self.batch, name, path)
    }

    /// The columns in the order of a part.
    pub(super) fn arrays(&self, path: &Path) -> Result<Vec<ArrayRef>> {
        let fields = columns::document_fields();
        fields.iter().map(|f| columns::column(&self.batch, f.name(), path).cloned()).collect()
    }
}

/// The embeddings of some consecutive documents.
#[derive(Debug, Default)]
pub(crate) struct EmbeddingBlock {
    /// `[documents + 1]`, from 0; see [`super::EmbeddingRows::chunk_offsets`].
    pub(crate) chunk_offsets: Vec<usize>,
    /// `[chunks, hidden_size]`, f32.
    pub(crate) values: Vec<f32>,
}

/// A part whose embeddings are read in order.
pub(crate) struct EmbeddingScan {
    part: OpenPart,
    pages: FloatPages,
    page: Option<(FloatPage, usize)>,
    hidden_size: usize,
}

impl EmbeddingScan {
    /// Opens the part `path`. A file that is not one is an [`Error::Decode`], [`Error::Schema`] or
    /// [`Error::Corrupt`].
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let part = OpenPart::open(path)?;
        let hidden_size = hidden_size(part.footer.file_metadata(), path)?;
        let pages = part.floats(&[EMBEDDINGS, "list", ELEMENT, "list", ELEMENT].join("."))?;
        if pages.max_repetition() != SAME_CHUNK {
            return Err(Error::schema(path, EMBEDDINGS, "is not a list of lists of floats"));
        }
        Ok(Self { part, pages, page: None, hidden_size })
    }

    /// Length of one embedding.
    pub(crate) fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Which documents there are.
    pub(crate) fn documents(&self) -> Result<DocumentColumns> {
        let path = &self.part.path;
        let decode = |e: Box<dyn std::error::Error + Send + Sync>| Error::decode(path, PARQUET, e);
        let builder = self.part.columns()?;
        let fields = columns::document_fields();
        let names = fields.iter().map(|field| field.name().as_str());
        let mask = ProjectionMask::columns(builder.parquet_schema(), names);
        let rows = self.part.num_rows().max(1);
        let reader = builder.with_projection(mask).with_batch_size(rows).build();
        let reader = reader.map_err(|e| decode(e.into()))?;
        let schema = arrow_array::RecordBatchReader::schema(&reader);
        let batches: Vec<RecordBatch> =
            reader.collect::<Result<_, _>>().map_err(|e| decode(e.into()))?;
        let batch = concat_batches(&schema, &batches).map_err(|e| decode(e.into()))?;
        Ok(DocumentColumns { batch })
    }

    /// Replaces `block` by the next `limit` documents, fewer at the end and none after it.
    pub(crate) fn next(&mut self, limit: usize, block: &mut EmbeddingBlock) -> Result<()> {
        block.values.clear();
        block.chunk_offsets.clear();
        block.chunk_offsets.push(0);
        while block.chunk_offsets.len() <= limit {
            let is_done = self.page.as_ref().is_none_or(|(page, _)| page.repetitions.left() == 0);
            if is_done {
                let Some(page) = self.pages.next()? else { break };
                self.page = Some((page, 0));
            }
            let Some((page, taken)) = &mut self.page else { break };
            let taken_now =
                take_documents(page, self.pages.max_definition(), self.hidden_size, limit, block);
            let read = taken_now.and_then(|start| {
                let out = &mut block.values[start..];
                page.values.read(Isa::detect(), *taken, out).ok_or(Broken::Levels)?;
                *taken += out.len();
                Ok(())
            });
            read.map_err(|broken| self.error(&broken))?;
        }
        Ok(())
    }

    fn error(&self, broken: &Broken) -> Error {
        let path = &self.part.path;
        match broken {
            Broken::Levels => self.pages.damaged("a page ends within its values"),
            Broken::Null => Error::schema(path, EMBEDDINGS, "has nulls inside a document"),
            Broken::Length => {
                let reason = format!("has an embedding whose length is not {}", self.hidden_size);
                Error::corrupt(path, reason)
            }
        }
    }
}

/// What is wrong with the lists of a page.
#[derive(Debug, PartialEq, Eq)]
enum Broken {
    /// Levels that end too early, or without values.
    Levels,
    /// A null below a document.
    Null,
    /// An embedding of another length.
    Length,
}

/// Takes the levels of documents until `block` has `limit` of them or the page ends (which is never
/// within a document), and makes room for their values. Returns where that begins.
fn take_documents(
    page: &mut FloatPage,
    max_definition: u8,
    hidden_size: usize,
    limit: usize,
    block: &mut EmbeddingBlock,
) -> Result<usize, Broken> {
    let start = block.values.len();
    let mut chunks = block.chunk_offsets.last().copied().unwrap_or_default();
    let first = chunks;
    let mut num_values = 0;
    let mut in_document = false;
    while let Some(repetition) = page.repetitions.peek() {
        let begins = repetition < SAME_CHUNK;
        if begins && num_values != (chunks - first) * hidden_size {
            return Err(Broken::Length);
        }
        if repetition < NEXT_CHUNK {
            if in_document {
                block.chunk_offsets.push(chunks);
            }
            in_document = block.chunk_offsets.len() <= limit;
            if !in_document {
                break;
            }
        }
        // With each level below the highest something begins.
        let most = if begins { 1 } else { usize::MAX };
        let (_, mut left) = page.repetitions.next_run(most).ok_or(Broken::Levels)?;
        while left > 0 {
            let (definition, length) = page.definitions.next_run(left).ok_or(Broken::Levels)?;
            left -= length;
            if definition == max_definition {
                num_values += length;
                chunks += usize::from(begins);
            } else if repetition >= NEXT_CHUNK || definition > NO_CHUNK {
                let is_empty_chunk = definition == EMPTY_CHUNK;
                return Err(if is_empty_chunk { Broken::Length } else { Broken::Null });
            }
        }
    }
    if page.repetitions.left() > 0 && in_document {
        return Err(Broken::Levels);
    }
    if in_document {
        block.chunk_offsets.push(chunks);
    }
    if num_values != (chunks - first) * hidden_size {
        return Err(Broken::Length);
    }
    block.values.resize(start + num_values, 0.0);
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EmbeddingDtype;
    use crate::parts::{EmbeddingRows, read_embeddings, write_embeddings};

    /// Documents with `chunks` chunks each, of `hidden_size` values.
    fn rows(chunks: &[usize], hidden_size: usize) -> EmbeddingRows {
        let mut rows = EmbeddingRows { hidden_size, chunk_offsets: vec![0], ..Default::default() };
        for (i, &count) in chunks.iter().enumerate() {
            rows.rows.push(i as u64);
            rows.ids.push(format!("<{i}>"));
            rows.languages.push(["deu_Latn", "und"][i % 2].into());
            rows.num_bytes.push(count as u64);
            rows.num_tokens.get_or_insert_default().push(count as u64);
            rows.chunk_offsets.push(rows.chunk_offsets[i] + count);
        }
        let values = 0..rows.chunk_offsets[chunks.len()] * hidden_size;
        rows.values =
            values.map(|i| (i as f32).sin() * 2f32.powf(i as f32 % 40.0 - 20.0)).collect();
        rows
    }

    /// All blocks of a part, at most `limit` documents each.
    fn scanned(path: &Path, limit: usize) -> Result<(Vec<usize>, Vec<f32>)> {
        let mut scan = EmbeddingScan::open(path)?;
        let (mut offsets, mut values) = (vec![0], Vec::new());
        let mut block = EmbeddingBlock::default();
        loop {
            scan.next(limit, &mut block)?;
            if block.chunk_offsets.len() == 1 {
                return Ok((offsets, values));
            }
            assert!(block.chunk_offsets.len() <= limit + 1);
            let before = offsets.last().copied().unwrap_or_default();
            offsets.extend(block.chunk_offsets[1..].iter().map(|offset| before + offset));
            values.extend_from_slice(&block.values);
        }
    }

    #[test]
    fn blocks_hold_what_is_read_whole() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        // With 300 values 3,000 documents are several pages; 25,001 are two row groups.
        for (count, hidden_size) in [(0, 3), (1, 1), (5, 1), (3000, 300), (25_001, 2)] {
            let chunks: Vec<usize> = (0..count).map(|i| [1, 1, 0, 3, 1, 0][i * i % 6]).collect();
            let rows = rows(&chunks, hidden_size);
            for dtype in [EmbeddingDtype::F32, EmbeddingDtype::F16] {
                write_embeddings(&path, &rows, dtype, 1)?;
                let whole = read_embeddings(&path)?;
                for limit in [1000, 126, 7] {
                    let (offsets, values) = scanned(&path, limit)?;
                    assert_eq!(offsets, whole.chunk_offsets);
                    assert!(
                        values == whole.values,
                        "{count} documents of {hidden_size}, {dtype:?}"
                    );
                }
            }
        }
        Ok(())
    }

    #[test]
    fn documents_come_with_their_languages() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        write_embeddings(&path, &rows(&[1, 0, 2], 2), EmbeddingDtype::F32, 1)?;
        let documents = EmbeddingScan::open(&path)?.documents()?;
        assert_eq!(documents.len(), 3);
        assert_eq!(documents.languages(&path)?, ["deu_Latn", "und", "deu_Latn"]);
        Ok(())
    }

    #[test]
    fn a_part_of_another_width_than_it_says_is_an_error() -> Result<(), Box<dyn std::error::Error>>
    {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        write_embeddings(&path, &rows(&[1, 2], 4), EmbeddingDtype::F32, 1)?;
        for hidden_size in [1, 2, 3, 5, 12] {
            let mut scan = EmbeddingScan::open(&path)?;
            scan.hidden_size = hidden_size;
            let result = scan.next(10, &mut EmbeddingBlock::default());
            assert!(matches!(result, Err(Error::Corrupt { .. })), "{hidden_size}");
        }
        Ok(())
    }

    #[test]
    fn a_truncated_part_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        write_embeddings(&path, &rows(&[1; 100], 16), EmbeddingDtype::F32, 1)?;
        let bytes = std::fs::read(&path)?;
        for len in [0, 7, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..len])?;
            assert!(EmbeddingScan::open(&path).is_err(), "{len} bytes");
        }
        Ok(())
    }
}
