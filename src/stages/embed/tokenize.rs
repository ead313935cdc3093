//! The tokenizing thread: turns texts into chunks of token ids and drops the texts.

use rayon::prelude::*;

use super::queue::{ChunkBatch, Pipeline, Receiver, Sender, Step};
use polysift_base::error::Result;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_data::input::DocumentBatch;
use polysift_encoder::Model;
use polysift_fasttext::TextScratch;
use polysift_tokenizer::Tokenized;

/// Texts that a pool thread tokenizes at a time.
const TASK_TEXTS: usize = 32;

impl Pipeline<'_> {
    /// Runs the tokenizing thread; drops the steps of a shard that failed.
    pub(super) fn tokenize(&self, from_read: &Receiver<Step>, to_encode: &Sender<Step>) {
        let mut failed = None;
        while let Some(mut step) = from_read.recv() {
            let shard = step.shard();
            if failed.is_some() && failed == shard {
                continue;
            }
            if let Step::Batch(batch) = &mut step
                && let Err(error) = self.tokenize_batch(batch)
            {
                step = Step::Failed { shard, error };
            }
            if let Step::Failed { .. } = step {
                failed = shard;
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
        let codes: Vec<&str> = all.map_init(TextScratch::default, identify).collect();
        documents.languages = codes.into();
    }

    /// Tokenizes the texts of `batch`, or takes the embeddings of the input in their place.
    fn tokenize_batch(&self, batch: &mut ChunkBatch) -> Result<()> {
        let mut documents = std::mem::take(&mut batch.rows.documents);
        batch.rows.chunk_offsets = vec![0];
        self.identify_languages(&mut documents);
        let Some(Model { tokenizer, .. }) = self.model else {
            self.take_embeddings(batch, documents);
            return Ok(());
        };
        let is_dropped = |i: usize| batch.left_out.dropped.contains(documents.rows()[i]);
        let present: Vec<(bool, &str)> =
            documents.texts().map(|(i, text)| (is_dropped(i), text)).collect();
        let dropped = present.iter().filter(|(is_dropped, _)| *is_dropped);
        batch.encoded.dropped = dropped.count() as u64;
        let tasks = present.par_chunks(TASK_TEXTS).map(|texts| {
            let _busy = self.tokenizing.work();
            let _span = tracing::trace_span!("tokenize", documents = texts.len()).entered();
            let of_text = |&(is_dropped, text): &(bool, &str)| {
                self.context.stop.check()?;
                Ok(match (self.counts_tokens, is_dropped) {
                    (true, false) => tokenizer.tokenize(text)?,
                    (true, true) => Tokenized { chunks: Vec::new(), ..tokenizer.tokenize(text)? },
                    (false, false) => Tokenized { chunks: tokenizer.chunks(text)?, num_tokens: 0 },
                    (false, true) => Tokenized::default(),
                })
            };
            texts.iter().map(of_text).collect::<Result<Vec<_>>>()
        });
        let mut tokenized = tasks.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let mut counts = Vec::new();
        for i in 0..documents.len() {
            let of_text = documents.text(i).and_then(|_| tokenized.next());
            let Tokenized { chunks, num_tokens } = of_text.unwrap_or_default();
            batch.push_chunks(chunks.len());
            batch.encoded.tokens += chunks.iter().map(Vec::len).sum::<usize>() as u64;
            batch.chunks.extend(chunks);
            counts.push(num_tokens);
        }
        documents.drop_texts();
        if self.counts_tokens {
            documents.num_tokens = counts.into();
        }
        batch.rows.documents = documents;
        batch.is_encoded = vec![false; batch.num_chunks()];
        if let Some(saved) = batch.saved.take() {
            batch.take_saved(&saved);
        }
        Ok(())
    }

    /// Takes the embeddings from the input, if it has any.
    fn take_embeddings(&self, batch: &mut ChunkBatch, mut documents: DocumentBatch) {
        let has_embeddings = self.context.config.has_embeddings();
        for i in 0..documents.len() {
            let has_text = documents.text(i).is_some();
            let found = documents.embeddings(i).filter(|_| has_text);
            let (num_chunks, values) = found.unwrap_or_default();
            let is_without = has_embeddings && has_text && num_chunks == 0;
            batch.encoded.without_embedding += u64::from(is_without);
            let width = values.len().checked_div(num_chunks);
            batch.rows.hidden_size = width.unwrap_or(batch.rows.hidden_size);
            batch.rows.values.extend_from_slice(values);
            batch.push_chunks(num_chunks);
        }
        self.context.progress.input(batch.input_bytes, 0);
        self.context.progress.advance(documents.len() as u64, 0);
        documents.drop_texts();
        batch.rows.documents = documents;
        batch.is_encoded = vec![true; batch.num_chunks()];
    }
}
