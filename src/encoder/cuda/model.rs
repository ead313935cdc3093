//! The model on a GPU: its settings, and its weights rounded to bf16 or fp8.

use std::sync::Arc;

use half::bf16;
use half::vec::HalfFloatVecExt;
use polysift_kernels::cuda::{Bound, Buffer, Embedding, Limits, Linear, Norm, Stream};

use super::super::architecture::{Architecture, FeedForward, Positions};
use super::super::weights::{Blob, EmbeddingWeights, Layer, LinearWeights, NormWeights, Weights};
use polysift_base::error::Result;
use polysift_config::Pooling;

/// Settings of the forward pass.
#[derive(Debug, Clone)]
pub(super) struct ModelShape {
    pub(super) architecture: Architecture,
    pub(super) pooling: Pooling,
    /// Whether the operands of the layers' matrix products are e4m3; else they are bf16.
    pub(super) is_fp8: bool,
}

impl ModelShape {
    /// Returns the limits of token ids and positions; of the length only with rotary positions.
    pub(super) fn limits(&self) -> Limits {
        let Architecture { vocab_size, positions, max_tokens, .. } = self.architecture;
        let max_tokens = (positions == Positions::None).then_some(max_tokens);
        Limits { vocab_size, num_positions: positions.rows(), max_tokens }
    }
}

/// A layer on a GPU, with the norms that follow its sums. In a pre-norm model these are the norm of
/// its feed-forward part, and the attention norm of the next layer or the final norm.
pub(super) type DeviceLayer = Layer<Linear, Norm>;

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
        let &ModelShape { ref architecture, is_fp8, .. } = &shape;
        let weights = Weights::open(files, architecture)?;
        let new_norm = |read: &NormWeights| Norm::new(stream, &read.gamma, &read.beta, read.eps);
        let EmbeddingWeights { words: table, positions, norm: mut before, final_norm } =
            weights.read_embedding()?;
        let norm = new_norm(&before)?;
        let rounded = Vec::<bf16>::from_f32_slice;
        let mut words = Vec::with_capacity(architecture.vocab_size * architecture.width);
        let mut row = vec![0.0; architecture.width];
        for i in 0..architecture.vocab_size {
            table.read_row(i, &mut row);
            words.extend(rounded(&row));
        }
        let linear = |read: LinearWeights, input: Bound<'_>| {
            let (weight, bias) = (rounded(&read.weight), rounded(&read.bias));
            Linear::new(stream, &weight, &bias, is_fp8.then_some(input))
        };
        let mut layers: Vec<DeviceLayer> = Vec::with_capacity(architecture.layers.len());
        for i in 0..architecture.layers.len() {
            let read = weights.read_layer(i, |read| read)?;
            let own = read.attention_norm.as_ref().unwrap_or(&before);
            let (of_attention, of_feed_forward) =
                if architecture.pre_norm { (own, &read.output_norm) } else { (&before, own) };
            let query_key_value = linear(read.query_key_value, norm_bound(of_attention))?;
            let intermediate = linear(read.intermediate, norm_bound(of_feed_forward))?;
            let context = context_bound(&query_key_value);
            let inner = inner_bound(&intermediate, architecture.feed_forward);
            layers.push(DeviceLayer {
                query_key_value,
                attention_output: linear(read.attention_output, context)?,
                attention_norm: read.attention_norm.as_ref().map(new_norm).transpose()?,
                intermediate,
                output: linear(read.output, inner)?,
                output_norm: new_norm(&read.output_norm)?,
            });
            before = read.output_norm;
        }
        let mut after = final_norm.as_ref().map(new_norm).transpose()?;
        for layer in layers.iter_mut().rev() {
            if let Some(next) = after.take() {
                let inside = std::mem::replace(&mut layer.output_norm, next);
                after = layer.attention_norm.replace(inside);
            }
        }
        let angles = architecture.angles();
        let angles = angles.iter().map(|of_rope| stream.to_device(of_rope, "the angles"));
        Ok(Self {
            angles: angles.collect::<Result<_, _>>()?,
            embedding: Embedding::new(stream, &words, &positions, architecture.width)?,
            norm,
            layers,
            shape,
        })
    }
}

/// Bounds the rows that leave this norm.
fn norm_bound(NormWeights { gamma, beta, .. }: &NormWeights) -> Bound<'_> {
    Bound::Normalised { gamma, beta }
}

/// Bounds the result of attention, which is a mean of values: of the last third of the outputs.
fn context_bound(query_key_value: &Linear) -> Bound<'static> {
    let bounds = query_key_value.bounds();
    Bound::Within(bounds[bounds.len() / 3 * 2..].iter().copied().fold(0.0, f32::max))
}

/// Bounds the input of a layer's last map: the activated outputs, times the gate if there is one.
fn inner_bound(intermediate: &Linear, feed_forward: FeedForward) -> Bound<'static> {
    let bounds = intermediate.bounds();
    let (activated, gate) = bounds.split_at(bounds.len() / 2);
    Bound::Within(match feed_forward {
        FeedForward::Plain => bounds.iter().copied().fold(0.0, f32::max),
        FeedForward::Gated { .. } => {
            activated.iter().zip(gate).map(|(a, b)| a * b).fold(0.0, f32::max)
        }
    })
}
