//! One transformer layer: attention and feed-forward, each followed by residual and layer norm.

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, gemm, layer_norm,
};

use super::attention::{AttentionScratch, attend};
use crate::encoder::weights::{LayerWeights, LinearWeights, NormWeights};

/// A linear map with bias, `[N, inputs]` to `[N, outputs]`.
struct Linear {
    weight: PackedMatrix,
    bias: Vec<f32>,
}

impl Linear {
    fn new(LinearWeights { weight, bias }: LinearWeights) -> Self {
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
        Self { weight: PackedMatrix::new(Matrix::new(&weight, outputs, inputs, inputs)), bias }
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
        let x = view(x, self.weight.depth());
        let outputs = self.weight.outputs();
        y.resize(x.rows() * outputs, 0.0);
        let mut y = MatrixMut::new(y, x.rows(), outputs, outputs);
        gemm(isa, x, &self.weight, tail(&self.bias), &mut y, scratch);
    }
}

/// One layer.
pub(super) struct Layer {
    num_heads: usize,
    /// `H` to `3H`: queries, keys, values.
    query_key_value: Linear,
    attention_output: Linear,
    attention_norm: NormWeights,
    intermediate: Linear,
    output: Linear,
    output_norm: NormWeights,
}

/// Memory of one task, for `N` tokens.
#[derive(Default)]
pub(super) struct Workspace {
    /// Where each sequence starts, and the end of the last one.
    pub(super) starts: Vec<usize>,
    /// `[N, H]`: what goes into a layer and what comes out.
    pub(super) hidden: Vec<f32>,
    /// `[N, 3H]`.
    query_key_value: Vec<f32>,
    /// `[N, H]`: result of attention, before its output map.
    context: Vec<f32>,
    /// `[N, H]`: sums that layer norm reads.
    sums: Vec<f32>,
    /// `[N, F]`.
    intermediate: Vec<f32>,
    gemm: GemmScratch,
    attention: AttentionScratch,
}

impl Layer {
    pub(super) fn new(weights: LayerWeights, num_heads: usize) -> Self {
        Self {
            num_heads,
            query_key_value: Linear::new(weights.query_key_value),
            attention_output: Linear::new(weights.attention_output),
            attention_norm: weights.attention_norm,
            intermediate: Linear::new(weights.intermediate),
            output: Linear::new(weights.output),
            output_norm: weights.output_norm,
        }
    }

    /// `workspace.hidden` becomes the states after this layer.
    pub(super) fn forward(&self, isa: Isa, workspace: &mut Workspace) {
        let Workspace { hidden, query_key_value, context, sums, intermediate, gemm, .. } =
            workspace;
        self.query_key_value.apply(isa, hidden, Epilogue::Bias, query_key_value, gemm);
        context.resize(hidden.len(), 0.0);
        let scratch = (&mut workspace.attention, &mut *gemm);
        attend(isa, query_key_value, &workspace.starts, self.num_heads, context, scratch);
        let residual = view(hidden, self.attention_norm.gamma.len());
        let tail = |bias| Epilogue::BiasResidual(bias, residual);
        self.attention_output.apply(isa, context, tail, sums, gemm);
        normalise(isa, &self.attention_norm, sums, hidden);

        self.intermediate.apply(isa, hidden, Epilogue::BiasGelu, intermediate, gemm);
        let residual = view(hidden, self.output_norm.gamma.len());
        let tail = |bias| Epilogue::BiasResidual(bias, residual);
        self.output.apply(isa, intermediate, tail, sums, gemm);
        normalise(isa, &self.output_norm, sums, hidden);
    }
}

fn normalise(isa: Isa, norm: &NormWeights, x: &[f32], out: &mut [f32]) {
    layer_norm(isa, x, &norm.gamma, &norm.beta, norm.eps, out);
}

fn view(values: &[f32], width: usize) -> Matrix<'_> {
    Matrix::new(values, values.len() / width, width, width)
}
