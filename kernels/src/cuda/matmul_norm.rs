//! Matrix products that continue with a residual sum and a layer norm.

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::layer_norm::Norm;
use super::linear::{LeftOperand, Linear, LinearWeight};
use super::matmul::{STEP_BYTES, TILE_OUTPUTS, TILE_ROWS};
use super::memory::Buffer;
use super::stream::{Absent, Argument, Grid, Stream};
use super::tensor_map::{TensorMap, TileRow};

/// Width of the rows for which there are kernels.
const WIDTH: usize = 768;
/// Blocks that share the rows of a tile.
const CLUSTER_BLOCKS: usize = 2;

/// Returns true if [`matmul_norm`] has a kernel for rows of `width` on the GPU of `stream`.
pub fn has_matmul_norm(stream: &Stream, width: usize) -> bool {
    width == WIDTH && stream.device().kernels().hopper().is_ok()
}

/// Queues `hidden` `[rows, 768]` = layer norm of (`x` `[rows, K]` · `w` `[768, K]`ᵀ + `b` +
/// `hidden`) with `linear`'s `w` and `b`, and K a multiple of 8 (of 16 in fp8), on GPUs of compute
/// capability 9.0; only the result is rounded to bf16. In fp8, it is also
/// written to `copy` `[rows, 768]` in e4m3, with the scale of the rows of `norm`.
pub fn matmul_norm(
    stream: &Stream,
    x: LeftOperand<'_>,
    linear: &Linear,
    norm: &Norm,
    hidden: &mut Buffer<bf16>,
    copy: Option<&mut Buffer<u8>>,
    rows: usize,
) -> Result<()> {
    const OP: &str = "matrix product with layer norm";
    let inputs = linear.inputs();
    let step = if linear.is_fp8() { 16 } else { 8 };
    let fits = linear.outputs() == WIDTH && norm.width() == WIDTH;
    if !fits || inputs == 0 || !inputs.is_multiple_of(step) || inputs > 1 << 24 {
        let (outputs, width) = (linear.outputs(), norm.width());
        return Err(CudaError::unsupported(format!(
            "a layer norm of {width} values after a product with {outputs} x {inputs}; with \
             {WIDTH} x a multiple of {step} it is"
        )));
    }
    if rows == 0 || rows > 1 << 24 {
        return Err(CudaError::shape(OP, format!("{rows} rows")));
    }
    check_len(OP, "hidden", hidden.len(), rows.checked_mul(WIDTH))?;
    let hopper = stream.device().kernels().hopper()?;
    let (x_sizes, w_sizes, y_sizes) = ((rows, inputs), (WIDTH, inputs), (rows, WIDTH));
    let tile = (TILE_ROWS as u32, TileRow::Bytes128);
    let w_tile = (TILE_OUTPUTS as u32, TileRow::Bytes128);
    let y = TensorMap::new(&*hidden, y_sizes, tile)?;
    check_len(OP, "x", x.len(), rows.checked_mul(inputs))?;
    let (function, [x, w, copy], w_scales) = match (x, &linear.weight, copy) {
        (LeftOperand::Bf16(x), LinearWeight::Bf16(w), None) => {
            let (x, w) = (TensorMap::new(x, x_sizes, tile)?, TensorMap::new(w, w_sizes, w_tile)?);
            // The kernel does not read the map of the copy.
            (hopper.matmul_norm, [x, w, y.clone()], &Absent as &dyn Argument)
        }
        (LeftOperand::Fp8(x), LinearWeight::Fp8 { values: w, scales, .. }, Some(copy)) => {
            check_len(OP, "the copy", copy.len(), rows.checked_mul(WIDTH))?;
            let maps = [
                TensorMap::new(x, x_sizes, tile)?,
                TensorMap::new(w, w_sizes, w_tile)?,
                TensorMap::new(&*copy, y_sizes, (TILE_ROWS as u32, TileRow::Bytes64))?,
            ];
            (hopper.matmul_norm_fp8, maps, scales as &dyn Argument)
        }
        _ => return Err(CudaError::shape(OP, "operands or a result of another precision")),
    };
    let inverse = norm.scale.recip();
    let tiles = rows.div_ceil(TILE_ROWS);
    let steps = (inputs * 16 / step).div_ceil(STEP_BYTES);
    let multiprocessors = stream.device().info().multiprocessors as usize;
    let clusters = tiles.min(multiprocessors / CLUSTER_BLOCKS).max(1);
    let [steps, tiles] = [steps, tiles].map(|n| n as i32);
    let (bias, Norm { gamma, beta, eps, .. }) = (&linear.bias, norm);
    let arguments: [&dyn Argument; 12] =
        [&x, &w, &y, &copy, bias, w_scales, gamma, beta, eps, &inverse, &steps, &tiles];
    let grid = Grid::line((clusters * CLUSTER_BLOCKS) as u32, 384);
    // SAFETY: the arguments match matmul_norm_hopper.cu, and the sizes were checked.
    unsafe { stream.launch(function, grid, &arguments) }
}
