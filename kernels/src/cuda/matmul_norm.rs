//! Matrix products that continue with a residual sum and a layer norm.

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::layer_norm::Norm;
use super::linear::{LeftOperand, Linear};
use super::matmul::{FP8_TILE, STEP_BYTES, TILE, TILE_ROWS, operand_maps};
use super::memory::Buffer;
use super::stream::{Argument, Grid, Stream};
use super::tensor_map::TensorMap;

/// Width of the rows for which there are kernels.
const WIDTH: usize = 768;
/// Blocks that share the rows of a tile.
const CLUSTER_BLOCKS: usize = 2;

/// Returns true if [`matmul_norm`] has a kernel for rows of `width` on the GPU of `stream`.
pub fn has_matmul_norm(stream: &Stream, width: usize) -> bool {
    width == WIDTH && stream.device().kernels().check_hopper().is_ok()
}

/// Queues `hidden` `[rows, 768]` = layer norm of (`x` `[rows, K]` · `w` `[768, K]`ᵀ + `b` +
/// `hidden`) with `linear`'s `w` and `b` on GPUs of compute capability 9.0; only the result is
/// rounded to bf16. In fp8, it is also written to `copy` in e4m3, with the scale of `norm`.
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
    let (inputs, outputs, width) = (linear.inputs(), linear.outputs(), norm.width());
    if outputs != WIDTH || width != WIDTH {
        let reason = format!("a layer norm of {width} values after {outputs}; {WIDTH} are");
        return Err(CudaError::Unsupported(reason));
    }
    if rows == 0 || rows > 1 << 24 {
        return Err(CudaError::shape(OP, format!("{rows} rows")));
    }
    check_len(OP, "hidden", hidden.len(), rows.checked_mul(WIDTH))?;
    let kernels = stream.device().kernels();
    kernels.check_hopper()?;
    let y = TensorMap::new(&*hidden, (rows, WIDTH), TILE)?;
    check_len(OP, "x", x.len(), rows.checked_mul(inputs))?;
    let (x, w, w_scales) = operand_maps(x, linear, rows)?;
    let (name, copy) = match (linear.is_fp8(), copy) {
        // The kernel does not read the map of the copy.
        (false, None) => ("matmul_norm_768", y.clone()),
        (true, Some(copy)) => {
            check_len(OP, "the copy", copy.len(), rows.checked_mul(WIDTH))?;
            ("matmul_norm_fp8_768", TensorMap::new(&*copy, (rows, WIDTH), FP8_TILE)?)
        }
        _ => return Err(CudaError::shape(OP, "a result of another precision")),
    };
    let inverse = norm.scale.recip();
    let tiles = rows.div_ceil(TILE_ROWS);
    let value_bytes = if linear.is_fp8() { 1 } else { 2 };
    let steps = (inputs * value_bytes).div_ceil(STEP_BYTES);
    let multiprocessors = stream.device().info().multiprocessors as usize;
    let clusters = tiles.min(multiprocessors / CLUSTER_BLOCKS).max(1);
    let [steps, tiles] = [steps, tiles].map(|n| n as i32);
    let (bias, Norm { gamma, beta, eps, .. }) = (&linear.bias, norm);
    let arguments: [&dyn Argument; 12] =
        [&x, &w, &y, &copy, bias, w_scales, gamma, beta, eps, &inverse, &steps, &tiles];
    let grid = Grid::line((clusters * CLUSTER_BLOCKS) as u32, 384);
    // SAFETY: the arguments match matmul_norm_hopper.cu; `Linear::new` checked the other sizes.
    unsafe { stream.launch(kernels.get(name)?, grid, &arguments) }
}
