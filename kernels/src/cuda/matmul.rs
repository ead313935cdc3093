//! Matrix products with a fused epilogue.

use super::e4m3::Output;
use super::error::{CudaError, Result, check_len};
use super::instructions::MatrixInstructions;
use super::linear::{
    LeftOperand, Linear, LinearWeight, MatmulEpilogue, MatmulPrecision, MatmulShape, Operands,
};
use super::memory::Buffer;
use super::module::Function;
use super::stream::{Absent, Argument, Grid, Stream};
use super::tensor_map::{TensorMap, TileRow};

/// Rows of a tile of y. Tile size: 128 x 128 (mma.sync), 128 x 192 (wgmma).
pub(super) const TILE_ROWS: usize = 128;
/// Columns of a tile of y of the wgmma kernels.
pub(super) const TILE_OUTPUTS: usize = 192;
/// Bytes of each row of x that one step of the wgmma kernels takes.
pub(super) const STEP_BYTES: usize = 128;
/// Tiles per multiprocessor after which the wgmma kernels have reused all their memory.
const COMPARED_TILES: usize = 6;

/// Queues `y` `[T, N]` = epilogue(`x` `[T, K]` · `w` `[N, K]`ᵀ + `b`) with `linear`'s `w` and `b`;
/// N and K are multiples of 8 (of 16 in fp8).
pub fn matmul(
    stream: &Stream,
    shape: MatmulShape,
    linear: &Linear,
    operands: &Operands<'_>,
    instructions: MatrixInstructions,
) -> Result<()> {
    shape.check(linear, operands)?;
    match instructions {
        MatrixInstructions::Warp => shape.run_warp(stream, linear, operands),
        MatrixInstructions::Warpgroup => shape.run_warpgroup(stream, linear, operands),
    }
}

impl MatmulShape {
    /// Returns this shape with no more rows than [`MatrixInstructions::agreeing`] needs.
    #[must_use]
    pub fn for_comparison(self, stream: &Stream) -> Self {
        let multiprocessors = stream.device().info().multiprocessors.max(1) as usize;
        let across = self.outputs.div_ceil(TILE_OUTPUTS).max(1);
        let rows = TILE_ROWS * (COMPARED_TILES * multiprocessors).div_ceil(across);
        Self { tokens: self.tokens.min(rows), ..self }
    }

    fn check(self, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
        const OP: &str = "matrix product";
        let Self { tokens, outputs, inputs, epilogue, precision } = self;
        let is_fp8 = precision == MatmulPrecision::Fp8;
        let step = if is_fp8 { 16 } else { 8 };
        let odd = [outputs, inputs].iter().any(|n| *n == 0 || !n.is_multiple_of(step));
        let large = [tokens, outputs, inputs].iter().any(|&n| n > 1 << 24);
        if tokens == 0 || odd || large {
            return Err(CudaError::unsupported(format!(
                "a matrix product of {tokens} x {inputs} with {outputs} x {inputs}; widths that \
                 are multiples of {step} are"
            )));
        }
        let (n, k) = (linear.outputs(), linear.inputs());
        if (n, k) != (outputs, inputs) || linear.is_fp8() != is_fp8 {
            let reason = format!("weights of {n} x {k}, not {outputs} x {inputs} in {precision:?}");
            return Err(CudaError::shape(OP, reason));
        }
        let Operands { x, residual, y } = operands;
        check_len(OP, "x", x.len(), tokens.checked_mul(inputs))?;
        check_len(OP, "y", y.len(), tokens.checked_mul(outputs))?;
        if matches!(y, Output::Fp8(..)) != self.writes_fp8() {
            return Err(self.wrong_kind());
        }
        if epilogue == MatmulEpilogue::Residual {
            let len = residual.map_or(0, Buffer::len);
            check_len(OP, "the residual", len, tokens.checked_mul(outputs))?;
        }
        Ok(())
    }

