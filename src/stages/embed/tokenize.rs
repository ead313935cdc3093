//! The tokenizing thread: turns texts into chunks of token ids and drops the texts.

use rayon::prelude::*;

use super::pipeline::Pipeline;
use super::queue::{ChunkBatch, Receiver, Sender, Step, TextBatch};
use polysift_base::error::{Error, Result};
use polysift_data::input::{DocumentBatch, UNDETERMINED_LANGUAGE};
use polysift_heads::fasttext::TextScratch;
use polysift_tokenizer::{Tokenized, Tokenizer};

/// Texts that a pool thread tokenizes at a time.
const TASK_TEXTS: usize = 32;

impl Pipeline<'_> {
    pub(super) fn tokenize(
        &self,
        from_read: &Receiver<Step<TextBatch>>,
        to_encode: &Sender<Step<ChunkBatch>>,
    ) {
        let mut failed = None;
        while let Some(step) = from_read.recv() {
            let step = match step {
                Step::Batch(mut texts) if failed != Some(texts.shard) => {
                    let shard = Some(texts.shard);
                    self.identify_languages(&mut texts.documents);
                    let batch = match self.model {
                        Some(model) => self.chunks(texts, &model.tokenizer),
                        None => Ok(self.embedded(texts)),
                    };
                    batch.map_or_else(|error| Step::Failed { shard, error }, Step::Batch)
                }
                Step::PartEnd(end) if failed != Some(end.shard) => Step::PartEnd(end),
                Step::ShardEnd { shard } if failed != Some(shard) => Step::ShardEnd { shard },
                Step::Failed { shard, error } if shard.is_none() || failed != shard => {
                    Step::Failed { shard, error }
                }
                _ => continue, // the shard has failed
            };
            if let Step::Failed { shard, .. } = &step {
                failed = *shard;
            }
            if to_encode.send_step(step).is_err() {
                return;
            }
        }
    }

    /// Sets the languages of `documents`, if the settings name a classifier.
    fn identify_languages(&self, documents: &mut DocumentBatch) {
        let Some(languages) = &self.languages else { return };
        let identify = |scratch: &mut TextScratch, i| {
            let text = documents.text(i);
            text.map_or(UNDETERMINED_LANGUAGE, |text| languages.identify(text, scratch))
        };
        let _busy = self.tokenizing.work();
        let all = (0..documents.len()).into_par_iter().with_min_len(TASK_TEXTS);
        let codes = all.map_init(TextScratch::default, identify).collect();
        documents.set_languages(codes);
    }

    fn chunks(&self, texts: TextBatch, tokenizer: &Tokenizer) -> Result<ChunkBatch> {
        let mut batch = ChunkBatch::new(&texts);
        let documents = &texts.documents;
        let is_dropped = |i: usize| texts.left_out.dropped.contains(documents.rows()[i]);
        let present: Vec<(bool, &str)> =
            documents.texts().map(|(i, text)| (is_dropped(i), text)).collect();
        batch.dropped = present.iter().filter(|(is_dropped, _)| *is_dropped).count() as u64;
        let tasks = present.par_chunks(TASK_TEXTS).map(|texts| {
            let _busy = self.tokenizing.work();
            let _span = tracing::trace_span!("tokenize", documents = texts.len()).entered();
            let of_text = |&(is_dropped, text): &(bool, &str)| {
                self.context.stop.check()?;
                Ok(match (self.counts_tokens, is_dropped) {
                    (true, false) => tokenizer.tokenize(text)?,
                    (true, true) => Tokenized { chunks: Vec::new(), ..tokenizer.tokenize(text)? },
                    (false, false) => Tokenized { chunks: tokenizer.chunks(text)?, num_tokens: 0 },
                    (false, true) => Tokenized { chunks: Vec::new(), num_tokens: 0 },
                })
            };
            texts.iter().map(of_text).collect::<Result<Vec<_>>>()
        });
        let mut tokenized = tasks.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let mut counts = Vec::new();
        for i in 0..documents.len() {
            let Tokenized { chunks, num_tokens } = match documents.text(i) {
                Some(_) => tokenized
                    .next()
                    .ok_or_else(|| Error::shape("tokenize", "fewer results than texts"))?,
                None => Tokenized { chunks: Vec::new(), num_tokens: 0 },
            };
            batch.push(chunks.len());
            batch.tokens += chunks.iter().map(Vec::len).sum::<usize>();
            batch.chunks.extend(chunks);
            counts.push(num_tokens);
        }
        batch.documents = texts.documents;
        batch.documents.drop_texts();
        if self.counts_tokens {
            batch.documents.set_num_tokens(counts);
        }
        batch.is_encoded = vec![false; batch.num_chunks()];
        if let Some(saved) = &texts.saved {
            batch.take_saved(saved);
        }
        Ok(batch)
    }

    /// Takes the embeddings from the input, if it has any.
    fn embedded(&self, texts: TextBatch) -> ChunkBatch {
        let has_embeddings = self.context.config.has_embeddings();
        let mut batch = ChunkBatch::new(&texts);
        let documents = texts.documents;
        for i in 0..documents.len() {
            let has_text = documents.text(i).is_some();
            let found = documents.embeddings(i).filter(|_| has_text);
            let (num_chunks, values) = found.unwrap_or_default();
            batch.without_embedding += u64::from(has_embeddings && has_text && num_chunks == 0);
            batch.hidden_size = values.len().checked_div(num_chunks).unwrap_or(batch.hidden_size);
            batch.values.extend_from_slice(values);
            batch.push(num_chunks);
        }
        self.input.advance(self.context.progress, documents.len() as u64, 0, batch.input_bytes);
        batch.documents = documents;
        batch.documents.drop_texts();
        batch.is_encoded = vec![true; batch.num_chunks()];
        batch
    }
}
