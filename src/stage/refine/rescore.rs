//! The documents of a shard once more: their texts from the input, embedded in f32, scored.

use super::{Job, TOKENS};
use crate::encoder;
use crate::error::{Error, Result};
use crate::input::{Document, DocumentReader};
use crate::run::{PartFile, Shard, ShardMarker};
use crate::stage::score::score_part;
use crate::store::{EmbeddingRows, ScoreRows, round_to, write_scores};

/// Documents whose texts, tokens and embeddings are in memory at once.
const BLOCK_DOCUMENTS: usize = 2048;
/// Rows of the input that are read at once.
const READ_ROWS: usize = 1024;

impl Job<'_> {
    /// Scores `documents` of `shard` in f32 with every head and writes them as that of `round`.
    pub(super) fn rescore(
        &self,
        round: usize,
        shard: &Shard,
        documents: &ScoreRows,
    ) -> Result<ShardMarker> {
        let run = self.context.run;
        let mut texts = Texts::open(self, shard)?;
        let mut tokens = 0;
        let mut scored = vec![ScoreRows::default(); self.names.len()];
        let ends = (0..documents.rows.len()).step_by(BLOCK_DOCUMENTS);
        for block in ends.map(|at| at..documents.rows.len().min(at + BLOCK_DOCUMENTS)) {
            let texts = texts.of(&documents.rows[block.clone()])?;
            let embedded = self.embed(documents, block, &texts, &mut tokens)?;
            for (name, all) in self.names.iter().zip(&mut scored) {
                append(all, score_part(self.heads, name, embedded.clone())?);
            }
        }
        let mut marker = ShardMarker { rows: documents.rows.len() as u64, ..Default::default() };
        marker.counts = [("refined".to_owned(), marker.rows), (TOKENS.to_owned(), tokens)].into();
        for (name, rows) in self.names.iter().zip(&scored) {
            let path = run.round_part(round, name, shard);
            let stamp = write_scores(&path, rows, self.context.config.store.zstd)?;
            marker.files.push(PartFile { path: run.relative(&path), rows: marker.rows, stamp });
        }
        Ok(marker)
    }

    /// Embeds `texts`, those of the documents `block`, as the embed stage would in f32.
    fn embed(
        &self,
        documents: &ScoreRows,
        block: std::ops::Range<usize>,
        texts: &[String],
        tokens: &mut u64,
    ) -> Result<EmbeddingRows> {
        let config = self.context.config;
        let model = self.model()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let tokenized = model.tokenizer.chunks_all(&texts)?;
        let chunks: Vec<&[u32]> = tokenized.iter().flatten().map(Vec::as_slice).collect();
        let mut chunk_offsets = vec![0];
        for document in &tokenized {
            chunk_offsets.push(chunk_offsets[chunk_offsets.len() - 1] + document.len());
        }
        let encoder = model.encoder.as_ref();
        let batch_tokens = encoder::batch_tokens(&config.encoder, encoder);
        let mut in_block = 0;
        let mut values = encoder::embed_chunks(encoder, &chunks, batch_tokens, &mut |_, batch| {
            in_block += batch as u64;
            self.context.progress.advance(0, batch as u64);
            self.context.stop.check()
        })?;
        *tokens += in_block;
        self.context.progress.advance(block.len() as u64, 0);
        round_to(&mut values, config.store.embeddings);
        Ok(EmbeddingRows {
            rows: documents.rows[block.clone()].to_vec(),
            ids: documents.ids[block.clone()].to_vec(),
            languages: documents.languages[block.clone()].to_vec(),
            num_bytes: documents.num_bytes[block.clone()].to_vec(),
            num_tokens: documents.num_tokens[block].to_vec(),
            hidden_size: encoder.info().hidden_size,
            values,
            chunk_offsets,
        })
    }
}

fn append(all: &mut ScoreRows, more: ScoreRows) {
    all.rows.extend(more.rows);
    all.ids.extend(more.ids);
    all.languages.extend(more.languages);
    all.num_bytes.extend(more.num_bytes);
    all.num_tokens.extend(more.num_tokens);
    all.logits.extend(more.logits);
    all.scores.extend(more.scores);
}

/// Reads texts of a file by row, forwards.
struct Texts<'a> {
    shard: &'a Shard,
    reader: DocumentReader,
    block: std::vec::IntoIter<Document>,
    /// The first row that was not read yet.
    next_row: u64,
}

impl<'a> Texts<'a> {
    fn open(job: &Job<'_>, shard: &'a Shard) -> Result<Self> {
        let reader = DocumentReader::open(&shard.input()?, &job.context.config.input)?;
        Ok(Self { shard, reader, block: Vec::new().into_iter(), next_row: 0 })
    }

    /// The texts of `rows`, which ascend from call to call.
    fn of(&mut self, rows: &[u64]) -> Result<Vec<String>> {
        rows.iter().map(|&row| self.text(row)).collect()
    }

    fn text(&mut self, row: u64) -> Result<String> {
        let lost = || Error::verify(&self.shard.file, format!("row {row} has no text any more"));
        loop {
            match self.block.by_ref().find(|document| document.row >= row) {
                Some(document) if document.row == row => return document.text.ok_or_else(lost),
                Some(_) => return Err(lost()),
                // What lies in between is not decoded where the format allows it.
                None if row >= self.next_row + READ_ROWS as u64 => {
                    self.reader.skip_rows(row)?;
                    self.next_row = row;
                }
                None => {}
            }
            let block = self.reader.next_block(READ_ROWS)?.ok_or_else(lost)?;
            self.next_row = block.last().map_or(row, |last| last.row) + 1;
            self.block = block.into_iter();
        }
    }
}
