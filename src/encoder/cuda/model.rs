//! The model's weights: in bf16 on the host, from where they go to each GPU.

use half::bf16;
use polysift_kernels::cuda::{
    AttentionKernel, Embedding, Limits, Linear, MatmulPrecision, Norm, Result as CudaResult, Stream,
};

use super::super::files::ModelFiles;
use super::super::weights::{EmbeddingWeights, Layer, LinearWeights, NormWeights, Weights};
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
    layers: Vec<Layer<HostLinear, NormWeights>>,
}

struct HostLinear {
    weight: Vec<bf16>,
    bias: Vec<bf16>,
}

/// A layer on a GPU.
pub(super) type DeviceLayer = Layer<Linear, Norm>;

impl<L, N> Layer<L, N> {
    /// The same layer, its linear maps and its norms each in another form.
    fn try_map<M, O>(
        &self,
        linear: impl Fn(&L) -> CudaResult<M>,
        norm: impl Fn(&N) -> CudaResult<O>,
    ) -> CudaResult<Layer<M, O>> {
        Ok(Layer {
            query_key_value: linear(&self.query_key_value)?,
            attention_output: linear(&self.attention_output)?,
            attention_norm: norm(&self.attention_norm)?,
            intermediate: linear(&self.intermediate)?,
            output: linear(&self.output)?,
            output_norm: norm(&self.output_norm)?,
        })
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
        let linear = |read: LinearWeights| HostLinear {
            weight: rounded(&read.weight),
            bias: rounded(&read.bias),
        };
        let layers =
            (0..config.num_hidden_layers).map(|i| Ok(weights.layer(i, config)?.map_linear(linear)));
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

impl DeviceModel {
    /// Copies `host` to the GPU of `stream`.
    pub(super) fn copy(stream: &Stream, host: &HostModel) -> CudaResult<Self> {
        let precision = host.shape.precision;
        let norm = |norm: &NormWeights| Norm::new(stream, &norm.gamma, &norm.beta, norm.eps);
        let linear = |host: &HostLinear| Linear::new(stream, &host.weight, &host.bias, precision);
        let layers = host.layers.iter().map(|layer| layer.try_map(linear, norm));
        let layers = layers.collect::<CudaResult<_>>()?;
        let HostModel { shape, words, positions, .. } = host;
        Ok(Self {
            shape: *shape,
            attention: AttentionKernel::Warp,
            embedding: Embedding::new(stream, words, positions, shape.width)?,
            norm: norm(&host.norm)?,
            layers,
        })
    }
}

/// `values`, each rounded to the nearest bf16.
fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}
