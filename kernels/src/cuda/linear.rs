//! What a matrix product is made of: its sizes and kind, and its operands on a GPU.

use half::bf16;

use super::error::{CudaError, Result};
use super::memory::Buffer;
use super::quantise::{Quantised, quantise_rows};
use super::stream::Stream;

/// Weights of a linear map, on a GPU.
pub struct Linear {
    pub(super) weight: LinearWeight,
    pub(super) bias: Buffer<bf16>,
}

pub(super) enum LinearWeight {
    Bf16(Buffer<bf16>),
    /// A row for each output.
    Fp8 {
        rows: Quantised,
        bound: Bound,
    },
}

/// No result for a row with the scale x reaches 448 times `factor` x + `least`, the scale of its results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bound {
    pub(super) factor: f32,
    pub(super) least: f32,
}

impl Bound {
    /// By Cauchy and Schwarz: a row of K values is at most √K of its largest long. Rounding a weight to
    /// e4m3 makes it longer by a sixteenth at most; `least` is above the smallest numbers, as it divides.
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
    /// Copies `weight` `[N, K]` and `bias` `[N]` to the GPU, where the weights are quantised for products
    /// in fp8.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the sizes do not fit; [`CudaError::Unsupported`] if the GPU has no fp8, or
    /// not for K; as [`super::Device::alloc`].
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

    /// Width N of the result.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Width K of the input.
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

/// What happens to a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulEpilogue {
    /// The bias is added.
    Bias,
    /// The bias is added, then GELU by erf.
    Gelu,
    /// The bias is added, and [`Operands::residual`].
    Residual,
}

/// Which values are multiplied; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// bf16; results are bf16.
    Bf16,
    /// e4m3, each row of either operand with a scale in f32. Results are bf16, but after GELU e4m3.
    Fp8,
}

/// Sizes and kind of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulShape {
    /// Rows T.
    pub tokens: usize,
    /// Width N of the result.
    pub outputs: usize,
    /// Width K of the input.
    pub inputs: usize,
    /// What comes after.
    pub epilogue: MatmulEpilogue,
    /// What is multiplied.
    pub precision: MatmulPrecision,
}

impl MatmulShape {
    /// Whether the result is e4m3, each row with a scale that no value of it reaches 448 times: the scale
    /// is known before the values are.
    pub fn writes_fp8(&self) -> bool {
        self.precision == MatmulPrecision::Fp8 && self.epilogue == MatmulEpilogue::Gelu
    }

    /// The error of operands or a kernel of another precision.
    pub(super) fn wrong_kind(&self) -> CudaError {
        let reason = format!("operands or a kernel of another kind than {:?}", self.precision);
        CudaError::shape("matrix product", reason)
    }
}

/// The left operand `[T, K]` of a product.
#[derive(Debug, Clone, Copy)]
pub enum LeftOperand<'a> {
    /// bf16.
    Bf16(&'a Buffer<bf16>),
    /// e4m3.
    Fp8(&'a Quantised),
}

/// The result `[T, N]` of a product.
#[derive(Debug)]
pub enum MatmulResult<'a> {
    /// bf16.
    Bf16(&'a mut Buffer<bf16>),
    /// e4m3: of products in fp8 with GELU.
    Fp8(&'a mut Quantised),
}

/// What a product works on.
pub struct Operands<'a> {
    /// Input.
    pub x: LeftOperand<'a>,
    /// `[T, N]`, added to the result if the epilogue is [`MatmulEpilogue::Residual`].
    pub residual: Option<&'a Buffer<bf16>>,
    /// Result.
    pub y: MatmulResult<'a>,
}
