//! The arithmetic of scoring on the CPU: rows of an embedding matrix to outputs, outputs to logits.
//!
//! Rows are gathered into blocks of exactly [`BLOCK_ROWS`], the last one filled up with zeros, so
//! that every matrix product has one shape and the order of its additions is the same for each row
//! wherever it lies. Only rows that are finite enter a product.

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use crate::config::Activation;
use crate::error::Result;

/// Rows of one matrix product. 256 rows of 768 f32 fit the second-level cache.
const BLOCK_ROWS: usize = 256;

/// One linear layer.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    /// `[outputs, inputs]` f32, row-major, as PyTorch stores it.
    pub(crate) weight: Vec<f32>,
    /// `[outputs]` f32.
    pub(crate) bias: Vec<f32>,
    /// `weight` as `[inputs, outputs]`, the layout of the products.
    transposed: Tensor,
}

impl Linear {
    /// A layer of `weight` `[outputs, inputs]` and `bias` `[outputs]`.
    pub(crate) fn new(weight: Vec<f32>, bias: Vec<f32>) -> Result<Self> {
        let shape = (bias.len(), weight.len() / bias.len().max(1));
        let transposed = Tensor::from_slice(&weight, shape, &Device::Cpu)?.t()?.contiguous()?;
        Ok(Self { weight, bias, transposed })
    }

    /// Width of the input.
    pub(crate) fn inputs(&self) -> usize {
        self.weight.len() / self.bias.len().max(1)
    }

    /// Width of the output.
    pub(crate) fn outputs(&self) -> usize {
        self.bias.len()
    }
}

/// The references of a cosine head, of unit norm.
#[derive(Debug, Clone)]
pub(crate) struct References {
    /// `[K, D]` f32, row-major.
    pub(crate) values: Vec<f32>,
    /// Width `D`.
    pub(crate) hidden_size: usize,
    /// `values` as `[D, K]`, the layout of the products.
    transposed: Tensor,
}

impl References {
    /// References whose rows already have unit norm.
    pub(crate) fn from_normalised(values: Vec<f32>, hidden_size: usize) -> Result<Self> {
        let shape = (values.len() / hidden_size.max(1), hidden_size);
        let transposed = Tensor::from_slice(&values, shape, &Device::Cpu)?.t()?.contiguous()?;
        Ok(Self { values, hidden_size, transposed })
    }

    /// Number K.
    pub(crate) fn len(&self) -> usize {
        self.values.len() / self.hidden_size.max(1)
    }
}

/// `row` divided by its L2 norm, computed in f64; `None` if that norm is zero or not finite.
pub(crate) fn normalised(row: &[f32]) -> Option<Vec<f32>> {
    let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    (norm > 0.0 && norm.is_finite())
        .then(|| row.iter().map(|&x| (f64::from(x) / norm) as f32).collect())
}

/// What a head computes with.
#[derive(Debug, Clone)]
pub(crate) enum Scorer {
    /// At least one layer; ReLU between them.
    Mlp(Vec<Linear>),
    /// Largest cosine similarity.
    Cosine(References),
}

impl Scorer {
    /// Width `D` of the embeddings.
    pub(crate) fn hidden_size(&self) -> usize {
        match self {
            Self::Mlp(layers) => layers.first().map_or(0, Linear::inputs),
            Self::Cosine(references) => references.hidden_size,
        }
    }

    /// Widths of all layers, as in `HeadSpec::layer_sizes`.
    pub(crate) fn layer_sizes(&self) -> Vec<usize> {
        match self {
            Self::Mlp(layers) => {
                [self.hidden_size()].into_iter().chain(layers.iter().map(Linear::outputs)).collect()
            }
            Self::Cosine(references) => vec![references.hidden_size, references.len()],
        }
    }

    /// Values that a row gives: those of the last layer, or the one similarity.
    fn num_outputs(&self) -> usize {
        match self {
            Self::Mlp(layers) => layers.last().map_or(1, Linear::outputs),
            Self::Cosine(_) => 1,
        }
    }

    /// Logits of the given `rows` of `matrix` `[_, D]` f32, in that order; NaN where the row or its
    /// logit is not finite. Every row must lie inside the matrix.
    pub(crate) fn logits(
        &self,
        matrix: &[f32],
        rows: &[usize],
        activation: Activation,
    ) -> Result<Vec<f32>> {
        Ok(self.to_logits(&self.outputs(matrix, rows)?, activation))
    }

