//! The tokenizing thread: texts become chunks of token ids, and are let go.

use rayon::prelude::*;

use super::Step;
use super::queue::{Receiver, Sender};
use super::read::TextBatch;
use crate::error::{Error, Result};
use crate::input::DocumentBatch;
use crate::parts::EmbeddingRows;
use crate::progress::{Busy, Stop};
use crate::tokenize::{Tokenized, Tokenizer};

/// Texts that a thread of the pool tokenizes at a time.
const TASK_TEXTS: usize = 32;

/// Documents of a part, whose texts became chunks.
pub(super) struct ChunkBatch {
    /// Position among the shards to do.
    pub(super) shard: usize,
    /// The part.
    pub(super) index: usize,
    /// Without their texts.
    pub(super) documents: DocumentBatch,
    /// `[documents + 1]`, as in [`crate::parts::EmbeddingRows`].
    pub(super) chunk_offsets: Vec<usize>,
    /// `input_ids` of all chunks; none where the input brought its embeddings along.
    pub(super) chunks: Vec<Vec<u32>>,
    /// Sum of their lengths.
    pub(super) tokens: usize,
    /// By chunk: whether its embedding is among the values.
    pub(super) is_encoded: Vec<bool>,
    /// Embeddings of all chunks, once there are.
    pub(super) values: Vec<f32>,
    pub(super) hidden_size: usize,
}

impl ChunkBatch {
    /// `documents` of the part of `texts`, which have no chunks so far.
    fn new(texts: &TextBatch) -> Self {
        Self {
            shard: texts.shard,
            index: texts.index,
            documents: DocumentBatch::default(),
            chunk_offsets: vec![0],
            chunks: Vec::new(),
            tokens: 0,
            is_encoded: Vec::new(),
            values: Vec::new(),
            hidden_size: 0,
        }
    }

    /// Whether all chunks of document `i` are encoded.
    pub(super) fn is_encoded(&self, i: usize) -> bool {
        self.is_encoded[self.chunk_offsets[i]..self.chunk_offsets[i + 1]].iter().all(|is| *is)
    }

    /// Takes over what `saved` holds of the documents.
    fn take_saved(&mut self, saved: &EmbeddingRows) {
        let width = saved.hidden_size;
        for (i, row) in self.documents.rows.iter().enumerate() {
            let chunks = self.chunk_offsets[i]..self.chunk_offsets[i + 1];
            let Ok(place) = saved.rows.binary_search(row) else { continue };
            let values = saved.chunks(place);
            if chunks.is_empty() || values.len() != chunks.len() * width {
                continue;
            }
            self.values.resize(self.is_encoded.len() * width, 0.0);
            self.values[chunks.start * width..chunks.end * width].copy_from_slice(values);
            self.is_encoded[chunks].fill(true);
        }
    }

    /// Number of chunks.
    pub(super) fn num_chunks(&self) -> usize {
        self.chunk_offsets.last().copied().unwrap_or(0)
    }

    /// Appends the number of chunks of the next document.
    fn push(&mut self, num_chunks: usize) {
        self.chunk_offsets.push(self.num_chunks() + num_chunks);
    }

    /// Takes `documents` over, of all of which the chunks are there, without their texts.
    fn take_documents(&mut self, mut documents: DocumentBatch) {
        documents.drop_texts();
        self.documents = documents;
    }
}

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
                Step::ShardEnd { shard } | Step::Failed { shard, .. } => failed == Some(*shard),
                Step::Broken(_) => false,
            };
            if of_failed {
                continue;
            }
            let step = step.map(|texts| {
                let shard = texts.shard;
                self.batch(texts).map_or_else(|error| Step::Failed { shard, error }, Step::Batch)
            });
            let weight = match &step {
                Step::Batch(batch) => batch.tokens + batch.values.len() + batch.documents.len(),
                Step::Failed { shard, .. } => {
                    failed = Some(*shard);
                    1
                }
                Step::PartEnd(_) | Step::ShardEnd { .. } | Step::Broken(_) => 1,
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
        batch.documents.num_tokens = self.counts_tokens.then_some(counts);
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
    for i in 0..documents.len() {
        if let Some(vectors) = documents.embeddings(i).filter(|_| documents.text(i).is_some()) {
            batch.hidden_size = vectors.first().map_or(batch.hidden_size, Vec::len);
            batch.values.extend(vectors.iter().flatten());
            batch.push(vectors.len());
        } else {
            documents.num_bytes[i] = 0;
            batch.push(0);
        }
    }
    batch.take_documents(documents);
    batch.is_encoded = vec![true; batch.num_chunks()];
    batch
}
