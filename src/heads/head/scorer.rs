//! Computes scores: outputs from rows of an embedding matrix, and logits from outputs.
//!
//! Only finite rows enter a matrix product. A row of a product depends only on its own input row
//! (see `polysift_kernels::gemm`), so a document's score does not depend on the blocks of rows.

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision, finite_rows, gelu,
    gemm, layer_norm, linear_f64, raise_to_row_max, relu,
};

use super::card::HeadSpec;
use crate::vectors::{BLOCK_ROWS, PackedRows, SearchScratch, normalised};
use polysift_config::{Activation, HeadKind, HeadOutput};

/// A linear layer: y = x Wᵀ + b.
#[derive(Debug, Clone)]
pub struct LinearLayer {
    /// `[outputs, inputs]` f32, row-major, as PyTorch stores it.
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
    /// `weight`, packed for the products.
    packed: PackedMatrix,
}

impl LinearLayer {
    pub(crate) fn new(weight: Vec<f32>, bias: Vec<f32>) -> Self {
        let inputs = weight.len() / bias.len().max(1);
        let matrix = Matrix::new(&weight, bias.len(), inputs, inputs);
        let packed = PackedMatrix::new(Isa::detect(), Precision::F32, matrix);
        Self { weight, bias, packed }
    }

    pub(crate) fn inputs(&self) -> usize {
        self.weight.len() / self.bias.len().max(1)
    }

    pub(crate) fn outputs(&self) -> usize {
        self.bias.len()
    }
}

/// One layer of an MLP head.
#[derive(Debug, Clone)]
pub enum HeadLayer {
    Linear(LinearLayer),
    Activation(Activation),
    /// The width is the length of `gamma`.
    LayerNorm {
        gamma: Vec<f32>,
        beta: Vec<f32>,
        eps: f64,
    },
}

impl HeadLayer {
    /// Returns the widths of input and output, or `None` if the layer takes any.
    pub(super) fn widths(&self) -> Option<(usize, usize)> {
        match self {
            Self::Linear(layer) => Some((layer.inputs(), layer.outputs())),
            Self::LayerNorm { gamma, .. } => Some((gamma.len(), gamma.len())),
            Self::Activation(_) => None,
        }
    }
}

/// Subtracts `mean` `[D]` from each of `rows` `[n, D]`.
pub(crate) fn centred(rows: &[f32], mean: &[f32]) -> Vec<f32> {
    rows.iter().zip(mean.iter().cycle()).map(|(x, mean)| x - mean).collect()
}

/// References of a cosine head, with unit norm.
#[derive(Debug, Clone)]
pub struct References {
    /// `[K, D]` f32, row-major.
    pub(crate) values: Vec<f32>,
    /// Width `D`.
    pub(crate) hidden_size: usize,
    /// Mean `[D]` that is subtracted from embeddings, as it was from the references.
    pub(crate) mean: Option<Vec<f32>>,
    /// `values`, packed for the products.
    packed: PackedRows,
}

impl References {
    /// Creates references from rows from which `mean` has been subtracted and that have unit norm.
    pub(crate) fn from_normalised(
        values: Vec<f32>,
        hidden_size: usize,
        mean: Option<Vec<f32>>,
    ) -> Self {
        let packed = PackedRows::new(&values, hidden_size);
        Self { values, hidden_size, mean, packed }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.hidden_size.max(1)
    }
}

/// Scoring function of a head.
#[derive(Debug, Clone)]
pub enum Scorer {
    /// At least one linear layer, as the last layer, and an activation of one kind between any two.
    Mlp(Vec<HeadLayer>),
    /// Largest cosine similarity to a reference.
    Cosine(References),
}

impl Scorer {
    /// Creates an MLP of linear layers with ReLU between them.
    pub(crate) fn mlp(layers: Vec<LinearLayer>) -> Self {
        let relu = HeadLayer::Activation(Activation::Relu);
        let with_relu = layers.into_iter().flat_map(|l| [relu.clone(), HeadLayer::Linear(l)]);
        Self::Mlp(with_relu.skip(1).collect())
    }

