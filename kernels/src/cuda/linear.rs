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
}

pub(super) enum LinearWeight {
    Bf16(Buffer<bf16>),
    Fp8 {
        values: Buffer<u8>,
        /// Factor of each output's sum of products; includes `x_scale`.
        scales: Buffer<f32>,
        x_scale: f32,
        bounds: Vec<f32>,
    },
}

impl Linear {
    /// Copies `weight` `[N, K]` and `bias` `[N]` to the GPU: in e4m3 if `input` bounds the rows
    /// of x, else in bf16. Sums of products are f32. Results are bf16, or in fp8 after GELU e4m3.
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
        let own = match input {
            None => LinearWeight::Bf16(stream.to_device(weight, PURPOSE)?),
            Some(input) => {
                stream.device().kernels().hopper()?;
                let Weights { values, scales, bounds } = Weights::new(weight, bias, input);
                let values = stream.to_device(&values, PURPOSE)?;
                let (scales, x_scale) = (stream.to_device(&scales, PURPOSE)?, input.scale());
                LinearWeight::Fp8 { values, scales, x_scale, bounds }
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
            LinearWeight::Fp8 { values, .. } => values.len(),
        };
        weights / self.bias.len()
    }

    /// Returns the scale that x has in e4m3, or 1 for x in bf16.
    pub fn x_scale(&self) -> f32 {
        match self.weight {
            LinearWeight::Bf16(_) => 1.0,
            LinearWeight::Fp8 { x_scale, .. } => x_scale,
        }
    }

    /// Returns upper bounds of the magnitudes of outputs `[N]` and of their GELU; only for fp8.
    pub fn bounds(&self) -> &[f32] {
        match &self.weight {
            LinearWeight::Bf16(_) => &[],
            LinearWeight::Fp8 { bounds, .. } => bounds,
        }
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
#[derive(Debug, Clone, Copy)]
pub enum MatmulEpilogue<'a> {
    /// Adds the bias.
    Bias,
    /// Adds the bias and applies GELU (with erf).
    Gelu,
    /// Adds the bias and this residual `[T, N]`.
    Residual(&'a Buffer<bf16>),
}

/// The left operand `[T, K]` of a product.
#[derive(Debug, Clone, Copy)]
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
