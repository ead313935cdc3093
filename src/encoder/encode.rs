//! Defines the trait that devices implement, and embeds chunks through it in batches.

use std::sync::atomic::{AtomicUsize, Ordering};

use polysift_base::batch::{PackedBatch, plan_batches};
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;
use polysift_config::{DEFAULT_BATCH_TOKENS, EncoderConfig};

/// The properties of an encoder that its callers need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncoderInfo {
    /// Width H of a token's state.
    pub hidden_size: usize,
    /// Width D of an embedding.
    pub embedding_size: usize,
    /// Floating-point operations per token in the linear maps of all layers.
    pub linear_flops: u64,
    /// For each layer, how many tokens before and after itself a token attends to; `None` for all.
    pub windows: Vec<Option<usize>>,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Maximum length of a sequence, special tokens included.
    pub max_tokens: usize,
    /// Number of concurrent calls of [`Encoder::encode`] that keep the device busy.
    pub in_flight: usize,
    /// Tokens per batch that the device was loaded for; `None` if they do not matter.
    pub batch_tokens: Option<usize>,
    /// Maximum number of sequences in a batch.
    pub max_sequences: usize,
    /// `cpu`, or the list of GPUs.
    pub device: String,
}

impl EncoderInfo {
    /// Returns the floating-point operations per token of a sequence of `length` tokens: two per
    /// weight of the linear maps and four per unit of width and attended token. Work that the CPU
    /// skips in the last layer with `cls` pooling is counted.
    pub fn flops_per_token(&self, length: f64) -> f64 {
        let attended = |window: &Option<usize>| match window.map(|w| w as f64) {
            // A token attends to 2w + 1 tokens, and to fewer near both ends of the sequence.
            Some(w) if 2.0 * w < length => 2.0 * w + 1.0 - w * (w + 1.0) / length,
            _ => length,
        };
        let keys: f64 = self.windows.iter().map(attended).sum();
        self.linear_flops as f64 + 4.0 * self.hidden_size as f64 * keys
    }

    /// Returns [`Error::Shape`] if `batch` or the length of `embeddings` does not suit the encoder.
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

/// The interface of a device.
pub trait Encoder: Send + Sync {
    /// Returns the properties of this encoder.
    fn info(&self) -> &EncoderInfo;

    /// Embeds the sequences of `batch` into `embeddings` `[B, D]`, row-major f32.
    ///
    /// A sequence whose states overflow gets values that are not finite; the others are unaffected.
    /// Returns [`Error::Shape`] if `embeddings` has the wrong length, a sequence is empty or too
    /// long, or a token id is outside the vocabulary. Returns [`Error::Stopped`] if `stop` was
    /// asked for before the batch was done: embeddings of finished sequences are written, the
    /// others left unchanged. A device that takes longer than a second per batch has to check
    /// `stop` meanwhile.
    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()>;
}

/// Returns the maximum tokens per batch: the encoder's maximum, else the setting in `config`.
pub fn batch_tokens(config: &EncoderConfig, encoder: &dyn Encoder) -> usize {
    encoder.info().batch_tokens.or(config.batch_tokens).unwrap_or(DEFAULT_BATCH_TOKENS)
}

/// Embeds `chunks` (token ids with special tokens) into `[n, D]` f32, in the given order. Batches
/// of at most `batch_tokens` hold chunks of similar length; [`EncoderInfo::in_flight`] run at a
/// time. The calling thread passes the numbers of chunks and tokens of each finished batch to
/// `on_batch`.
pub fn embed_chunks(
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    batch_tokens: usize,
    stop: &Stop,
    on_batch: &mut dyn FnMut(usize, usize),
) -> Result<Vec<f32>> {
    let info = encoder.info();
    let width = info.embedding_size;
    let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
    let groups = plan_batches(&lengths, batch_tokens, info.max_sequences);
    let mut embeddings = vec![0.0; chunks.len() * width];
    let mut take = |group: &[usize], rows: &[f32]| {
        for (&i, row) in group.iter().zip(rows.chunks_exact(width)) {
            embeddings[i * width..][..width].copy_from_slice(row);
        }
        on_batch(group.len(), group.iter().map(|&i| lengths[i]).sum());
    };
    let encode = |group: &[usize]| {
        stop.check()?;
        let mut batch = PackedBatch::default();
        for &i in group {
            batch.push(chunks[i]);
        }
        let mut rows = vec![0.0; group.len() * width];
        encoder.encode(&batch, &mut rows, stop).map(|()| rows)
    };
    // A CPU computes in the pool of the calling thread. If several threads of a pool waited here
    // for threads outside the pool, no thread would be left to compute.
    let is_in_pool = info.batch_tokens.is_none() && rayon::current_thread_index().is_some();
    let in_flight = if is_in_pool { 1 } else { info.in_flight.min(groups.len()) };
    if in_flight > 1 {
        encode_concurrently(&groups, in_flight, encode, take)?;
    } else {
        for group in &groups {
            take(group, &encode(group)?);
        }
    }
    Ok(embeddings)
}

/// Calls `encode` for `groups` in `in_flight` threads, and `take` in the calling thread for each
/// result, as they come. Returns the first error; the threads then end after their batch.
fn encode_concurrently(
    groups: &[Vec<usize>],
    in_flight: usize,
    encode: impl Fn(&[usize]) -> Result<Vec<f32>> + Sync,
    mut take: impl FnMut(&[usize], &[f32]),
) -> Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (send, done) = crossbeam_channel::bounded(in_flight);
        for _ in 0..in_flight {
            let (send, next, encode) = (send.clone(), &next, &encode);
            scope.spawn(move || {
                while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver is gone once another thread has failed.
                    if send.send((group, encode(group))).is_err() {
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
