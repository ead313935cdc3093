//! Matrix products with a fused epilogue.

use super::e4m3::Output;
use super::error::{CudaError, Result, check_len};
use super::instructions::MatrixInstructions;
use super::linear::{LeftOperand, Linear, LinearWeight, MatmulEpilogue, Operands};
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
    linear: &Linear,
    operands: &Operands<'_>,
    instructions: MatrixInstructions,
) -> Result<()> {
    check(linear, operands)?;
    match instructions {
        MatrixInstructions::Warp => run_warp(stream, linear, operands),
        MatrixInstructions::Warpgroup => run_warpgroup(stream, linear, operands),
    }
}

/// Returns at most `rows` rows: no more than [`MatrixInstructions::agreeing`] needs for a product
/// with `outputs` columns.
pub fn rows_to_compare(stream: &Stream, rows: usize, outputs: usize) -> usize {
    let multiprocessors = stream.device().info().multiprocessors.max(1) as usize;
    let across = outputs.div_ceil(TILE_OUTPUTS).max(1);
    rows.min(TILE_ROWS * (COMPARED_TILES * multiprocessors).div_ceil(across))
}

fn check(linear: &Linear, operands: &Operands<'_>) -> Result<()> {
    const OP: &str = "matrix product";
    let &Operands { rows, ref x, epilogue, ref y } = operands;
    let (outputs, inputs) = (linear.outputs(), linear.inputs());
    let step = if linear.is_fp8() { 16 } else { 8 };
    let odd = [outputs, inputs].iter().any(|n| *n == 0 || !n.is_multiple_of(step));
    let large = [rows, outputs, inputs].iter().any(|&n| n > 1 << 24);
    if rows == 0 || odd || large {
        return Err(CudaError::unsupported(format!(
            "a matrix product of {rows} x {inputs} with {outputs} x {inputs}; widths that are \
             multiples of {step} are"
        )));
    }
    check_len(OP, "x", x.len(), rows.checked_mul(inputs))?;
    check_len(OP, "y", y.len(), rows.checked_mul(outputs))?;
    if matches!(y, Output::Fp8(..)) != linear.writes_fp8(epilogue) {
        return Err(wrong_kind());
    }
    if let MatmulEpilogue::Residual(residual) = epilogue {
        check_len(OP, "the residual", residual.len(), rows.checked_mul(outputs))?;
    }
    Ok(())
}

fn run_warp(stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
    let (LinearWeight::Bf16(weight), LeftOperand::Bf16(x), Output::Bf16(y)) =
        (&linear.weight, operands.x, &operands.y)
    else {
        return Err(wrong_kind());
    };
    let (rows, outputs) = (operands.rows, linear.outputs());
    let blocks = (outputs.div_ceil(TILE_ROWS) as u32, rows.div_ceil(TILE_ROWS) as u32);
    let function = operands.kernel(&stream.device().kernels().matmul);
    let residual = match operands.epilogue {
        MatmulEpilogue::Residual(residual) => residual as &dyn Argument,
        _ => &Absent,
    };
    let [rows, outputs, inputs] = [rows, outputs, linear.inputs()].map(|n| n as i32);
    let (bias, y) = (&linear.bias, &**y);
    let arguments: [&dyn Argument; 8] = [x, weight, bias, residual, y, &rows, &outputs, &inputs];
    // SAFETY: the arguments match matmul.cu; `matmul` checked the sizes.
    unsafe { stream.launch(function, Grid { blocks, threads: 128 }, &arguments) }
}

fn run_warpgroup(stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
    let device = stream.device();
    let hopper = device.kernels().hopper()?;
    let (rows, outputs, inputs) = (operands.rows, linear.outputs(), linear.inputs());
    let (x_sizes, w_sizes, y_sizes) = ((rows, inputs), (outputs, inputs), (rows, outputs));
    let tile = (TILE_ROWS as u32, TileRow::Bytes128);
    let w_tile = (TILE_OUTPUTS as u32, TileRow::Bytes128);
    let y = match &operands.y {
        Output::Bf16(y) => TensorMap::new(&**y, y_sizes, tile)?,
        Output::Fp8(y, _) => TensorMap::new(&**y, y_sizes, (TILE_ROWS as u32, TileRow::Bytes64))?,
    };
    let (_, inverse) = operands.y.arguments(device)?;
    let residual = match operands.epilogue {
        MatmulEpilogue::Residual(residual) => TensorMap::new(residual, y_sizes, tile)?,
        _ => y.clone(), // kernels without a residual do not read it
    };
    let (x, w, scales, functions) = match (&linear.weight, operands.x) {
        (LinearWeight::Bf16(w), LeftOperand::Bf16(x)) => (
            TensorMap::new(x, x_sizes, tile)?,
            TensorMap::new(w, w_sizes, w_tile)?,
            &Absent as &dyn Argument,
            &hopper.matmul,
        ),
        (LinearWeight::Fp8 { values, scales, .. }, LeftOperand::Fp8(x)) => (
            TensorMap::new(x, x_sizes, tile)?,
            TensorMap::new(values, w_sizes, w_tile)?,
            scales as &dyn Argument,
            &hopper.matmul_fp8,
        ),
        _ => return Err(wrong_kind()),
    };
    let tiles = rows.div_ceil(TILE_ROWS) * outputs.div_ceil(TILE_OUTPUTS);
    let value_bytes = if linear.is_fp8() { 1 } else { 2 };
    let steps = (inputs * value_bytes).div_ceil(STEP_BYTES);
    let blocks = tiles.min(device.info().multiprocessors.max(1) as usize);
    let [outputs, steps, tiles] = [outputs, steps, tiles].map(|n| n as i32);
    let arguments: [&dyn Argument; 10] =
        [&x, &w, &y, &residual, &linear.bias, scales, &inverse, &outputs, &steps, &tiles];
    let grid = Grid::line(blocks as u32, 384);
    // SAFETY: the arguments match matmul_hopper.cu; `matmul` checked the sizes.
    unsafe { stream.launch(operands.kernel(functions), grid, &arguments) }
}

impl Operands<'_> {
    fn kernel(&self, functions: &[Function; 3]) -> Function {
        functions[match self.epilogue {
            MatmulEpilogue::Bias => 0,
            MatmulEpilogue::Gelu => 1,
            MatmulEpilogue::Residual(_) => 2,
        }]
    }
}

fn wrong_kind() -> CudaError {
    CudaError::shape("matrix product", "operands or a kernel of another precision")
}
