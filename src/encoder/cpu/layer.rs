//! Computes a transformer layer: attention and feed-forward, each with a residual and a layer norm.

use std::ops::Range;
use std::sync::Arc;

use polysift_kernels::{
    AttentionScratch, Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision,
    attention, geglu, gemm, layer_norm, rotate,
};

use super::calibration::{FIRST, LayerInputs};
use crate::architecture::FeedForward;
use crate::weights::{Layer, LinearWeights, NormWeights, Weights};
use polysift_base::error::Result;
use polysift_base::progress::Stop;

/// About the bytes of feed-forward states computed at a time: they stay near the second-level cache.
const FEED_BYTES: usize = 2 << 20;
/// The number of tokens at a time is a multiple of this, the rows of AVX-512's micro-tile.
const FEED_STEP: usize = 14;

/// A linear map with bias, `[N, inputs]` to `[N, outputs]`.
struct PackedLinear {
    weight: PackedMatrix,
    bias: Vec<f32>,
    /// Index among the layer's linear maps.
    place: usize,
}

impl PackedLinear {
    /// Applies the map to `x` `[N, inputs]`, with token kinds `kinds`, and returns the outputs
    /// `[N, outputs]` in `memory`; `tail` makes the epilogue from the bias.
    fn apply<'a, 'y>(
        &'a self,
        (x, kinds): (&[f32], &[u8]),
        tail: impl FnOnce(&'a [f32]) -> Epilogue<'a>,
        memory: &'y mut Vec<f32>,
        Products { scratch, inputs }: &mut Products,
    ) -> &'y mut [f32] {
        let x = matrix(x, self.weight.k()).with_kinds(kinds);
        if let Some(inputs) = inputs {
            inputs[self.place].add(x);
        }
        let outputs = self.weight.outputs();
        // Memory that shrank would be filled with zeros when it grows again.
        memory.resize(memory.len().max(x.rows() * outputs), 0.0);
        let y = &mut memory[..x.rows() * outputs];
        let mut view = MatrixMut::new(y, x.rows(), outputs, outputs);
        gemm(Isa::detect(), x, &self.weight, tail(&self.bias), &mut view, scratch);
        y
    }
}

pub(super) struct PackedLayer {
    precision: Precision,
    head_size: usize,
    pre_norm: bool,
    window: Option<usize>,
    /// `[max_tokens, head_size]`, see [`rotate`].
    angles: Option<Arc<[f32]>>,
    /// F, if the feed-forward block is gated.
    gated: Option<usize>,
    parts: Layer<PackedLinear, NormWeights>,
}

/// Memory for a range of sequences with `N` tokens.
#[derive(Default)]
pub(super) struct Workspace {
    /// Start of each sequence, then the end of the last one.
    pub(super) starts: Vec<usize>,
    /// `[N]`: see [`token_kinds`](super::calibration::token_kinds).
    pub(super) kinds: Vec<u8>,
    /// `[N, H]`: input and output of a layer.
    pub(super) hidden: Vec<f32>,
    /// `[N, 3H]`.
    query_key_value: Vec<f32>,
    /// `[N, H]`: output of attention, before the output map.
    context: Vec<f32>,
    /// `[N, H]`: states after a pre-norm.
    pub(super) normed: Vec<f32>,
    /// `[., H]` for some tokens: residual sums, the input of layer norm.
    sums: Vec<f32>,
    /// `[., 2F]` for some tokens: what a gate reads, if there is one.
    ungated: Vec<f32>,
    /// `[., F]` for some tokens: what the output map reads.
    inner: Vec<f32>,
    products: Products,
    attention: AttentionScratch,
}

#[derive(Default)]
struct Products {
    scratch: GemmScratch,
    /// Sums of the maps' inputs, if they are recorded.
    inputs: Option<LayerInputs>,
}

impl Workspace {
    /// Starts to record the inputs of the linear maps, and returns what was recorded before.
    pub(super) fn record_inputs(&mut self) -> Option<LayerInputs> {
        self.products.inputs.replace(LayerInputs::default())
    }
}

impl PackedLayer {
    /// Packs layer `i` for `precision`; for int8 around the means of the layer's `inputs`.
    pub(super) fn load(
        (precision, inputs): (Precision, Option<&LayerInputs>),
        weights: &Weights<'_>,
        angles: &[Arc<[f32]>],
        i: usize,
    ) -> Result<Self> {
        let (architecture, isa) = (weights.architecture, Isa::detect());
        let mut place = 0;
        let linear = |LinearWeights { weight, bias }| {
            let (outputs, k) = (bias.len(), weight.len() / bias.len());
            let weight = Matrix::new(&weight, outputs, k, k);
            let weight = match inputs {
                None => PackedMatrix::new(isa, precision, weight),
                Some(inputs) => {
                    let inputs = &inputs[place];
                    PackedMatrix::around(isa, weight, &inputs.means(k), &inputs.deviations(k))
                }
            };
            place += 1;
            PackedLinear { weight, bias, place: place - 1 }
        };
        let parts = weights.read_layer(i, linear)?;
        let kind = architecture.layers[i];
        let is_gated = architecture.feed_forward != FeedForward::Plain;
        Ok(Self {
            precision,
            head_size: architecture.head_size(),
            pre_norm: architecture.pre_norm,
            window: kind.window,
            angles: kind.rope.map(|rope| Arc::clone(&angles[rope])),
            gated: is_gated.then_some(architecture.inner),
            parts,
        })
    }

