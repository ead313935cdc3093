//! Computes embeddings from token ids: finds and loads models, and runs them on batches of chunks.
//!
//! ```text
//!  model name ──resolve──▶ ModelFiles ──load──▶ Model { tokenizer, encoder }
//!  (bundled, directory, hub)                              │
//!  chunks ──plan_batches──▶ PackedBatch ──Encoder::encode─┴▶ embeddings
//! ```
//!
//! This crate reads no documents and writes only to the cache of the hub. Invariant: the embedding
//! of a chunk depends only on the model, the chunk, the precision and the type of CPU or GPU (in
//! int8 also on the prompt and `max_tokens`, which the texts for calibration are given too). With
//! these, it is equal to the bit for all batches, orders, threads and numbers of GPUs. In f32, it
//! is equal on all CPUs.
//!
//! ```
//! use polysift_config::EncoderConfig;
//! use polysift_encoder::{HubSettings, load};
//!
//! let config = EncoderConfig::default(); // the bundled model
//! let model = load(&config, &HubSettings::from_env(|_| None))?;
//! assert_eq!(model.encoder.info().embedding_size, 384);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod architecture;
mod classifier;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod encode;
#[cfg(any(test, feature = "fake"))]
#[path = "encode/tests/fake.rs"]
pub mod fake;
mod families;
mod files;
mod keys;
mod output;
mod recipe;
mod sentence_transformers;
mod settings;
mod weights;

pub use classifier::Classifier;
#[cfg(feature = "cuda")]
pub use cuda::CudaEncoder;
pub use device::{Gpu, Placement, gpus, open_any_gpu, open_gpus, usable};
pub use encode::{Encoder, EncoderInfo, batch_tokens, embed_chunks};
pub use files::{ModelFiles, resolve};
pub use recipe::Recipe;
pub use settings::ResolvedSetting;

use std::sync::Arc;

use polysift_base::error::Result;
pub use polysift_base::hub::HubSettings;
use polysift_base::progress::Stop;
use polysift_config::{Chunks, EncoderConfig};
use polysift_tokenizer::Tokenizer;

/// A model that is ready to embed text.
pub struct Model {
    /// How the model turns texts into embeddings.
    pub recipe: Recipe,
    /// The resolved settings of the recipe, each with its source.
    pub settings: Vec<ResolvedSetting>,
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
    /// The model's encoder.
    pub encoder: Arc<dyn Encoder>,
    /// The device and precision in which the encoder computes.
    pub placement: Placement,
}

/// Loads the model that `config` names onto the device that it asks for.
pub fn load(config: &EncoderConfig, hub: &HubSettings) -> Result<Model> {
    let files = resolve(config, hub)?;
    // These run in parallel because each takes a quarter of a second or more.
    let (tokenizer, placed) = std::thread::scope(|scope| {
        let tokenizer = scope.spawn(|| files.tokenizer(config));
        let placed = device::load(&files, config);
        (tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), placed)
    });
    let (tokenizer, (encoder, placement)) = (tokenizer?, placed?);
    let ModelFiles { recipe, settings, .. } = files;
    Ok(Model { recipe, settings, tokenizer, encoder: encoder.into(), placement })
}

/// The embeddings of a list of texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddedTexts {
    /// `[num_chunks, width]` f32, row-major, in the order of the texts.
    pub values: Vec<f32>,
    /// Length of one embedding; 0 without an encoder.
    pub width: usize,
    /// Text `i` has the rows `chunk_offsets[i]..chunk_offsets[i + 1]`.
    pub chunk_offsets: Vec<usize>,
}

impl Model {
    /// Returns this encoder with the tokenizer of `config`, which names the same model.
    pub fn cut(&self, config: &EncoderConfig, hub: &HubSettings) -> Result<Self> {
        let files = resolve(config, hub)?;
        let tokenizer = files.tokenizer(config)?;
        let ModelFiles { recipe, settings, .. } = files;
        let (encoder, placement) = (Arc::clone(&self.encoder), self.placement.clone());
        Ok(Self { recipe, settings, tokenizer, encoder, placement })
    }

    /// Embeds the first chunk or all chunks of each text. [`embed_chunks`] explains `on_batch`.
    pub fn embed_texts(
        &self,
        texts: &[&str],
        chunks: Chunks,
        config: &EncoderConfig,
        stop: &Stop,
        on_batch: &mut dyn FnMut(usize, usize),
    ) -> Result<EmbeddedTexts> {
        let mut tokenized = self.tokenizer.chunks_all(texts)?;
        if chunks == Chunks::First {
            for chunks in &mut tokenized {
                chunks.truncate(1);
            }
        }
        let mut chunk_offsets = vec![0];
        for chunks in &tokenized {
            chunk_offsets.push(chunk_offsets[chunk_offsets.len() - 1] + chunks.len());
        }
        let chunks: Vec<&[u32]> = tokenized.iter().flatten().map(Vec::as_slice).collect();
        let encoder = self.encoder.as_ref();
        let batch_tokens = batch_tokens(config, encoder);
        let values = embed_chunks(encoder, &chunks, batch_tokens, stop, on_batch)?;
        Ok(EmbeddedTexts { values, width: encoder.info().embedding_size, chunk_offsets })
    }
}