    fn run_warp(self, stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
        let (LinearWeight::Bf16(weight), LeftOperand::Bf16(x), Output::Bf16(y)) =
            (&linear.weight, operands.x, &operands.y)
        else {
            return Err(self.wrong_kind());
        };
        let MatmulShape { tokens, outputs, inputs, .. } = self;
        let blocks = (outputs.div_ceil(TILE_ROWS) as u32, tokens.div_ceil(TILE_ROWS) as u32);
        let function = self.of_epilogue(&stream.device().kernels().matmul);
        let residual = operands.residual.map_or(&Absent as &dyn Argument, |residual| residual as _);
        let [tokens, outputs, inputs] = [tokens, outputs, inputs].map(|n| n as i32);
        let (bias, y) = (&linear.bias, &**y);
        let arguments: [&dyn Argument; 8] =
            [x, weight, bias, residual, y, &tokens, &outputs, &inputs];
        // SAFETY: the arguments match matmul.cu; `matmul` checked the sizes.
        unsafe { stream.launch(function, Grid { blocks, threads: 128 }, &arguments) }
    }

    fn run_warpgroup(
        self,
        stream: &Stream,
        linear: &Linear,
        operands: &Operands<'_>,
    ) -> Result<()> {
        let device = stream.device();
        let hopper = device.kernels().hopper()?;
        let MatmulShape { tokens, outputs, inputs, .. } = self;
        let (x_sizes, w_sizes, y_sizes) = ((tokens, inputs), (outputs, inputs), (tokens, outputs));
        let rows = (TILE_ROWS as u32, TileRow::Bytes128);
        let columns = (TILE_OUTPUTS as u32, TileRow::Bytes128);
        let y = match &operands.y {
            Output::Bf16(y) => TensorMap::new(&**y, y_sizes, rows)?,
            Output::Fp8(y, _) => {
                TensorMap::new(&**y, y_sizes, (TILE_ROWS as u32, TileRow::Bytes64))?
            }
        };
        let (_, inverse) = operands.y.arguments(device)?;
        let residual = match operands.residual {
            Some(residual) => TensorMap::new(residual, y_sizes, rows)?,
            None => y.clone(), // kernels without a residual do not read it
        };
        let (x, w, scales, functions) = match (&linear.weight, operands.x) {
            (LinearWeight::Bf16(w), LeftOperand::Bf16(x)) => (
                TensorMap::new(x, x_sizes, rows)?,
                TensorMap::new(w, w_sizes, columns)?,
                &Absent as &dyn Argument,
                &hopper.matmul,
            ),
            (LinearWeight::Fp8 { values, scales, .. }, LeftOperand::Fp8(x)) => (
                TensorMap::new(x, x_sizes, rows)?,
                TensorMap::new(values, w_sizes, columns)?,
                scales as &dyn Argument,
                &hopper.matmul_fp8,
            ),
            _ => return Err(self.wrong_kind()),
        };
        let tiles = tokens.div_ceil(TILE_ROWS) * outputs.div_ceil(TILE_OUTPUTS);
        let value_bytes = if linear.is_fp8() { 1 } else { 2 };
        let steps = (inputs * value_bytes).div_ceil(STEP_BYTES);
        let blocks = tiles.min(device.info().multiprocessors.max(1) as usize);
        let [outputs, steps, tiles] = [outputs, steps, tiles].map(|n| n as i32);
        let arguments: [&dyn Argument; 10] =
            [&x, &w, &y, &residual, &linear.bias, scales, &inverse, &outputs, &steps, &tiles];
        let grid = Grid::line(blocks as u32, 384);
        // SAFETY: the arguments match matmul_hopper.cu; `matmul` checked the sizes.
        unsafe { stream.launch(self.of_epilogue(functions), grid, &arguments) }
    }

    fn of_epilogue(self, functions: &[Function; 3]) -> Function {
        functions[match self.epilogue {
            MatmulEpilogue::Bias => 0,
            MatmulEpilogue::Gelu => 1,
            MatmulEpilogue::Residual => 2,
        }]
    }
}