    /// Replaces `workspace.hidden` with the states after this layer; returns false if `stop` was
    /// asked for. `only_first` keeps only each sequence's first token, which then is a sequence of
    /// its own; the other tokens' attention outputs and feed-forward states are not computed.
    pub(super) fn forward(&self, workspace: &mut Workspace, only_first: bool, stop: &Stop) -> bool {
        let Layer { query_key_value: to_heads, attention_norm, .. } = &self.parts;
        let Workspace { kinds, hidden, query_key_value, context, normed, products, .. } = workspace;
        let (width, head_size) = (to_heads.weight.k(), self.head_size);
        let states = match attention_norm.as_ref().filter(|_| self.pre_norm) {
            None => &*hidden,
            Some(norm) => {
                normed.resize(hidden.len(), 0.0);
                normalise(norm, hidden, normed);
                &*normed
            }
        };
        let query_key_value =
            to_heads.apply((states, kinds), Epilogue::Bias, query_key_value, products);
        context.resize(hidden.len(), 0.0);
        for (i, span) in workspace.starts.windows(2).enumerate() {
            let (start, length) = (span[0], span[1] - span[0]);
            if let Some(angles) = &self.angles {
                let rows = &mut query_key_value[start * 3 * width..][..length * 3 * width];
                // Queries and keys are adjacent.
                let heads = 2 * width / head_size;
                rotate(Isa::detect(), rows, 3 * width, heads, angles, head_size);
            }
            let (first, queries) = if only_first { (i, 1) } else { (start, length) };
            let out = &mut context[first * width..][..queries * width];
            for column in (0..width).step_by(head_size) {
                let part = |part: usize, rows: usize| {
                    let first = start * 3 * width + part * width + column;
                    Matrix::new(&query_key_value[first..], rows, head_size, 3 * width)
                };
                let parts = [part(0, queries), part(1, length), part(2, length)];
                let mut out = MatrixMut::new(&mut out[column..], queries, head_size, width);
                let scratch = &mut workspace.attention;
                attention(Isa::detect(), self.precision, parts, self.window, &mut out, scratch);
            }
        }
        if only_first {
            let sequences = workspace.starts.len() - 1;
            for i in 0..sequences {
                let first = workspace.starts[i] * width;
                hidden.copy_within(first..first + width, i * width);
                workspace.starts[i] = i;
            }
            workspace.starts[sequences] = sequences;
            hidden.truncate(sequences * width);
            kinds.clear();
            kinds.resize(sequences, FIRST);
        }
        let tokens = workspace.hidden.len() / width;
        let steps = tokens.div_ceil(FEED_STEP);
        let wanted = (FEED_BYTES / (4 * self.parts.intermediate.bias.len() * FEED_STEP)).max(1);
        // A part of few tokens would read all weights for little.
        let parts = ((steps + wanted / 2) / wanted).max(1);
        (0..parts).all(|part| {
            let is_on = !stop.is_asked();
            if is_on {
                let [first, end] =
                    [part, part + 1].map(|part| tokens.min(part * steps / parts * FEED_STEP));
                self.feed_forward(workspace, first * width..end * width);
            }
            is_on
        })
    }

    /// Computes what follows attention for the rows that are `values` of `workspace.hidden`: the
    /// output map, the feed-forward block, and their sums and norms.
    fn feed_forward(&self, workspace: &mut Workspace, values: Range<usize>) {
        let Layer { attention_output, attention_norm, intermediate, output, output_norm, .. } =
            &self.parts;
        let Workspace { kinds, hidden, context, normed, sums, ungated, inner, products, .. } =
            workspace;
        let width = output_norm.gamma.len();
        let kinds = &kinds[values.start / width..values.end / width];
        let (hidden, context) = (&mut hidden[values.clone()], &context[values]);

        let tail = |bias| Epilogue::BiasResidual(bias, matrix(hidden, width));
        let attended = attention_output.apply((context, kinds), tail, sums, products);
        let states: &[f32] = if self.pre_norm {
            hidden.copy_from_slice(attended);
            normed.resize(normed.len().max(hidden.len()), 0.0);
            let normed = &mut normed[..hidden.len()];
            normalise(output_norm, hidden, normed);
            normed
        } else {
            if let Some(norm) = attention_norm {
                normalise(norm, attended, hidden);
            }
            hidden
        };

        let inner = match self.gated {
            None => intermediate.apply((states, kinds), Epilogue::BiasGelu, inner, products),
            Some(width) => {
                let ungated =
                    intermediate.apply((states, kinds), Epilogue::Bias, ungated, products);
                inner.resize(ungated.len() / 2, 0.0);
                geglu(Isa::detect(), ungated, width, inner);
                inner
            }
        };
        let tail = |bias| Epilogue::BiasResidual(bias, matrix(hidden, width));
        let fed = output.apply((inner, kinds), tail, sums, products);
        if self.pre_norm {
            hidden.copy_from_slice(fed);
        } else {
            normalise(output_norm, fed, hidden);
        }
    }
}

/// Writes the layer norm of the rows of `x` to `out`.
pub(super) fn normalise(norm: &NormWeights, x: &[f32], out: &mut [f32]) {
    layer_norm(Isa::detect(), x, &norm.gamma, &norm.beta, norm.eps, out);
}

/// Returns `values` as rows of `width` values.
fn matrix(values: &[f32], width: usize) -> Matrix<'_> {
    Matrix::new(values, values.len() / width, width, width)
}
