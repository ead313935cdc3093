//! The model on a GPU: its settings, and its weights rounded to bf16 or fp8.

use std::sync::Arc;

use half::bf16;
use polysift_kernels::cuda::{Buffer, Embedding, Limits, Linear, MatmulPrecision, Norm, Stream};

use super::super::architecture::{Architecture, Positions, Rope};
use super::super::weights::{Blob, EmbeddingWeights, Layer, LinearWeights, NormWeights, Weights};
use polysift_base::error::Result;
use polysift_config::Pooling;

/// Settings of the forward pass.
#[derive(Debug, Clone)]
pub(super) struct ModelShape {
    pub(super) architecture: Architecture,
    pub(super) pooling: Pooling,
    /// Operand type of the matrix products of the layers.
    pub(super) precision: MatmulPrecision,
}

impl ModelShape {
    /// Returns the limits of the integers of a batch.
    pub(super) fn limits(&self) -> Limits {
        let Architecture { vocab_size, positions, max_tokens, .. } = self.architecture;
        let (first_position, skipped_id, max_tokens) = match positions {
            Positions::Learned { first, skips, .. } => (first, skips, None),
            Positions::None => (0, None, Some(max_tokens)),
        };
        let num_positions = positions.rows();
        Limits { vocab_size, num_positions, first_position, skipped_id, max_tokens }
    }
}

/// A layer on a GPU, with the norms that follow its sums. In a pre-norm model these are the norm of
/// its feed-forward part, and the attention norm of the next layer or the final norm.
pub(super) type DeviceLayer = Layer<Linear, Norm>;

/// The model on a GPU.
pub(super) struct DeviceModel {
    pub(super) shape: ModelShape,
    /// Angles `[max_tokens, head_size]` of each rope.
    pub(super) angles: Vec<Buffer<f32>>,
    pub(super) embedding: Embedding,
    pub(super) norm: Norm,
    pub(super) layers: Vec<DeviceLayer>,
}

impl DeviceModel {
    /// Reads the weights in `files`, rounds them and copies them to `stream`'s GPU layer by layer.
    pub(super) fn load(stream: &Stream, files: &Arc<[Blob]>, shape: ModelShape) -> Result<Self> {
        let ModelShape { architecture, precision, .. } = &shape;
        let weights = Weights::open(files, architecture)?;
        let norm = |read: NormWeights| Norm::new(stream, &read.gamma, &read.beta, read.eps);
        let linear = |read: LinearWeights| {
            Linear::new(stream, &rounded(&read.weight), &rounded(&read.bias), *precision)
        };
        let EmbeddingWeights { words: table, positions, norm: embedding_norm, final_norm } =
            weights.embedding()?;
        let mut words = Vec::with_capacity(architecture.vocab_size * architecture.width);
        let mut row = vec![0.0; architecture.width];
        for i in 0..architecture.vocab_size {
            table.read_row(i, &mut row);
            words.extend(rounded(&row));
        }
        let layer = |i| Ok(weights.layer(i)?.try_map(linear, norm)?);
        let mut layers =
            (0..architecture.num_layers()).map(layer).collect::<Result<Vec<DeviceLayer>>>()?;
        let mut after = final_norm.map(norm).transpose()?;
        for layer in layers.iter_mut().rev() {
            if let Some(next) = after.take() {
                let inside = std::mem::replace(&mut layer.output_norm, next);
                after = layer.attention_norm.replace(inside);
            }
        }
        let angles = |rope: &Rope| {
            let angles = rope.angles(architecture.max_tokens, architecture.head_size());
            stream.to_device(&angles, "the angles")
        };
        Ok(Self {
            angles: architecture.ropes.iter().map(angles).collect::<Result<_, _>>()?,
            embedding: Embedding::new(stream, &words, &positions, architecture.width)?,
            norm: norm(embedding_norm)?,
            layers,
            shape,
        })
    }
}

/// Returns `values`, each rounded to the nearest bf16.
fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}
