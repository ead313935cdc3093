//! One transformer layer: attention and feed-forward, each followed by residual and layer norm.

use polysift_kernels::{
    AttentionScratch, Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision,
    attention, gemm, layer_norm,
};

use crate::encoder::architecture::Architecture;
use crate::encoder::weights::{Layer, LinearWeights, NormWeights, Weights};
use crate::error::Result;
use crate::progress::Stop;

/// Tokens that go through the feed-forward part at a time: their `F` wide states stay near the
/// second-level cache.
const FEED_TOKENS: usize = 168;

/// A linear map with bias, `[N, inputs]` to `[N, outputs]`.
struct PackedLinear {
    weight: PackedMatrix,
    bias: Vec<f32>,
}

impl PackedLinear {
    fn new(isa: Isa, precision: Precision, LinearWeights { weight, bias }: LinearWeights) -> Self {
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
        let weight = Matrix::new(&weight, outputs, inputs, inputs);
        Self { weight: PackedMatrix::new(isa, precision, weight), bias }
    }

    /// `x` `[N, inputs]` to `y` `[N, outputs]`; `tail` makes the epilogue from the bias.
    fn apply<'a>(
        &'a self,
        isa: Isa,
        x: &[f32],
        tail: impl FnOnce(&'a [f32]) -> Epilogue<'a>,
        y: &mut Vec<f32>,
        scratch: &mut GemmScratch,
    ) {
        let x = view(x, self.weight.k());
        let outputs = self.weight.outputs();
        y.resize(x.rows() * outputs, 0.0);
        let mut y = MatrixMut::new(y, x.rows(), outputs, outputs);
        gemm(isa, x, &self.weight, tail(&self.bias), &mut y, scratch);
    }
}

/// One layer.
pub(super) struct PackedLayer {
    precision: Precision,
    head_size: usize,
    parts: Layer<PackedLinear, NormWeights>,
}

/// Memory of one range of sequences, for `N` tokens.
#[derive(Default)]
pub(super) struct Workspace {
    /// Where each sequence starts, and the end of the last one.
    pub(super) starts: Vec<usize>,
    /// `[N, H]`: what goes into a layer and what comes out.
    pub(super) hidden: Vec<f32>,
    /// `[H]`: the embedding of a word.
    pub(super) word: Vec<f32>,
    /// `[N, 3H]`.
    query_key_value: Vec<f32>,
    /// `[N, H]`: result of attention, before its output map.
    context: Vec<f32>,
    /// `[FEED_TOKENS, H]`: sums that layer norm reads.
    sums: Vec<f32>,
    /// `[FEED_TOKENS, F]`.
    intermediate: Vec<f32>,
    gemm: GemmScratch,
    attention: AttentionScratch,
}

impl PackedLayer {
    /// Packs layer `i` for products in `precision`.
    pub(super) fn load(
        isa: Isa,
        precision: Precision,
        weights: &Weights<'_>,
        architecture: &Architecture,
        i: usize,
    ) -> Result<Self> {
        let linear = |weights| Ok(PackedLinear::new(isa, precision, weights));
        let parts: Result<_> = weights.layer(i, architecture)?.try_map(linear, Ok);
        Ok(Self { precision, head_size: architecture.head_size(), parts: parts? })
    }

    /// Bytes that the packed weights take.
    pub(super) fn bytes(&self) -> usize {
        let Layer { query_key_value, attention_output, intermediate, output, .. } = &self.parts;
        let linear = [query_key_value, attention_output, intermediate, output];
        linear.iter().map(|linear| linear.weight.bytes()).sum()
    }

    /// `workspace.hidden` becomes the states after this layer; false if it does not, since `stop` was asked for.
    pub(super) fn forward(&self, isa: Isa, workspace: &mut Workspace, stop: &Stop) -> bool {
        let Workspace { hidden, query_key_value, context, sums, intermediate, gemm, .. } =
            workspace;
        let parts = &self.parts;
        parts.query_key_value.apply(isa, hidden, Epilogue::Bias, query_key_value, gemm);
        context.resize(hidden.len(), 0.0);
        for span in workspace.starts.windows(2) {
            let (start, length) = (span[0], span[1] - span[0]);
            self.attend(isa, query_key_value, start, length, context, &mut workspace.attention);
        }
        let width = parts.attention_norm.gamma.len();
        let blocks =
            hidden.chunks_mut(FEED_TOKENS * width).zip(context.chunks(FEED_TOKENS * width));
        for (hidden, context) in blocks {
            if stop.is_asked() {
                return false;
            }
            let tail = |bias| Epilogue::BiasResidual(bias, view(hidden, width));
            parts.attention_output.apply(isa, context, tail, sums, gemm);
            normalise(isa, &parts.attention_norm, sums, hidden);

            parts.intermediate.apply(isa, hidden, Epilogue::BiasGelu, intermediate, gemm);
            let tail = |bias| Epilogue::BiasResidual(bias, view(hidden, width));
            parts.output.apply(isa, intermediate, tail, sums, gemm);
            normalise(isa, &parts.output_norm, sums, hidden);
        }
        true
    }

    /// Self-attention of the `length` tokens from `start` on, head by head: `query_key_value`
    /// `[N, 3H]` to `context` `[N, H]`.
    fn attend(
        &self,
        isa: Isa,
        query_key_value: &[f32],
        start: usize,
        length: usize,
        context: &mut [f32],
        scratch: &mut AttentionScratch,
    ) {
        let width = self.parts.attention_norm.gamma.len();
        let head_size = self.head_size;
        for column in (0..width).step_by(head_size) {
            let parts = [0, 1, 2].map(|part| {
                let first = start * 3 * width + part * width + column;
                Matrix::new(&query_key_value[first..], length, head_size, 3 * width)
            });
            let out = &mut context[start * width + column..];
            let mut out = MatrixMut::new(out, length, head_size, width);
            attention(isa, self.precision, parts, None, &mut out, scratch);
        }
    }
}

fn normalise(isa: Isa, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
    layer_norm(isa, x, &norm.gamma, &norm.beta, norm.eps, out);
}

fn view(values: &[f32], width: usize) -> Matrix<'_> {
    Matrix::new(values, values.len() / width, width, width)
}
