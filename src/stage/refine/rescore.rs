//! The documents of a shard once more: their texts from the input, embedded in f32, scored.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Job, TOKENS};
use crate::encoder;
use crate::error::{Error, Result};
use crate::head::{AnyHead, DocumentScore};
use crate::parts::{ScoreRows, round_to, write_scores};
use crate::run::{PartFile, Shard, ShardMarker};
use crate::stage::texts::Texts;

/// Documents whose texts, tokens and embeddings are in memory at once.
const BLOCK_DOCUMENTS: usize = 2048;

/// Some documents.
#[derive(Default)]
struct Embedded {
    texts: Vec<String>,
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
        let mut texts = Texts::open(self.context, shard)?;
        let mut tokens = 0;
        let mut scored: Vec<Vec<Option<DocumentScore>>> = vec![Vec::new(); self.names.len()];
        let starts = (0..num_rows).step_by(BLOCK_DOCUMENTS);
        for block in starts.map(|start| start..num_rows.min(start + BLOCK_DOCUMENTS)) {
            let texts = read(&mut texts, shard, &documents, block.clone())?;
            let embedded = self.embed(texts, &mut tokens)?;
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
            let stamp = write_scores(&path, &documents, self.context.config.parts.zstd)?;
            marker.files.push(PartFile { path: run.relative(&path), rows: marker.rows, stamp });
        }
        Ok(marker)
    }

    /// Embeds `texts` as the embed stage would in f32, if any head needs that; adds what it encoded to
    /// `tokens`.
    fn embed(&self, texts: Vec<String>, tokens: &mut u64) -> Result<Embedded> {
        if self.names.iter().all(|name| self.heads.is_text(name)) {
            return Ok(Embedded { texts, ..Embedded::default() });
        }
        let config = self.context.config;
        let model = self.model()?;
        let encoder = model.encoder.as_ref();
        let views: Vec<&str> = texts.iter().map(String::as_str).collect();
        let tokenized = model.tokenizer.chunks_all(&views)?;
        let ids: Vec<&[u32]> = tokenized.iter().flatten().map(Vec::as_slice).collect();
        let batch_tokens = encoder::batch_tokens(&config.encoder, encoder);
        let stop = self.context.stop;
        let mut values =
            encoder::embed_chunks(encoder, &ids, batch_tokens, stop, &mut |_, batch| {
                *tokens += batch as u64;
                self.context.progress.advance(0, batch as u64);
            })?;
        round_to(&mut values, config.parts.embeddings);
        let chunks = tokenized.iter().scan(0, |next, document| {
            let start = *next;
            *next += document.len();
            Some(start..*next)
        });
        let (hidden_size, chunks) = (encoder.info().hidden_size, chunks.collect());
        Ok(Embedded { texts, hidden_size, values, chunks })
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
            let scored = match self.heads.get(name, language) {
                None => continue,
                Some(AnyHead::Embedding(head)) => {
                    let (values, offsets) = embedded.chunks_of(&documents);
                    head.score(&values, &offsets)?
                }
                Some(AnyHead::Text(head)) => {
                    let texts = documents.iter().map(|&at| Some(&embedded.texts[at]));
                    head.score(&texts.collect::<Vec<_>>())
                }
            };
            for (document, score) in documents.into_iter().zip(scored) {
                scores[document] = score;
            }
        }
        Ok(scores)
    }
}

impl Embedded {
    /// The chunks of `documents`, and where those of each begin.
    fn chunks_of(&self, documents: &[usize]) -> (Vec<f32>, Vec<usize>) {
        let width = self.hidden_size;
        let (mut values, mut offsets) = (Vec::new(), vec![0]);
        for chunks in documents.iter().map(|&document| &self.chunks[document]) {
            values.extend_from_slice(&self.values[chunks.start * width..chunks.end * width]);
            offsets.push(values.len() / width);
        }
        (values, offsets)
    }
}

/// The texts of some of the `documents` of `shard`, all of which have one.
fn read(
    texts: &mut Texts<'_>,
    shard: &Shard,
    documents: &ScoreRows,
    block: Range<usize>,
) -> Result<Vec<String>> {
    let text = |at: usize| {
        let row = documents.rows[at];
        let lost = || Error::corrupt(&shard.file, format!("row {row} has no text"));
        texts.text(row, documents.num_bytes[at])?.ok_or_else(lost)
    };
    block.map(text).collect()
}
