//! The model's weights: in bf16 on the host, from where they go to each GPU.

use half::bf16;
use polysift_kernels::cuda::{
    AttentionKernel, Embedding, Limits, Linear, MatmulPrecision, Norm, Result as CudaResult, Stream,
};

use super::super::files::ModelFiles;
use super::super::weights::{EmbeddingWeights, LayerWeights, LinearWeights, NormWeights, Weights};
use crate::config::{Gelu, Pooling};
use crate::error::Result;

/// What the forward pass depends on beside the weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelShape {
    /// Width H of a token's state.
    pub(super) width: usize,
    /// Width F inside the feed-forward part.
    pub(super) inner: usize,
    pub(super) heads: usize,
    pub(super) limits: Limits,
    /// Tokens of the longest sequence.
    pub(super) max_tokens: usize,
    pub(super) gelu: Gelu,
    pub(super) pooling: Pooling,
    /// What the products of the layers multiply.
    pub(super) precision: MatmulPrecision,
}

/// The weights on the host, until all GPUs have them.
pub(super) struct HostModel {
    pub(super) shape: ModelShape,
    words: Vec<bf16>,
    positions: Vec<f32>,
    norm: NormWeights,
    layers: Vec<HostLayer>,
}

struct HostLinear {
    weight: Vec<bf16>,
    bias: Vec<bf16>,
}

impl From<LinearWeights> for HostLinear {
    fn from(linear: LinearWeights) -> Self {
        Self { weight: rounded(&linear.weight), bias: rounded(&linear.bias) }
    }
}

impl HostLinear {
    fn copy(&self, stream: &Stream, precision: MatmulPrecision) -> CudaResult<Linear> {
        Linear::new(stream, &self.weight, &self.bias, precision)
    }
}

struct HostLayer {
    query_key_value: HostLinear,
    attention_output: HostLinear,
    attention_norm: NormWeights,
    intermediate: HostLinear,
    output: HostLinear,
    output_norm: NormWeights,
}

impl From<LayerWeights> for HostLayer {
    fn from(layer: LayerWeights) -> Self {
        Self {
            query_key_value: layer.query_key_value.into(),
            attention_output: layer.attention_output.into(),
            attention_norm: layer.attention_norm,
            intermediate: layer.intermediate.into(),
            output: layer.output.into(),
            output_norm: layer.output_norm,
        }
    }
}

impl HostModel {
    /// Loads and rounds the weights; also gives their number.
    pub(super) fn load(
        files: &ModelFiles,
        pooling: Pooling,
        gelu: Gelu,
        precision: MatmulPrecision,
    ) -> Result<(Self, u64)> {
        let config = &files.architecture;
        let weights = Weights::open(&files.weights)?;
        let EmbeddingWeights { words, positions, norm } = weights.embedding(config)?;
        let words = rounded(&words.to_vec());
        let layers = (0..config.num_hidden_layers).map(|i| Ok(weights.layer(i, config)?.into()));
        let layers = layers.collect::<Result<_>>()?;
        let shape = ModelShape {
            width: config.hidden_size,
            inner: config.intermediate_size,
            heads: config.num_attention_heads,
            limits: Limits {
                vocab_size: config.vocab_size,
                num_positions: config.max_position_embeddings,
                pad_token_id: config.pad_token_id,
            },
            max_tokens: config.max_tokens(),
            gelu,
            pooling,
            precision,
        };
        Ok((Self { shape, words, positions, norm, layers }, weights.num_parameters()))
    }
}

/// The weights on a GPU.
pub(super) struct DeviceModel {
    pub(super) shape: ModelShape,
    /// What suits the GPU.
    pub(super) attention: AttentionKernel,
    pub(super) embedding: Embedding,
    pub(super) norm: Norm,
    pub(super) layers: Vec<DeviceLayer>,
}

/// A layer on a GPU.
pub(super) struct DeviceLayer {
    pub(super) query_key_value: Linear,
    pub(super) attention_output: Linear,
    pub(super) attention_norm: Norm,
    pub(super) intermediate: Linear,
    pub(super) output: Linear,
    pub(super) output_norm: Norm,
}

impl DeviceModel {
    /// Copies `host` to the GPU of `stream`.
    pub(super) fn copy(stream: &Stream, host: &HostModel) -> CudaResult<Self> {
        let precision = host.shape.precision;
        let norm = |norm: &NormWeights| Norm::new(stream, &norm.gamma, &norm.beta, norm.eps);
        let layer = |layer: &HostLayer| {
            Ok(DeviceLayer {
                query_key_value: layer.query_key_value.copy(stream, precision)?,
                attention_output: layer.attention_output.copy(stream, precision)?,
                attention_norm: norm(&layer.attention_norm)?,
                intermediate: layer.intermediate.copy(stream, precision)?,
                output: layer.output.copy(stream, precision)?,
                output_norm: norm(&layer.output_norm)?,
            })
        };
        let HostModel { shape, words, positions, .. } = host;
        Ok(Self {
            shape: *shape,
            attention: AttentionKernel::Warp,
            embedding: Embedding::new(stream, words, positions, shape.width)?,
            norm: norm(&host.norm)?,
            layers: host.layers.iter().map(layer).collect::<CudaResult<_>>()?,
        })
    }
}

/// `values`, each rounded to the nearest bf16.
fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}
