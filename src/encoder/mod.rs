//! From token ids to embeddings: the trait that devices implement, and loading a model.
//!
//! ```text
//!  model name ──resolve──▶ ModelFiles ──load──▶ Model { tokenizer, encoder }
//!  (bundled, directory, hub)                              │
//!  chunks ──plan_batches──▶ PackedBatch ──Encoder::encode─┴▶ embeddings
//! ```
//!
//! Does not read documents and writes nothing but the caches of the hub and of the GPUs. Invariant:
//! the embedding of a chunk is a function of the model and the chunk alone. On the CPU batches, their
//! order and the number of threads change no bit; on a GPU, which computes in bf16, they change an
//! embedding by no more than that rounding does.

mod architecture;
mod bundled;
mod check;
mod cpu;
mod cuda;
mod device;
#[cfg(test)]
pub(crate) mod fake;
mod files;
mod texts;
mod weights;

use std::sync::atomic::{AtomicUsize, Ordering};

pub use cuda::CudaEncoder;
pub(crate) use device::scoring_gpus;
pub use device::{Gpu, Placement, gpus, open_gpus, usable};
pub use files::{ModelFiles, resolve};
pub use texts::EmbeddedTexts;

use crate::batch::{PackedBatch, plan_batches};
use crate::config::{DEFAULT_BATCH_TOKENS, EncoderConfig};
use crate::error::Result;
pub use crate::hub::HubSettings;
use crate::progress::Stop;
use crate::tokenize::Tokenizer;

/// What an encoder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderInfo {
    /// Name as the user wrote it.
    pub model: String,
    /// Width of an embedding.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Longest sequence, special tokens included.
    pub max_tokens: usize,
    /// Number of weights that an embedding depends on (no pooler, no language-model head).
    pub num_parameters: u64,
    /// `cpu`, or the GPUs.
    pub device: String,
    /// See [`ModelFiles::digest`].
    pub digest: String,
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
    /// [`crate::Error::Shape`] if `embeddings` has another length, a sequence is empty or too long, or a
    /// token id is outside the vocabulary. [`crate::Error::Stopped`] if `stop` was asked for before the
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

/// A model that is ready to embed text.
pub struct Model {
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its encoder.
    pub encoder: Box<dyn Encoder>,
    /// Where that computes.
    pub placement: Placement,
}

/// Loads the model that `config` names onto the device that it asks for.
///
/// # Errors
/// As [`resolve`]; [`crate::Error::Model`] if a weight is missing, of another shape or not of a known
/// type; [`crate::Error::Device`] if the GPUs that are asked for cannot be used.
pub fn load(config: &EncoderConfig, hub: &HubSettings) -> Result<Model> {
    let files = resolve(config, hub)?;
    let tokenizer = files.tokenizer(config)?;
    let (encoder, placement) = device::load(&files, config)?;
    Ok(Model { tokenizer, encoder, placement })
}

/// Most tokens of a batch for `encoder`: what `config` says, else what suits the encoder.
pub fn batch_tokens(config: &EncoderConfig, encoder: &dyn Encoder) -> usize {
    config.batch_tokens.or_else(|| encoder.preferred_batch_tokens()).unwrap_or(DEFAULT_BATCH_TOKENS)
}

/// Embeds `chunks` (token ids with special tokens) into `[n, D]` f32 in the given order. Chunks are
/// packed by length into batches of at most `batch_tokens`, [`Encoder::in_flight`] of which are in work
/// at once. `on_batch` hears, in the calling thread, the chunks and tokens of each finished batch.
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
    let width = encoder.info().hidden_size;
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
    rows.resize(group.len() * encoder.info().hidden_size, 0.0);
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
