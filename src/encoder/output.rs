//! Turns pooled states into embeddings: applies the linear maps, the truncation and the norm that
//! follow a device's pooling, in f32 on the CPU. A row depends only on its own states.

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision, gemm,
};
use rayon::prelude::*;

use super::encode::{Encoder, EncoderInfo};
use polysift_base::batch::PackedBatch;
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;

/// Number of rows that go through the linear maps together: whole tiles with AVX2 and AVX-512.
const BLOCK_ROWS: usize = 126;

/// The steps from a sequence's pooled state to its embedding, in the order of the fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    pub(super) dense: Vec<Dense>,
    /// Number of leading values that are kept: the width of an embedding.
    pub(super) embedding_size: usize,
    /// Whether embeddings are divided by their L2 norm, unless it is 0.
    pub(super) normalize: bool,
}

/// A linear map of pooled states, `[B, inputs]` to `[B, outputs]`.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    /// BLAKE3 of the map's files, in hex.
    pub(super) digest: String,
    weight: PackedMatrix,
    bias: Vec<f32>,
    /// Whether tanh follows the map.
    tanh: bool,
}

impl Dense {
    /// Packs a map with `weight` `[outputs, inputs]` and `bias` `[outputs]`.
    pub(crate) fn new(digest: String, weight: &[f32], bias: Vec<f32>, tanh: bool) -> Self {
        let inputs = weight.len() / bias.len().max(1);
        let weight = Matrix::new(weight, bias.len(), inputs, inputs);
        let weight = PackedMatrix::new(Isa::detect(), Precision::F32, weight);
        Self { digest, weight, bias, tanh }
    }

    pub(super) fn inputs(&self) -> usize {
        self.weight.k()
    }

    pub(super) fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Computes `[B, outputs]` from `x` `[B, inputs]`.
    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let (inputs, outputs) = (self.inputs(), self.outputs());
        let rows = x.len() / inputs;
        let mut values = vec![0.0; rows * outputs];
        let x = Matrix::new(x, rows, inputs, inputs);
        let mut y = MatrixMut::new(&mut values, rows, outputs, outputs);
        let (bias, mut scratch) = (Epilogue::Bias(&self.bias), GemmScratch::default());
        gemm(Isa::detect(), x, &self.weight, bias, &mut y, &mut scratch);
        if self.tanh {
            // The tanh of `libm` is equal on all machines.
            for value in &mut values {
                *value = libm::tanh(f64::from(*value)) as f32;
            }
        }
        values
    }
}

impl Output {
    /// Returns `pooled` followed by these steps, or as it is if they change nothing.
    pub(super) fn wrap_encoder(&self, pooled: Box<dyn Encoder>) -> Box<dyn Encoder> {
        let is_whole = self.embedding_size == pooled.info().hidden_size;
        if self.dense.is_empty() && is_whole && !self.normalize {
            return pooled;
        }
        let info = EncoderInfo { embedding_size: self.embedding_size, ..pooled.info().clone() };
        Box::new(OutputEncoder { info, pooled, output: self.clone() })
    }

    /// Computes embeddings `[B, D]` from pooled states `[B, width]`.
    fn apply(&self, states: &[f32], width: usize) -> Vec<f32> {
        let mut values = states.to_vec();
        for dense in &self.dense {
            values = dense.apply(&values);
        }
        let width = self.dense.last().map_or(width, Dense::outputs);
        if self.embedding_size < width {
            let rows = values.chunks_exact(width);
            values = rows.flat_map(|row| &row[..self.embedding_size]).copied().collect();
        }
        if self.normalize {
            for row in values.chunks_exact_mut(self.embedding_size) {
                let norm = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
                if norm != 0.0 {
                    for value in row {
                        *value = (f64::from(*value) / norm) as f32;
                    }
                }
            }
        }
        values
    }
}

struct OutputEncoder {
    info: EncoderInfo,
    pooled: Box<dyn Encoder>,
    output: Output,
}

impl Encoder for OutputEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()> {
        self.info.check(batch, embeddings)?;
        let (width, size) = (self.info.hidden_size, self.info.embedding_size);
        let mut states = vec![f32::NAN; batch.num_sequences() * width];
        let outcome = self.pooled.encode(batch, &mut states, stop);
        if !matches!(outcome, Ok(()) | Err(Error::Stopped)) {
            return outcome;
        }
        let blocks = states.par_chunks(BLOCK_ROWS * width);
        blocks.zip(embeddings.par_chunks_mut(BLOCK_ROWS * size)).for_each(|(states, out)| {
            let applied = self.output.apply(states, width);
            let rows = states.chunks_exact(width).zip(applied.chunks_exact(size));
            for ((states, row), out) in rows.zip(out.chunks_exact_mut(size)) {
                // After a stop, the rows of unfinished sequences stay unchanged.
                if outcome.is_ok() || states.iter().all(|value| value.is_finite()) {
                    out.copy_from_slice(row);
                }
            }
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_pass_the_maps_the_cut_and_the_norm_in_this_order() {
        // Maps [x, y] to [x + 2y + 1, 3x, 0], then to tanh of twice that, truncated to two values.
        let dense = vec![
            Dense::new("a".into(), &[1., 2., 3., 0., 0., 0.], vec![1., 0., 0.], false),
            Dense::new("b".into(), &[2., 0., 0., 0., 2., 0., 0., 0., 1.], vec![0.; 3], true),
        ];
        let output = Output { dense, embedding_size: 2, normalize: true };
        let embeddings = output.apply(&[0.1, 0.2, -0.5, -0.25], 2);
        let (x, y) = ((2.0 * 1.5f64).tanh(), (2.0 * 0.3f64).tanh());
        let norm = x.hypot(y);
        for (value, expected) in embeddings.iter().zip([x / norm, y / norm, 0.0, -1.0]) {
            assert!((f64::from(*value) - expected).abs() < 1e-6, "{embeddings:?}");
        }
        assert_eq!(embeddings.len(), 4);
    }

    #[test]
    fn a_zero_vector_stays_and_what_is_not_finite_stays_so() {
        let output = Output { dense: Vec::new(), embedding_size: 2, normalize: true };
        let embeddings = output.apply(&[0., 0., 1., f32::NAN, f32::INFINITY, 1., 3e38, 3e38], 2);
        assert_eq!(embeddings[..2], [0., 0.]);
        assert!(embeddings[2..6].chunks(2).all(|row| !row.iter().all(|x| x.is_finite())));
        assert!(embeddings[6..].iter().all(|x| (x - 0.5f32.sqrt()).abs() < 1e-6));
    }
}