    /// The logits of rows whose `outputs` `[n, num_outputs]` a device computed.
    pub(super) fn to_logits(&self, outputs: &[f64], activation: Activation) -> Vec<f32> {
        let activation = match self {
            Self::Mlp(_) => activation,
            Self::Cosine(_) => Activation::Raw,
        };
        let finite = |logit: f32| if logit.is_finite() { logit } else { f32::NAN };
        let rows = outputs.chunks_exact(self.num_outputs());
        rows.map(|row| finite(logit(row, activation) as f32)).collect()
    }

    /// Outputs `[rows.len(), num_outputs]` f64 of the given `rows` of `matrix`, on the CPU; NaN for
    /// a row that is not finite or, before references, has no direction.
    fn outputs(&self, matrix: &[f32], rows: &[usize]) -> Result<Vec<f64>> {
        let blocks: Vec<Vec<f64>> = rows
            .par_chunks(BLOCK_ROWS)
            .map(|rows| self.block_outputs(matrix, rows))
            .collect::<Result<_>>()?;
        Ok(blocks.concat())
    }

    /// Outputs of at most [`BLOCK_ROWS`] rows.
    fn block_outputs(&self, matrix: &[f32], rows: &[usize]) -> Result<Vec<f64>> {
        let width = self.hidden_size();
        let mut block = vec![0.0f32; BLOCK_ROWS * width];
        let mut usable = vec![false; rows.len()];
        for ((target, usable), &row) in block.chunks_exact_mut(width).zip(&mut usable).zip(rows) {
            let row = &matrix[row * width..(row + 1) * width];
            *usable = match self {
                // ReLU would turn NaN and -inf into numbers, so such rows are kept out.
                Self::Mlp(_) if row.iter().all(|x| x.is_finite()) => {
                    target.copy_from_slice(row);
                    true
                }
                Self::Mlp(_) => false,
                Self::Cosine(_) => {
                    normalised(row).map(|unit| target.copy_from_slice(&unit)).is_some()
                }
            };
        }
        let block = Tensor::from_vec(block, (BLOCK_ROWS, width), &Device::Cpu)?;
        let mut outputs = match self {
            Self::Mlp(layers) => mlp_outputs(layers, block, rows.len())?,
            Self::Cosine(references) => {
                let similarities = block.matmul(&references.transposed)?.flatten_all()?;
                let similarities = similarities.to_vec1::<f32>()?;
                let best =
                    |row: &[f32]| row.iter().copied().fold(f32::NEG_INFINITY, f32::max).min(1.0);
                let rows = similarities.chunks_exact(references.len()).take(rows.len());
                rows.map(|row| f64::from(best(row))).collect()
            }
        };
        for (row, usable) in outputs.chunks_exact_mut(self.num_outputs()).zip(usable) {
            if !usable {
                row.fill(f64::NAN);
            }
        }
        Ok(outputs)
    }
}

/// Outputs of the first `num_rows` rows of `block` `[BLOCK_ROWS, D]`.
fn mlp_outputs(layers: &[Linear], block: Tensor, num_rows: usize) -> Result<Vec<f64>> {
    let Some((last, hidden)) = layers.split_last() else {
        return Ok(Vec::new());
    };
    let mut states = block;
    for layer in hidden {
        let bias = Tensor::from_slice(&layer.bias, layer.outputs(), &Device::Cpu)?;
        states = states.matmul(&layer.transposed)?.broadcast_add(&bias)?.relu()?;
    }
    let states = states.flatten_all()?.to_vec1::<f32>()?;
    let outputs = states.chunks_exact(last.inputs()).take(num_rows).flat_map(|state| {
        let weights = last.weight.chunks_exact(last.inputs());
        weights.zip(&last.bias).map(|(weight, &bias)| dot(state, weight) + f64::from(bias))
    });
    Ok(outputs.collect())
}

/// Dot product in f64, as eight interleaved sums so that it needs no long chain of additions.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0f64; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += f64::from(x[lane]) * f64::from(y[lane]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
    sums.iter().sum::<f64>() + rest
}

/// The logit of `outputs`: the first of them, or for softmax the log-odds of the class,
/// z_c - log(sum over the others of exp(z)).
fn logit(outputs: &[f64], activation: Activation) -> f64 {
    match activation {
        Activation::Sigmoid | Activation::Raw => outputs[0],
        Activation::Softmax { class } => {
            let others =
                || outputs.iter().enumerate().filter(|&(i, _)| i != class).map(|(_, &z)| z);
            let largest = others().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = others().map(|z| (z - largest).exp()).sum();
            outputs[class] - largest - sum.ln()
        }
    }
}