    /// Returns what the layers or references tell of a head's spec; the rest has its defaults.
    pub(crate) fn spec(&self) -> HeadSpec {
        let mut spec = HeadSpec { layer_sizes: vec![self.hidden_size()], ..HeadSpec::default() };
        match self {
            Self::Mlp(layers) => {
                for layer in layers {
                    match layer {
                        HeadLayer::Linear(layer) => spec.layer_sizes.push(layer.outputs()),
                        HeadLayer::Activation(one) => spec.activation = *one,
                        HeadLayer::LayerNorm { eps, .. } => spec.norm_eps = Some(*eps),
                    }
                }
            }
            Self::Cosine(references) => {
                spec.kind = HeadKind::Cosine;
                spec.layer_sizes.push(references.len());
            }
        }
        spec
    }

    /// Returns the width `D` of the embeddings.
    pub fn hidden_size(&self) -> usize {
        match self {
            Self::Mlp(layers) => layers.iter().find_map(HeadLayer::widths).unwrap_or((0, 0)).0,
            Self::Cosine(references) => references.hidden_size,
        }
    }

    /// Returns the number of outputs per row: the width of the last layer, or 1 for the similarity.
    fn num_outputs(&self) -> usize {
        match self {
            Self::Mlp(layers) => layers.last().and_then(HeadLayer::widths).unwrap_or((0, 1)).1,
            Self::Cosine(_) => 1,
        }
    }

    /// Computes the logits of the given `rows` of `matrix` `[_, D]` f32, in that order; NaN if a
    /// row or its logit is not finite. All rows must lie inside the matrix.
    pub(crate) fn logits(
        &self,
        matrix: &[f32],
        rows: &[usize],
        output: HeadOutput,
        scratch: &mut ScoreScratch,
    ) -> Vec<f32> {
        let mut outputs = Vec::with_capacity(rows.len() * self.num_outputs());
        for rows in rows.chunks(BLOCK_ROWS) {
            self.block_outputs(matrix, rows, scratch, &mut outputs);
        }
        let output = match self {
            Self::Mlp(_) => output,
            Self::Cosine(_) => HeadOutput::Raw,
        };
        let finite = |logit: f32| if logit.is_finite() { logit } else { f32::NAN };
        let rows = outputs.chunks_exact(self.num_outputs());
        rows.map(|row| finite(logit_of(row, output) as f32)).collect()
    }

    /// Appends the outputs `[rows.len(), num_outputs]` f64 of at most [`BLOCK_ROWS`] `rows` of
    /// `matrix`; NaN for rows that are not finite, or have no direction in a cosine head.
    fn block_outputs(
        &self,
        matrix: &[f32],
        rows: &[usize],
        scratch: &mut ScoreScratch,
        outputs: &mut Vec<f64>,
    ) {
        let (width, isa, count) = (self.hidden_size(), Isa::detect(), rows.len());
        let ScoreScratch { block, usable, states, search } = scratch;
        usable.clear();
        usable.resize(count, true);
        let start = outputs.len();
        outputs.resize(start + count * self.num_outputs(), f64::NAN);
        let outputs = &mut outputs[start..];
        match self {
            Self::Mlp(layers) => {
                let block = gather_rows(matrix, rows, width, block);
                finite_rows(isa, block, width, usable);
                mlp_outputs(layers, block, count, (states, &mut search.gemm), outputs);
            }
            Self::Cosine(references) => {
                let rows = gather_rows(matrix, rows, width, &mut states[0]);
                let centred = references.mean.as_ref().map(|mean| centred(rows, mean));
                block.clear();
                let rows = centred.as_deref().unwrap_or(rows).chunks_exact(width);
                for (usable, row) in usable.iter_mut().zip(rows) {
                    let unit = normalised(row);
                    *usable = unit.is_some();
                    // A row without direction enters the product as zeros.
                    block.extend(unit.unwrap_or_else(|| vec![0.0; width]));
                }
                let mut best = vec![f32::NEG_INFINITY; count];
                references.packed.compare(block, search, |_, n, similarities| {
                    raise_to_row_max(isa, similarities, n, &mut best);
                });
                for (output, best) in outputs.iter_mut().zip(best) {
                    *output = f64::from(best.min(1.0)); // rounding may go beyond 1
                }
            }
        }
        for (row, usable) in outputs.chunks_exact_mut(self.num_outputs()).zip(usable) {
            // ReLU would turn NaN and -inf into numbers.
            if !*usable {
                row.fill(f64::NAN);
            }
        }
    }
}

