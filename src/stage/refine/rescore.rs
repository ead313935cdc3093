//! The documents of a shard once more: their texts from the input, embedded in f32, scored.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Job, TOKENS};
use crate::encoder;
use crate::error::{Error, Result};
use crate::head::DocumentScore;
use crate::input::{Document, DocumentReader};
use crate::run::{PartFile, Shard, ShardMarker};
use crate::store::{ScoreRows, round_to, write_scores};

/// Documents whose texts, tokens and embeddings are in memory at once.
const BLOCK_DOCUMENTS: usize = 2048;
/// Rows of the input that are read at once.
const READ_ROWS: usize = 1024;

/// The chunks of some documents.
struct Embedded {
    hidden_size: usize,
    /// `[num_chunks, hidden_size]`.
    values: Vec<f32>,
    /// The chunks of each document.
    chunks: Vec<Range<usize>>,
}

impl Job<'_> {
    /// Scores `documents` of `shard` in f32 with every head and writes them as that of `round`.
    pub(super) fn rescore(
        &self,
        round: usize,
        shard: &Shard,
        mut documents: ScoreRows,
    ) -> Result<ShardMarker> {
        let run = self.context.run;
        let num_rows = documents.rows.len();
        let mut texts = Texts::open(self, shard)?;
        let mut tokens = 0;
        let mut scored: Vec<Vec<Option<DocumentScore>>> = vec![Vec::new(); self.names.len()];
        let starts = (0..num_rows).step_by(BLOCK_DOCUMENTS);
        for block in starts.map(|start| start..num_rows.min(start + BLOCK_DOCUMENTS)) {
            let embedded = self.embed(&texts.of(&documents.rows[block.clone()])?, &mut tokens)?;
            for (name, all) in self.names.iter().zip(&mut scored) {
                all.extend(self.score(name, &documents.languages[block.clone()], &embedded)?);
            }
            self.context.progress.advance(block.len() as u64, 0);
        }
        let mut marker = ShardMarker { rows: num_rows as u64, ..ShardMarker::default() };
        marker.counts = [("refined".to_owned(), marker.rows), (TOKENS.to_owned(), tokens)].into();
        for (name, scores) in self.names.iter().zip(&scored) {
            documents.logits = scores.iter().map(|s| s.map(|s| s.logit)).collect();
            documents.scores = scores.iter().map(|s| s.map(|s| s.score)).collect();
            let path = run.round_part(round, name, shard);
            let stamp = write_scores(&path, &documents, self.context.config.store.zstd)?;
            marker.files.push(PartFile { path: run.relative(&path), rows: marker.rows, stamp });
        }
        Ok(marker)
    }

    /// Embeds `texts` as the embed stage would in f32; adds what it encoded to `tokens`.
    fn embed(&self, texts: &[String], tokens: &mut u64) -> Result<Embedded> {
        let config = self.context.config;
        let model = self.model()?;
        let encoder = model.encoder.as_ref();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let tokenized = model.tokenizer.chunks_all(&texts)?;
        let ids: Vec<&[u32]> = tokenized.iter().flatten().map(Vec::as_slice).collect();
        let batch_tokens = encoder::batch_tokens(&config.encoder, encoder);
        let mut values = encoder::embed_chunks(encoder, &ids, batch_tokens, &mut |_, batch| {
            *tokens += batch as u64;
            self.context.progress.advance(0, batch as u64);
            self.context.stop.check()
        })?;
        round_to(&mut values, config.store.embeddings);
        let chunks = tokenized.iter().scan(0, |next, document| {
            let start = *next;
            *next += document.len();
            Some(start..*next)
        });
        Ok(Embedded { hidden_size: encoder.info().hidden_size, values, chunks: chunks.collect() })
    }

    /// Scores documents in `languages` with the heads `name`.
    fn score(
        &self,
        name: &str,
        languages: &[String],
        embedded: &Embedded,
    ) -> Result<Vec<Option<DocumentScore>>> {
        let mut by_language: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (document, language) in languages.iter().enumerate() {
            by_language.entry(language).or_default().push(document);
        }
        let mut scores = vec![None; languages.len()];
        for (language, documents) in by_language {
            let Some(head) = self.heads.get(name, language) else { continue };
            let (mut values, mut offsets) = (Vec::new(), vec![0]);
            for chunks in documents.iter().map(|&document| &embedded.chunks[document]) {
                let width = embedded.hidden_size;
                values
                    .extend_from_slice(&embedded.values[chunks.start * width..chunks.end * width]);
                offsets.push(values.len() / width);
            }
            for (document, score) in documents.into_iter().zip(head.score(&values, &offsets)?) {
                scores[document] = score;
            }
        }
        Ok(scores)
    }
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
