//! The tokenizing thread: texts become chunks of token ids, and are let go.

use arrow::array::StringArray;
use rayon::prelude::*;

use super::Step;
use super::queue::{Receiver, Sender};
use super::read::TextBlock;
use crate::error::{Error, Result};
use crate::parts::EmbeddingRows;
use crate::progress::{Busy, Stop};
use crate::tokenize::{Tokenized, Tokenizer};

/// Texts that a thread of the pool tokenizes at a time.
const TASK_TEXTS: usize = 32;

/// Documents of a part without their texts.
pub(super) struct PartBlock {
    /// Position among the shards to do.
    pub(super) shard: usize,
    /// The part.
    pub(super) index: usize,
    pub(super) rows: Vec<u64>,
    pub(super) ids: StringArray,
    pub(super) languages: StringArray,
    /// 0 for a document without text, whatever white space it holds.
    pub(super) num_bytes: Vec<u64>,
    /// Where they are counted.
    pub(super) num_tokens: Option<Vec<u64>>,
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

impl PartBlock {
    /// The documents of `texts`, which have no chunks so far.
    fn new(texts: &TextBlock) -> Self {
        let documents = &texts.documents;
        Self {
            shard: texts.shard,
            index: texts.index,
            rows: documents.rows().to_vec(),
            ids: documents.ids().clone(),
            languages: documents.languages().clone(),
            num_bytes: Vec::with_capacity(documents.len()),
            num_tokens: None,
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
        for (i, row) in self.rows.iter().enumerate() {
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

    /// Appends what is embedded of the next document.
    fn push(&mut self, num_bytes: u64, num_chunks: usize) {
        self.num_bytes.push(num_bytes);
        self.chunk_offsets.push(self.num_chunks() + num_chunks);
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
        from_read: &Receiver<Step<TextBlock>>,
        to_encode: &Sender<Step<PartBlock>>,
    ) {
        let mut failed = None;
        while let Some(step) = from_read.recv() {
            let of_failed = match &step {
                Step::Block(texts) => failed == Some(texts.shard),
                Step::PartEnd(end) => failed == Some(end.shard),
                Step::ShardEnd { shard } | Step::Failed { shard, .. } => failed == Some(*shard),
                Step::Broken(_) => false,
            };
            if of_failed {
                continue;
            }
            let step = step.map(|texts| {
                let shard = texts.shard;
                self.block(texts).map_or_else(|error| Step::Failed { shard, error }, Step::Block)
            });
            let weight = match &step {
                Step::Block(block) => block.tokens + block.values.len() + block.rows.len(),
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

    fn block(&self, texts: TextBlock) -> Result<PartBlock> {
        match self.tokenizer {
            Some(tokenizer) => self.tokenized(&texts, tokenizer),
            None => Ok(embedded(texts)),
        }
    }

    fn tokenized(&self, texts: &TextBlock, tokenizer: &Tokenizer) -> Result<PartBlock> {
        let mut block = PartBlock::new(texts);
        let documents = &texts.documents;
        let present: Vec<&str> = (0..documents.len()).filter_map(|i| documents.text(i)).collect();
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
            block.push(documents.num_bytes(i), chunks.len());
            block.tokens += chunks.iter().map(Vec::len).sum::<usize>();
            block.chunks.extend(chunks);
            counts.push(num_tokens);
        }
        block.num_tokens = self.counts_tokens.then_some(counts);
        block.is_encoded = vec![false; block.num_chunks()];
        if let Some(saved) = &texts.saved {
            block.take_saved(saved);
        }
        Ok(block)
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
fn embedded(mut texts: TextBlock) -> PartBlock {
    let mut block = PartBlock::new(&texts);
    for i in 0..texts.documents.len() {
        let vectors = texts.documents.take_embeddings(i);
        match vectors.filter(|_| texts.documents.text(i).is_some()) {
            Some(vectors) => {
                block.hidden_size = vectors.first().map_or(block.hidden_size, Vec::len);
                block.values.extend(vectors.iter().flatten());
                block.push(texts.documents.num_bytes(i), vectors.len());
            }
            None => block.push(0, 0),
        }
    }
    block.is_encoded = vec![true; block.num_chunks()];
    block
}
