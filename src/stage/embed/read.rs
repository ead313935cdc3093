//! The reading thread: documents of the shards, tokenized, in parts.

use crossbeam_channel::Sender;

use super::Work;
use crate::config::{LANGUAGE_CODE, is_language_code};
use crate::error::{Error, Result};
use crate::input::{Document, DocumentReader, Reject};
use crate::run::Shard;
use crate::stage::Context;
use crate::tokenize::Tokenizer;

/// Documents whose texts are in memory at once; their tokens are kept, the texts are not.
const BLOCK_ROWS: usize = 1024;
/// Above this many files their footers are not opened just to show a total.
const MAX_FILES_FOR_TOTAL: usize = 2_000;

/// What is embedded of a document.
pub(super) enum Content {
    /// Null, empty or blank text.
    Nothing,
    /// `input_ids` of its chunks.
    Chunks(Vec<Vec<u32>>),
    /// Embeddings that the input brought along, one per chunk.
    Embeddings(Vec<Vec<f32>>),
}

/// A document without its text.
pub(super) struct PartDocument {
    pub(super) row: u64,
    pub(super) id: String,
    pub(super) language: String,
    /// 0 for a document without text, whatever white space it holds.
    pub(super) num_bytes: u64,
    pub(super) num_tokens: u64,
    pub(super) content: Content,
}

/// `store.part_rows` consecutive documents of a shard.
pub(super) struct PartInput {
    pub(super) shard: usize,
    pub(super) index: usize,
    pub(super) documents: Vec<PartDocument>,
    pub(super) next_row: u64,
    pub(super) rejects: Vec<Reject>,
    /// Encoded tokens; set by the encoding thread.
    pub(super) tokens: u64,
}

pub(super) struct Reading<'a> {
    pub(super) context: Context<'a>,
    pub(super) todo: &'a [&'a Shard],
    pub(super) tokenizer: Option<&'a Tokenizer>,
}

/// The other side hung up: the stage is ending for a reason that it knows.
struct HungUp;

impl Reading<'_> {
    pub(super) fn run(&self, to_encode: &Sender<Work>) {
        for shard in 0..self.todo.len() {
            let last = match self.read_shard(shard, to_encode) {
                Ok(Ok(())) => Work::End { shard },
                Ok(Err(HungUp)) => return,
                Err(error) => Work::Failed { shard, error },
            };
            if to_encode.send(last).is_err() {
                return;
            }
        }
    }

    fn read_shard(&self, shard: usize, to_encode: &Sender<Work>) -> Result<Result<(), HungUp>> {
        let planned = self.todo[shard];
        let done = self.context.run.part_markers(planned)?;
        let mut reader = DocumentReader::open(&planned.input()?, &self.context.config.input)?;
        let mut first_row = done.last().map_or(0, |part| part.next_row);
        reader.skip_rows(first_row)?;
        let mut rejects_seen = 0;
        for index in done.len().. {
            let mut documents = Vec::new();
            let ended = self.read_part(planned, &mut reader, &mut documents)?;
            // Rows before the part were set aside with the parts that are done.
            let new = reader.rejects()[rejects_seen..].iter().filter(|r| r.row >= first_row);
            let rejects: Vec<Reject> = new.cloned().collect();
            rejects_seen = reader.rejects().len();
            let last_row = documents.last().map(|d: &PartDocument| d.row);
            let next_row = last_row.max(rejects.last().map(|r| r.row)).map_or(first_row, |r| r + 1);
            // A shard always has a first part, so that an empty file leaves its trace too.
            if !documents.is_empty() || !rejects.is_empty() || index == 0 {
                let part = PartInput { shard, index, documents, next_row, rejects, tokens: 0 };
                if to_encode.send(Work::Part(Box::new(part))).is_err() {
                    return Ok(Err(HungUp));
                }
            }
            first_row = next_row;
            if ended {
                break;
            }
        }
        Ok(Ok(()))
    }

    /// Fills `documents` up to the size of a part; `true` at the end of the file.
    fn read_part(
        &self,
        shard: &Shard,
        reader: &mut DocumentReader,
        documents: &mut Vec<PartDocument>,
    ) -> Result<bool> {
        let part_rows = self.context.config.store.part_rows;
        while documents.len() < part_rows {
            self.context.stop.check()?;
            let wanted = BLOCK_ROWS.min(part_rows - documents.len());
            let Some(block) = reader.next_block(wanted)? else {
                return Ok(true);
            };
            self.tokenize_block(shard, block, documents)?;
        }
        Ok(false)
    }

    fn tokenize_block(
        &self,
        shard: &Shard,
        block: Vec<Document>,
        out: &mut Vec<PartDocument>,
    ) -> Result<()> {
        let texts: Vec<&str> = match self.tokenizer {
            Some(_) => block.iter().filter_map(|d| d.text.as_deref()).collect(),
            None => Vec::new(),
        };
        let tokenized = match self.tokenizer {
            Some(tokenizer) => tokenizer.tokenize_all(&texts)?,
            None => Vec::new(),
        };
        let mut tokenized = tokenized.into_iter();
        for document in block {
            check_language(shard, &document)?;
            let (content, num_tokens) = match (self.tokenizer, document.text, document.embeddings) {
                (Some(_), Some(_), _) => tokenized.next().map_or_else(
                    || Err(Error::shape("tokenize", "fewer results than texts")),
                    |t| Ok((Content::Chunks(t.chunks), t.num_tokens)),
                )?,
                (None, Some(_), Some(vectors)) => (Content::Embeddings(vectors), 0),
                _ => (Content::Nothing, 0),
            };
            let blank = matches!(content, Content::Nothing);
            out.push(PartDocument {
                row: document.row,
                id: document.id,
                language: document.language,
                num_bytes: if blank { 0 } else { document.num_bytes },
                num_tokens,
                content,
            });
        }
        Ok(())
    }
}

/// A language becomes part of file names.
fn check_language(shard: &Shard, document: &Document) -> Result<()> {
    if is_language_code(&document.language) {
        return Ok(());
    }
    Err(Error::Row {
        path: shard.file.clone(),
        row: document.row + 1,
        reason: format!("language `{}` is not {LANGUAGE_CODE}", document.language),
        count: 1,
    })
}

/// Documents still to be embedded, where the files say how many rows they hold.
pub(super) fn expected_rows(context: Context<'_>, todo: &[&Shard]) -> Option<u64> {
    if todo.len() > MAX_FILES_FOR_TOTAL {
        return None;
    }
    let rows = |shard: &&Shard| {
        let reader = DocumentReader::open(&shard.input().ok()?, &context.config.input).ok()?;
        let done = context.run.part_markers(shard).ok()?;
        Some(reader.num_rows_hint()?.saturating_sub(done.last().map_or(0, |p| p.next_row)))
    };
    todo.iter().map(rows).sum()
}
