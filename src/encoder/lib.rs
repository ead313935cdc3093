//! From token ids to embeddings: loading a model, and what it is used for.
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
pub use device::{Gpu, Placement, gpus, open_gpus, usable};
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
    /// How it makes embeddings of texts.
    pub recipe: Recipe,
    /// The settings behind that, and what says so.
    pub settings: Vec<ResolvedSetting>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its encoder.
    pub encoder: Arc<dyn Encoder>,
    /// Where that computes.
    pub placement: Placement,
}

/// Loads the model that `config` names onto the device that it asks for.
///
/// # Errors
/// As [`resolve`]; [`polysift_base::Error::Model`] if a weight is missing, of another shape or not of a known
/// type; [`polysift_base::Error::Device`] if the GPUs that are asked for cannot be used.
pub fn load(config: &EncoderConfig, hub: &HubSettings) -> Result<Model> {
    let files = resolve(config, hub)?;
    // At once, since either takes a quarter of a second and more.
    let (tokenizer, placed) = std::thread::scope(|scope| {
        let tokenizer = scope.spawn(|| files.tokenizer(config));
        let placed = device::load(&files, config);
        (tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), placed)
    });
    let (tokenizer, (encoder, placement)) = (tokenizer?, placed?);
    let ModelFiles { recipe, settings, .. } = files;
    Ok(Model { recipe, settings, tokenizer, encoder: encoder.into(), placement })
}

/// The embeddings of some texts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmbeddedTexts {
    /// `[num_chunks, D]` f32, row-major, in the order of the texts.
    pub values: Vec<f32>,
    /// The chunks of text `i` are the rows `chunk_offsets[i]..chunk_offsets[i + 1]`.
    pub chunk_offsets: Vec<usize>,
}

impl Model {
    /// The same encoder behind a tokenizer that cuts as `config` says, which names the same model.
    ///
    /// # Errors
    /// As [`load`].
    pub fn cut(&self, config: &EncoderConfig, hub: &HubSettings) -> Result<Self> {
        let files = resolve(config, hub)?;
        let tokenizer = files.tokenizer(config)?;
        let ModelFiles { recipe, settings, .. } = files;
        let (encoder, placement) = (Arc::clone(&self.encoder), self.placement.clone());
        Ok(Self { recipe, settings, tokenizer, encoder, placement })
    }

    /// Embeds `texts`: the first chunk of each, or all that the model's tokenizer makes. `on_batch`
    /// is that of [`embed_chunks`], as are the errors, with those of
    /// [`Tokenizer::chunks_all`](polysift_tokenizer::Tokenizer::chunks_all).
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
        let chunk_offsets = std::iter::once(0)
            .chain(tokenized.iter().scan(0, |end, chunks| {
                *end += chunks.len();
                Some(*end)
            }))
            .collect();
        let chunks: Vec<&[u32]> = tokenized.iter().flatten().map(Vec::as_slice).collect();
        let encoder = self.encoder.as_ref();
        let batch_tokens = batch_tokens(config, encoder);
        let values = embed_chunks(encoder, &chunks, batch_tokens, stop, on_batch)?;
        Ok(EmbeddedTexts { values, chunk_offsets })
    }
}
