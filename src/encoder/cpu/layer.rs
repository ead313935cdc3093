//! One transformer layer: attention and feed-forward, each followed by residual and layer norm.

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, gemm, layer_norm,
};

use super::attention::{AttentionScratch, attend};
use crate::encoder::architecture::Architecture;
use crate::encoder::weights::Weights;
use crate::error::Result;

/// Layer norm's weights.
pub(super) struct Norm {
    pub(super) gamma: Vec<f32>,
    pub(super) beta: Vec<f32>,
    pub(super) eps: f64,
}

impl Norm {
    pub(super) fn load(
        weights: &mut Weights<'_>,
        name: &str,
        config: &Architecture,
    ) -> Result<Self> {
        let shape = [config.hidden_size];
        Ok(Self {
            gamma: weights.tensor(&format!("{name}.weight"), &shape)?,
            beta: weights.tensor(&format!("{name}.bias"), &shape)?,
            eps: config.layer_norm_eps,
        })
    }

    fn apply(&self, isa: Isa, x: &[f32], out: &mut [f32]) {
        layer_norm(isa, x, &self.gamma, &self.beta, self.eps, out);
    }
}

/// A linear map with bias, `[N, inputs]` to `[N, outputs]`.
struct Linear {
    weight: PackedMatrix,
    bias: Vec<f32>,
}

impl Linear {
    /// Loads `names`, which all have the same input, as one map with their outputs side by side.
    fn load(
        weights: &mut Weights<'_>,
        names: &[String],
        outputs: usize,
        inputs: usize,
    ) -> Result<Self> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            weight.extend(weights.tensor(&format!("{name}.weight"), &[outputs, inputs])?);
            bias.extend(weights.tensor(&format!("{name}.bias"), &[outputs])?);
        }
        let weight = Matrix::new(&weight, outputs * names.len(), inputs, inputs);
        Ok(Self { weight: PackedMatrix::new(weight), bias })
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
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
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
    pub(super) fn load(weights: &mut Weights<'_>, i: usize, config: &Architecture) -> Result<Self> {
        let (h, f) = (config.hidden_size, config.intermediate_size);
        let name = |part: &str| format!("encoder.layer.{i}.{part}");
        let heads = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        Ok(Self {
            num_heads: config.num_attention_heads,
            query_key_value: Linear::load(weights, &heads, h, h)?,
            attention_output: Linear::load(weights, &[name("attention.output.dense")], h, h)?,
            attention_norm: Norm::load(weights, &name("attention.output.LayerNorm"), config)?,
            intermediate: Linear::load(weights, &[name("intermediate.dense")], f, h)?,
            output: Linear::load(weights, &[name("output.dense")], h, f)?,
            output_norm: Norm::load(weights, &name("output.LayerNorm"), config)?,
        })
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
        self.attention_norm.apply(isa, sums, hidden);

        self.intermediate.apply(isa, hidden, Epilogue::BiasGelu, intermediate, gemm);
        let residual = view(hidden, self.output_norm.gamma.len());
        let tail = |bias| Epilogue::BiasResidual(bias, residual);
        self.output.apply(isa, intermediate, tail, sums, gemm);
        self.output_norm.apply(isa, sums, hidden);
    }
}

fn view(values: &[f32], width: usize) -> Matrix<'_> {
    Matrix::new(values, values.len() / width, width, width)
}
