//! What computes embeddings: the trait that devices implement, and batches through it.

use std::sync::atomic::{AtomicUsize, Ordering};

use polysift_base::batch::{PackedBatch, plan_batches};
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;
use polysift_config::{DEFAULT_BATCH_TOKENS, EncoderConfig};

/// What an encoder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderInfo {
    /// Name as the user wrote it.
    pub model: String,
    /// Width H of a token's state.
    pub hidden_size: usize,
    /// Width D of an embedding.
    pub embedding_size: usize,
    /// Floating-point operations of the linear maps for a token, all layers together.
    pub linear_flops: u64,
    /// Of each layer: to how many tokens before and after it a token attends; `None`: to all.
    pub windows: Vec<Option<usize>>,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Longest sequence, special tokens included.
    pub max_tokens: usize,
    /// `cpu`, or the GPUs.
    pub device: String,
    /// See [`ModelFiles::digest`](super::ModelFiles::digest).
    pub digest: String,
}

impl EncoderInfo {
    /// Floating-point operations for one of the `length` tokens of a sequence: a multiplication and an
    /// addition for each weight of the linear maps, and twice for each width and each token it attends to.
    /// What the CPU leaves out of the last layer with `cls` pooling, less than that layer, is counted too.
    pub fn flops_per_token(&self, length: f64) -> f64 {
        let attended = |window: &Option<usize>| match window.map(|w| w as f64) {
            // 2w + 1, less what is missing at both ends of the sequence.
            Some(w) if 2.0 * w < length => 2.0 * w + 1.0 - w * (w + 1.0) / length,
            _ => length,
        };
        let keys: f64 = self.windows.iter().map(attended).sum();
        self.linear_flops as f64 + 4.0 * self.hidden_size as f64 * keys
    }

    /// [`Error::Shape`] unless the encoder takes `batch` and `embeddings` has room for its rows.
    pub fn check(&self, batch: &PackedBatch, embeddings: &[f32]) -> Result<()> {
        let fail = |reason: String| Err(Error::shape("encode", reason));
        let &Self { embedding_size, max_tokens, vocab_size, .. } = self;
        let starts = &batch.cu_seqlens;
        let whole = starts.first() == Some(&0)
            && starts.last().is_some_and(|&end| end as usize == batch.num_tokens());
        if !whole || !starts.is_sorted() {
            return fail("cu_seqlens does not run from 0 to the number of tokens".into());
        }
        let needed = batch.num_sequences() * embedding_size;
        if embeddings.len() != needed {
            return fail(format!("{} values for embeddings, not {needed}", embeddings.len()));
        }
        for i in 0..batch.num_sequences() {
            let ids = batch.sequence(i);
            if ids.is_empty() || ids.len() > max_tokens {
                let length = ids.len();
                return fail(format!("sequence {i} has {length} tokens, not 1 to {max_tokens}"));
            }
            if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
                return fail(format!("token id {id} in sequence {i}; there are {vocab_size}"));
            }
        }
        Ok(())
    }
}

/// The one thing that a device has to do.
pub trait Encoder: Send + Sync {
    /// What this encoder is.
    fn info(&self) -> &EncoderInfo;

    /// Embeds the sequences of `batch` into `embeddings` `[B, D]`, row-major f32.
    ///
    /// A sequence whose states overflow gets values that are not finite; no other sequence is touched.
    ///
    /// # Errors
    /// [`Error::Shape`] if `embeddings` has another length, a sequence is empty or too long, or a
    /// token id is outside the vocabulary. [`Error::Stopped`] if `stop` was asked for before the
    /// batch was done: the embeddings of the sequences that were done are written, the others left as they
    /// were. A device that takes longer than a second for a batch has to look at `stop` meanwhile.
    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()>;

    /// How many callers of [`Encoder::encode`] at once keep the device busy.
    fn in_flight(&self) -> usize {
        1
    }

    /// Most tokens of a batch that suit the device; `None` where it does not matter.
    fn preferred_batch_tokens(&self) -> Option<usize> {
        None
    }

    /// Most sequences that a batch of at most `batch_tokens` tokens may have; at least one.
    fn max_sequences(&self, batch_tokens: usize) -> usize {
        batch_tokens.max(1)
    }
}

/// Most tokens of a batch for `encoder`: what `config` says, else what suits the encoder.
pub fn batch_tokens(config: &EncoderConfig, encoder: &dyn Encoder) -> usize {
    config.batch_tokens.or_else(|| encoder.preferred_batch_tokens()).unwrap_or(DEFAULT_BATCH_TOKENS)
}

/// Embeds `chunks` (token ids with special tokens) into `[n, D]` f32 in the given order. Chunks are
/// packed by length into batches of at most `batch_tokens`, [`Encoder::in_flight`] of which are in work
/// at once. `on_batch` is called, in the calling thread, with the chunks and tokens of each finished batch.
///
/// # Errors
/// As [`Encoder::encode`].
pub fn embed_chunks(
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    batch_tokens: usize,
    stop: &Stop,
    on_batch: &mut dyn FnMut(usize, usize),
) -> Result<Vec<f32>> {
    let width = encoder.info().embedding_size;
    let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
    let groups = plan_batches(&lengths, batch_tokens, encoder.max_sequences(batch_tokens));
    let mut embeddings = vec![0.0; chunks.len() * width];
    let mut take = |group: &[usize], rows: &[f32]| {
        for (&i, row) in group.iter().zip(rows.chunks_exact(width)) {
            embeddings[i * width..][..width].copy_from_slice(row);
        }
        on_batch(group.len(), group.iter().map(|&i| lengths[i]).sum());
    };
    let in_flight = encoder.in_flight().min(groups.len());
    if in_flight > 1 {
        encode_concurrently(encoder, chunks, &groups, (in_flight, stop), take)?;
    } else {
        let mut rows = Vec::new();
        for group in &groups {
            encode_group(encoder, chunks, group, stop, &mut rows)?;
            take(group, &rows);
        }
    }
    Ok(embeddings)
}

/// Encodes the chunks of `group` into `rows` `[group.len(), D]`.
fn encode_group(
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    group: &[usize],
    stop: &Stop,
    rows: &mut Vec<f32>,
) -> Result<()> {
    stop.check()?;
    let mut batch = PackedBatch::new();
    for &i in group {
        batch.push(chunks[i]);
    }
    rows.resize(group.len() * encoder.info().embedding_size, 0.0);
    encoder.encode(&batch, rows, stop)
}

/// Encodes `groups` in `in_flight` threads, which take them in order; `take` gets each in the calling
/// thread as it is done.
fn encode_concurrently(
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    groups: &[Vec<usize>],
    (in_flight, stop): (usize, &Stop),
    mut take: impl FnMut(&[usize], &[f32]),
) -> Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (send, done) = crossbeam_channel::bounded(in_flight);
        for _ in 0..in_flight {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut rows = Vec::new();
                    let outcome = encode_group(encoder, chunks, group, stop, &mut rows);
                    // Nobody listens once another thread has failed.
                    if send.send((group, outcome.map(|()| rows))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for (group, rows) in done {
            take(group, &rows?);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