/// Memory of scoring that is reused between calls.
#[derive(Debug, Default)]
pub struct ScoreScratch {
    block: Vec<f32>,
    usable: Vec<bool>,
    states: [Vec<f32>; 2],
    search: SearchScratch,
}

/// Returns the `rows` of `matrix`: in place if they are consecutive, else copied to `memory`.
fn gather_rows<'a>(
    matrix: &'a [f32],
    rows: &[usize],
    width: usize,
    memory: &'a mut Vec<f32>,
) -> &'a [f32] {
    let first = rows.first().copied().unwrap_or_default();
    if rows.iter().enumerate().all(|(i, &row)| row == first + i) {
        return &matrix[first * width..(first + rows.len()) * width];
    }
    memory.clear();
    for &row in rows {
        memory.extend_from_slice(&matrix[row * width..(row + 1) * width]);
    }
    memory
}

/// Computes the `outputs` of `block` `[count, D]`; `states` is memory for the hidden layers.
fn mlp_outputs(
    layers: &[HeadLayer],
    block: &[f32],
    count: usize,
    (states, scratch): (&mut [Vec<f32>; 2], &mut GemmScratch),
    outputs: &mut [f64],
) {
    let Some((HeadLayer::Linear(last), hidden)) = layers.split_last() else { return };
    let (isa, [previous, next]) = (Isa::detect(), states);
    for (i, layer) in hidden.iter().enumerate() {
        let input = if i == 0 { block } else { previous.as_slice() };
        match layer {
            HeadLayer::Linear(layer) => {
                let (n, k) = (layer.outputs(), layer.inputs());
                next.resize(count * n, 0.0);
                let (x, mut y) =
                    (Matrix::new(input, count, k, k), MatrixMut::new(next, count, n, n));
                gemm(isa, x, &layer.packed, Epilogue::Bias(&layer.bias), &mut y, scratch);
                std::mem::swap(previous, next);
            }
            HeadLayer::LayerNorm { gamma, beta, eps } => {
                next.resize(input.len(), 0.0);
                layer_norm(isa, input, gamma, beta, *eps, next);
                std::mem::swap(previous, next);
            }
            // An activation follows another layer.
            HeadLayer::Activation(Activation::Relu) => relu(isa, previous),
            HeadLayer::Activation(Activation::Gelu) => gelu(isa, previous),
            // libm's tanh gives the same values on all machines; the platform's does not.
            HeadLayer::Activation(Activation::Tanh) => {
                for x in previous.iter_mut() {
                    *x = libm::tanh(f64::from(*x)) as f32;
                }
            }
        }
    }
    let input = if hidden.is_empty() { block } else { previous.as_slice() };
    linear_f64(isa, input, &last.weight, &last.bias, outputs);
}

/// Computes the logit of the `outputs` of a row: one output, the log-odds of a class, z_c - log(sum
/// over the others of exp(z)), or the mean class.
fn logit_of(outputs: &[f64], output: HeadOutput) -> f64 {
    match output {
        HeadOutput::Sigmoid | HeadOutput::Raw => outputs[0],
        HeadOutput::SigmoidOf(output) => outputs[output],
        HeadOutput::Class(class) => {
            let others = || outputs[..class].iter().chain(&outputs[class + 1..]).copied();
            let largest = others().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = others().map(|z| (z - largest).exp()).sum();
            outputs[class] - largest - sum.ln()
        }
        HeadOutput::Expected => {
            let largest = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights = || outputs.iter().map(|z| (z - largest).exp());
            let sum: f64 = weights().zip(0u32..).map(|(weight, k)| weight * f64::from(k)).sum();
            sum / weights().sum::<f64>()
        }
    }
}
