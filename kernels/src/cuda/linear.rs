//! Weights, operands and kind of a matrix product on a GPU.

use half::bf16;

use super::e4m3::{Bound, Output, Weights};
use super::error::{CudaError, Result};
use super::memory::Buffer;
use super::stream::Stream;

/// Weights and bias of a linear map, on a GPU.
pub struct Linear {
    pub(super) weight: LinearWeight,
    pub(super) bias: Buffer<bf16>,
    inputs: usize,
    x_scale: f32,
    bounds: Vec<f32>,
}

pub(super) enum LinearWeight {
    Bf16(Buffer<bf16>),
    Fp8 {
        values: Buffer<u8>,
        /// Factor of each output's sum of products; includes `x_scale`.
        scales: Buffer<f32>,
    },
}

impl Linear {
    /// Copies `weight` `[N, K]` and `bias` `[N]` to the GPU: in e4m3 if `input` bounds the rows
    /// of x, else in bf16. N and K are multiples of 8 (of 16 in e4m3), at most 2^24. Sums of
    /// products are f32. Results are bf16, or in fp8 after GELU e4m3.
    pub fn new(
        stream: &Stream,
        weight: &[bf16],
        bias: &[bf16],
        input: Option<Bound<'_>>,
    ) -> Result<Self> {
        const PURPOSE: &str = "the weights";
        if bias.is_empty() || !weight.len().is_multiple_of(bias.len()) {
            let reason = format!("{} weights for {} outputs", weight.len(), bias.len());
            return Err(CudaError::shape("linear", reason));
        }
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
        let step = if input.is_some() { 16 } else { 8 };
        if [outputs, inputs].iter().any(|n| *n == 0 || !n.is_multiple_of(step) || *n > 1 << 24) {
            let reason = format!("a map of {inputs} values to {outputs}; multiples of {step} are");
            return Err(CudaError::Unsupported(reason));
        }
        let (weight, x_scale, bounds) = match input {
            None => (LinearWeight::Bf16(stream.to_device(weight, PURPOSE)?), 1.0, Vec::new()),
            Some(input) => {
                stream.device().kernels().check_hopper()?;
                let Weights { values, scales, bounds } = Weights::new(weight, bias, input);
                let values = stream.to_device(&values, PURPOSE)?;
                let scales = stream.to_device(&scales, PURPOSE)?;
                (LinearWeight::Fp8 { values, scales }, input.scale(), bounds)
            }
        };
        Ok(Self { weight, bias: stream.to_device(bias, PURPOSE)?, inputs, x_scale, bounds })
    }

    /// Returns the width N of the result.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Returns the width K of the input.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Returns the scale that x has in e4m3, or 1 for x in bf16.
    pub fn x_scale(&self) -> f32 {
        self.x_scale
    }

    /// Returns upper bounds of the magnitudes of outputs `[N]` and of their GELU; only for fp8.
    pub fn bounds(&self) -> &[f32] {
        &self.bounds
    }

    /// Returns true if the result of a product with this epilogue is e4m3.
    pub fn writes_fp8(&self, epilogue: MatmulEpilogue<'_>) -> bool {
        self.is_fp8() && matches!(epilogue, MatmulEpilogue::Gelu)
    }

    pub(super) fn is_fp8(&self) -> bool {
        matches!(self.weight, LinearWeight::Fp8 { .. })
    }
}

/// Operation on a product before it is written.
#[derive(Clone, Copy)]
pub enum MatmulEpilogue<'a> {
    /// Adds the bias.
    Bias,
    /// Adds the bias and applies GELU (with erf).
    Gelu,
    /// Adds the bias and this residual `[T, N]`.
    Residual(&'a Buffer<bf16>),
}

impl MatmulEpilogue<'_> {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bias => "bias",
            Self::Gelu => "gelu",
            Self::Residual(_) => "residual",
        }
    }
}

/// The left operand `[T, K]` of a product.
#[derive(Clone, Copy)]
pub enum LeftOperand<'a> {
    /// Rows in bf16.
    Bf16(&'a Buffer<bf16>),
    /// Rows in e4m3, with the scale of [`Linear::x_scale`].
    Fp8(&'a Buffer<u8>),
}

impl LeftOperand<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bf16(rows) => rows.len(),
            Self::Fp8(rows) => rows.len(),
        }
    }
}

/// Operands of a matrix product with a [`Linear`] map.
pub struct Operands<'a> {
    /// Number of rows T.
    pub rows: usize,
    /// Left operand.
    pub x: LeftOperand<'a>,
    /// Operation on the result.
    pub epilogue: MatmulEpilogue<'a>,
    /// Result `[T, N]`: in e4m3 if [`Linear::writes_fp8`].
    pub y: Output<'a>,
}
