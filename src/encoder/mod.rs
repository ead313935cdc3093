//! From token ids to embeddings: the trait that devices implement, and loading a model.
//!
//! ```text
//!  model name ──resolve──▶ ModelFiles ──load──▶ Model { tokenizer, encoder }
//!  (bundled, directory, hub)                              │
//!  chunks ──plan_batches──▶ PackedBatch ──Encoder::encode─┴▶ embeddings
//! ```
//!
//! Does not read documents and writes nothing but the hub's cache. Invariant: the embedding of a
//! chunk is a function of the model and the chunk alone; batches, their order and the number of
//! threads change no bit.

mod architecture;
mod bundled;
mod check;
mod cpu;
mod cuda;
mod files;
pub mod hub;
mod weights;

pub use cuda::CudaEncoder;
pub use files::{ModelFiles, resolve};
pub use hub::HubSettings;

use crate::batch::{PackedBatch, plan_batches};
use crate::config::EncoderConfig;
use crate::error::Result;
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
    /// `cpu`, or the cards.
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
    /// token id is outside the vocabulary.
    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32]) -> Result<()>;

    /// How many callers of [`Encoder::encode`] at once keep the device busy.
    fn lanes(&self) -> usize {
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
}

/// Loads the model that `config` names, for the CPU.
///
/// # Errors
/// As [`resolve`]; [`crate::Error::Model`] if a weight is missing, of another shape or not of a known type.
pub fn load(config: &EncoderConfig, hub: &HubSettings) -> Result<Model> {
    let files = resolve(config, hub)?;
    let tokenizer = files.tokenizer(config)?;
    let encoder = cpu::CpuEncoder::load(&files, config.pooling)?;
    Ok(Model { tokenizer, encoder: Box::new(encoder) })
}

/// Embeds `chunks` (token ids with special tokens) into `[n, D]` f32 in the given order. Chunks are
/// packed by length into batches of at most `batch_tokens`; `on_batch` hears the chunks and tokens
/// of each finished batch, and an error from it ends the work.
///
/// # Errors
/// As [`Encoder::encode`], and those of `on_batch`.
pub fn embed_chunks(
    encoder: &dyn Encoder,
    chunks: &[&[u32]],
    batch_tokens: usize,
    on_batch: &mut dyn FnMut(usize, usize) -> Result<()>,
) -> Result<Vec<f32>> {
    let width = encoder.info().hidden_size;
    let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
    let mut embeddings = vec![0.0; chunks.len() * width];
    let mut packed = Vec::new();
    for group in plan_batches(&lengths, batch_tokens) {
        let mut batch = PackedBatch::new();
        for &i in &group {
            batch.push(chunks[i]);
        }
        packed.resize(group.len() * width, 0.0);
        encoder.encode(&batch, &mut packed)?;
        for (&i, row) in group.iter().zip(packed.chunks_exact(width)) {
            embeddings[i * width..][..width].copy_from_slice(row);
        }
        on_batch(group.len(), batch.num_tokens())?;
    }
    Ok(embeddings)
}
