//! Matrix products with a fused epilogue.

use super::e4m3::Output;
use super::error::{CudaError, Result, check_len};
use super::instructions::MatrixInstructions;
use super::linear::{LeftOperand, Linear, LinearWeight, MatmulEpilogue, Operands};
use super::stream::{ABSENT, Argument, Grid, Stream};
use super::tensor_map::TensorMap;

/// Rows of a tile of y. Tile size: 128 x 128 (mma.sync), 128 x 192 (wgmma).
pub(super) const TILE_ROWS: usize = 128;
/// Columns of a tile of y of the wgmma kernels.
const TILE_OUTPUTS: usize = 192;
/// Tiles of x and y, and of y in e4m3, as the wgmma kernels copy them: rows, and bytes of each.
pub(super) const TILE: (u32, usize) = (TILE_ROWS as u32, 128);
pub(super) const FP8_TILE: (u32, usize) = (TILE_ROWS as u32, 64);
/// Bytes of each row of x that one step of the wgmma kernels takes.
pub(super) const STEP_BYTES: usize = 128;
/// Tiles per multiprocessor after which the wgmma kernels have reused all their memory.
const COMPARED_TILES: usize = 6;

/// Queues `y` `[T, N]` = epilogue(`x` `[T, K]` · `w` `[N, K]`ᵀ + `b`) with `linear`'s `w` and `b`.
pub fn matmul(
    stream: &Stream,
    linear: &Linear,
    operands: &Operands<'_>,
    instructions: MatrixInstructions,
) -> Result<()> {
    const OP: &str = "matrix product";
    let &Operands { rows, ref x, epilogue, ref y } = operands;
    let (outputs, inputs) = (linear.outputs(), linear.inputs());
    if rows == 0 || rows > 1 << 24 {
        return Err(CudaError::shape(OP, format!("{rows} rows")));
    }
    check_len(OP, "x", x.len(), rows.checked_mul(inputs))?;
    check_len(OP, "y", y.len(), rows.checked_mul(outputs))?;
    if matches!(y, Output::Fp8(..)) != linear.writes_fp8(epilogue) {
        return Err(wrong_precision());
    }
    if let MatmulEpilogue::Residual(residual) = epilogue {
        check_len(OP, "the residual", residual.len(), rows.checked_mul(outputs))?;
    }
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

/// Launches the mma.sync kernel; operands in e4m3 are an error.
fn run_warp(stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
    let (LinearWeight::Bf16(weight), LeftOperand::Bf16(x), Output::Bf16(y)) =
        (&linear.weight, operands.x, &operands.y)
    else {
        return Err(wrong_precision());
    };
    let (rows, outputs) = (operands.rows, linear.outputs());
    let blocks = (outputs.div_ceil(TILE_ROWS) as u32, rows.div_ceil(TILE_ROWS) as u32);
    let name = format!("matmul_{}", operands.epilogue.name());
    let function = stream.device().kernels().get(&name)?;
    let residual = match operands.epilogue {
        MatmulEpilogue::Residual(residual) => residual as &dyn Argument,
        _ => &ABSENT,
    };
    let [rows, outputs, inputs] = [rows, outputs, linear.inputs()].map(|n| n as i32);
    let (bias, y) = (&linear.bias, &**y);
    let arguments: [&dyn Argument; 8] = [x, weight, bias, residual, y, &rows, &outputs, &inputs];
    // SAFETY: the arguments match matmul.cu; `matmul` and `Linear::new` checked the sizes.
    unsafe { stream.launch(function, Grid { blocks, threads: 128 }, &arguments) }
}

/// Launches the wgmma kernel, if the GPU has it; mixed precisions are an error.
fn run_warpgroup(stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
    let device = stream.device();
    let kind = if linear.is_fp8() { "fp8" } else { "hopper" };
    let name = format!("matmul_{kind}_{}", operands.epilogue.name());
    device.kernels().check_hopper()?;
    let function = device.kernels().get(&name)?;
    let (rows, outputs, inputs) = (operands.rows, linear.outputs(), linear.inputs());
    let (x, w, scales) = operand_maps(operands.x, linear, rows)?;
    let y = match &operands.y {
        Output::Bf16(y) => TensorMap::new(&**y, (rows, outputs), TILE)?,
        Output::Fp8(y, _) => TensorMap::new(&**y, (rows, outputs), FP8_TILE)?,
    };
    let (_, inverse) = operands.y.arguments(device)?;
    let residual = match operands.epilogue {
        MatmulEpilogue::Residual(residual) => TensorMap::new(residual, (rows, outputs), TILE)?,
        _ => y.clone(), // kernels without a residual do not read it
    };
    let tiles = rows.div_ceil(TILE_ROWS) * outputs.div_ceil(TILE_OUTPUTS);
    let value_bytes = if linear.is_fp8() { 1 } else { 2 };
    let steps = (inputs * value_bytes).div_ceil(STEP_BYTES);
    let blocks = tiles.min(device.info().multiprocessors.max(1) as usize);
    let [outputs, steps, tiles] = [outputs, steps, tiles].map(|n| n as i32);
    let arguments: [&dyn Argument; 10] =
        [&x, &w, &y, &residual, &linear.bias, scales, &inverse, &outputs, &steps, &tiles];
    let grid = Grid::line(blocks as u32, 384);
    // SAFETY: the arguments match matmul_hopper.cu; as in `run_warp`.
    unsafe { stream.launch(function, grid, &arguments) }
}

/// Returns the operands of the wgmma kernels for `rows` rows: `x`, the weights, and in fp8 scales.
pub(super) fn operand_maps<'a>(
    x: LeftOperand<'a>,
    linear: &'a Linear,
    rows: usize,
) -> Result<(TensorMap<'a>, TensorMap<'a>, &'a dyn Argument)> {
    let (x_sizes, w_sizes) = ((rows, linear.inputs()), (linear.outputs(), linear.inputs()));
    let w_tile = (TILE_OUTPUTS as u32, 128);
    match (x, &linear.weight) {
        (LeftOperand::Bf16(x), LinearWeight::Bf16(w)) => {
            let (x, w) = (TensorMap::new(x, x_sizes, TILE)?, TensorMap::new(w, w_sizes, w_tile)?);
            Ok((x, w, &ABSENT))
        }
        (LeftOperand::Fp8(x), LinearWeight::Fp8 { values: w, scales }) => {
            let (x, w) = (TensorMap::new(x, x_sizes, TILE)?, TensorMap::new(w, w_sizes, w_tile)?);
            Ok((x, w, scales))
        }
        _ => Err(wrong_precision()),
    }
}

/// Returns the error for operands and weights of different precisions.
fn wrong_precision() -> CudaError {
    CudaError::shape("matrix product", "operands or a kernel of another precision")
}
