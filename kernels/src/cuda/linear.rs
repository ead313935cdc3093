//! Sizes, kind and operands of a matrix product on a GPU.

use half::bf16;

use super::error::{CudaError, Result};
use super::memory::Buffer;
use super::quantise::{Quantised, quantise_rows};
use super::stream::Stream;

/// Weights and bias of a linear map, on a GPU.
pub struct Linear {
    pub(super) weight: LinearWeight,
    pub(super) bias: Buffer<bf16>,
}

pub(super) enum LinearWeight {
    Bf16(Buffer<bf16>),
    /// One row per output.
    Fp8 {
        rows: Quantised,
        bound: Bound,
    },
}

/// Scale of e4m3 results: for a row of x with scale s it is `factor` s + `least`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    pub(super) factor: f32,
    pub(super) least: f32,
}

impl Bound {
    /// Bounds the results with Cauchy-Schwarz, so that none reaches 448 times its scale: the norm
    /// of K values is at most √K times the largest. Rounding a weight to e4m3 enlarges it by at
    /// most 1/16. `least` stays above the smallest numbers, because the kernel divides by it.
    fn new(weight: &[bf16], bias: &[bf16]) -> Self {
        let inputs = weight.len() / bias.len();
        let length = |row: &[bf16]| row.iter().map(|w| f64::from(*w).powi(2)).sum::<f64>().sqrt();
        let longest = weight.chunks_exact(inputs.max(1)).map(length).fold(0.0, f64::max);
        let largest = bias.iter().map(|b| f64::from(*b).abs()).fold(0.0, f64::max);
        let factor = longest * (inputs as f64).sqrt() * 17.0 / 16.0;
        Self { factor: factor as f32, least: (largest as f32).max(1e-30) / 448.0 }
    }
}

impl Linear {
    /// Copies `weight` `[N, K]` and `bias` `[N]` to the GPU, and quantises the weights for fp8.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the sizes do not fit; [`CudaError::Unsupported`] if the GPU has no
    /// fp8, or none for this K; the errors of [`super::Device::alloc`].
    pub fn new(
        stream: &Stream,
        weight: &[bf16],
        bias: &[bf16],
        precision: MatmulPrecision,
    ) -> Result<Self> {
        const PURPOSE: &str = "the weights";
        if bias.is_empty() || !weight.len().is_multiple_of(bias.len()) {
            let reason = format!("{} weights for {} outputs", weight.len(), bias.len());
            return Err(CudaError::shape("linear", reason));
        }
        let on_device = stream.to_device(weight, PURPOSE)?;
        let own = match precision {
            MatmulPrecision::Bf16 => LinearWeight::Bf16(on_device),
            MatmulPrecision::Fp8 => {
                let (rows, width) = (bias.len(), weight.len() / bias.len());
                let mut quantised = Quantised::new(stream.device(), rows, width, PURPOSE)?;
                quantise_rows(stream, &on_device, &mut quantised, (rows, width))?;
                LinearWeight::Fp8 { rows: quantised, bound: Bound::new(weight, bias) }
            }
        };
        Ok(Self { weight: own, bias: stream.to_device(bias, PURPOSE)? })
    }

    /// Returns the width N of the result.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Returns the width K of the input.
    pub fn inputs(&self) -> usize {
        let weights = match &self.weight {
            LinearWeight::Bf16(values) => values.len(),
            LinearWeight::Fp8 { rows, .. } => rows.values.len(),
        };
        weights / self.bias.len()
    }

    pub(super) fn is_fp8(&self) -> bool {
        matches!(self.weight, LinearWeight::Fp8 { .. })
    }
}

/// Operation on a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulEpilogue {
    /// Adds the bias.
    Bias,
    /// Adds the bias and applies GELU (with erf).
    Gelu,
    /// Adds the bias and [`Operands::residual`].
    Residual,
}

/// Type of the operands; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// Operands and results are bf16.
    Bf16,
    /// Operands are e4m3, with an f32 scale per row. Results are bf16, or e4m3 after GELU.
    Fp8,
}

/// Sizes and kind of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulShape {
    /// Number of rows T.
    pub tokens: usize,
    /// Width N of the result.
    pub outputs: usize,
    /// Width K of the input.
    pub inputs: usize,
    /// Operation on the result.
    pub epilogue: MatmulEpilogue,
    /// Type of the operands.
    pub precision: MatmulPrecision,
}

impl MatmulShape {
    /// Returns true if the result is e4m3. Each row then has a scale that is known before its
    /// values; no value reaches 448 times the scale.
    pub fn writes_fp8(&self) -> bool {
        self.precision == MatmulPrecision::Fp8 && self.epilogue == MatmulEpilogue::Gelu
    }

    /// Returns the error for operands or a kernel of another precision.
    pub(super) fn wrong_kind(&self) -> CudaError {
        let reason = format!("operands or a kernel of another kind than {:?}", self.precision);
        CudaError::shape("matrix product", reason)
    }
}

/// The left operand `[T, K]` of a product.
#[derive(Debug, Clone, Copy)]
pub enum LeftOperand<'a> {
    /// Rows in bf16.
    Bf16(&'a Buffer<bf16>),
    /// Rows in e4m3.
    Fp8(&'a Quantised),
}

/// The result `[T, N]` of a product.
#[derive(Debug)]
pub enum MatmulResult<'a> {
    /// Rows in bf16.
    Bf16(&'a mut Buffer<bf16>),
    /// Rows in e4m3, only of fp8 products with GELU.
    Fp8(&'a mut Quantised),
}

/// Operands of a matrix product.
pub struct Operands<'a> {
    /// Left operand.
    pub x: LeftOperand<'a>,
    /// Residual `[T, N]`, which [`MatmulEpilogue::Residual`] adds to the result.
    pub residual: Option<&'a Buffer<bf16>>,
    /// Result.
    pub y: MatmulResult<'a>,
}
