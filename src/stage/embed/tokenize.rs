//! The tokenizing thread: texts become chunks of token ids, and are let go.

use rayon::prelude::*;

use super::queue::{ChunkBatch, Receiver, Sender, Step, TextBatch};
use crate::error::{Error, Result};
use crate::progress::{Busy, Stop};
use crate::tokenize::{Tokenized, Tokenizer};

/// Texts that a thread of the pool tokenizes at a time.
const TASK_TEXTS: usize = 32;

/// The tokenizing thread.
pub(super) struct Tokenizing<'a> {
    /// `None` where the input brings its embeddings.
    pub(super) tokenizer: Option<&'a Tokenizer>,
    pub(super) counts_tokens: bool,
    pub(super) stop: &'a Stop,
    pub(super) busy: &'a Busy,
}

impl Tokenizing<'_> {
    pub(super) fn run(
        &self,
        from_read: &Receiver<Step<TextBatch>>,
        to_encode: &Sender<Step<ChunkBatch>>,
    ) {
        let mut failed = None;
        while let Some(step) = from_read.recv() {
            let of_failed = match &step {
                Step::Batch(texts) => failed == Some(texts.shard),
                Step::PartEnd(end) => failed == Some(end.shard),
                Step::ShardEnd { shard } => failed == Some(*shard),
                Step::Failed { shard, .. } => shard.is_some() && failed == *shard,
            };
            if of_failed {
                continue;
            }
            let step = step.map(|texts| {
                let shard = texts.shard;
                self.batch(texts)
                    .map_or_else(|error| Step::Failed { shard: Some(shard), error }, Step::Batch)
            });
            let weight = match &step {
                Step::Batch(batch) => batch.tokens + batch.values.len() + batch.documents.len(),
                Step::Failed { shard, .. } => {
                    failed = *shard;
                    1
                }
                Step::PartEnd(_) | Step::ShardEnd { .. } => 1,
            };
            if to_encode.send(step, weight).is_err() {
                return;
            }
        }
    }

    fn batch(&self, texts: TextBatch) -> Result<ChunkBatch> {
        match self.tokenizer {
            Some(tokenizer) => self.tokenized(texts, tokenizer),
            None => Ok(embedded(texts)),
        }
    }

    fn tokenized(&self, texts: TextBatch, tokenizer: &Tokenizer) -> Result<ChunkBatch> {
        let mut batch = ChunkBatch::new(&texts);
        let documents = &texts.documents;
        let present: Vec<&str> = documents.texts().map(|(_, text)| text).collect();
        let tasks = present.par_chunks(TASK_TEXTS).map(|texts| {
            let _busy = self.busy.work();
            let _span = tracing::trace_span!("tokenize", documents = texts.len()).entered();
            let chunks = |text: &&str| self.stop.check().and_then(|()| self.text(tokenizer, text));
            texts.iter().map(chunks).collect::<Result<Vec<_>>>()
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
        batch.take_documents(texts.documents);
        if self.counts_tokens {
            batch.documents.set_num_tokens(counts);
        }
        batch.is_encoded = vec![false; batch.num_chunks()];
        if let Some(saved) = &texts.saved {
            batch.take_saved(saved);
        }
        Ok(batch)
    }

    /// Chunks of a text; its tokens only where they are counted.
    fn text(&self, tokenizer: &Tokenizer, text: &str) -> Result<Tokenized> {
        if self.counts_tokens {
            tokenizer.tokenize(text)
        } else {
            Ok(Tokenized { chunks: tokenizer.chunks(text)?, num_tokens: 0 })
        }
    }
}

/// Takes the embeddings over that the input brought along.
fn embedded(texts: TextBatch) -> ChunkBatch {
    let mut batch = ChunkBatch::new(&texts);
    let mut documents = texts.documents;
    let mut num_bytes = documents.num_bytes().to_vec();
    for (i, num_bytes) in num_bytes.iter_mut().enumerate() {
        let embeddings = documents.embeddings(i).filter(|_| documents.text(i).is_some());
        if let Some((num_chunks, values)) = embeddings {
            batch.hidden_size = values.len().checked_div(num_chunks).unwrap_or(batch.hidden_size);
            batch.values.extend_from_slice(values);
            batch.push(num_chunks);
        } else {
            *num_bytes = 0;
            batch.push(0);
        }
    }
    documents.set_num_bytes(num_bytes);
    batch.take_documents(documents);
    batch.is_encoded = vec![true; batch.num_chunks()];
    batch
}
