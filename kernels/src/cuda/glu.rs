//! The gated linear unit with GELU (GeGLU).

use half::bf16;

use super::e4m3::Output;
use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::stream::{Argument, Grid, Stream};

const THREADS: usize = 256;
/// Values that a thread computes at a time.
const VALUES: usize = 8;
/// Blocks of 256 threads that fit on a multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: usize = 8;

/// Computes `out` `[rows, width]` = gelu(a) · b for rows `[a | b]` of `x`; `width` is 8 n.
pub fn glu(
    stream: &Stream,
    x: &Buffer<bf16>,
    out: &Output<'_>,
    (rows, width): (usize, usize),
) -> Result<()> {
    const OP: &str = "glu";
    let values = rows.checked_mul(width);
    check_len(OP, "x", x.len(), values.and_then(|values| values.checked_mul(2)))?;
    check_len(OP, "the result", out.len(), values)?;
    let (sizes, is_whole) = ([rows, width].map(i32::try_from), width.is_multiple_of(VALUES));
    let ([Ok(kernel_rows), Ok(kernel_width)], true) = (sizes, is_whole) else {
        return Err(CudaError::shape(OP, format!("{rows} rows of {width} values")));
    };
    let device = stream.device();
    let grid = grid(rows * width, device.info().multiprocessors as usize)?;
    let (out, inverse) = out.arguments(device)?;
    let arguments: [&dyn Argument; 5] = [x, out, &inverse, &kernel_rows, &kernel_width];
    // SAFETY: these are the arguments of glu; every row is inside its buffer.
    unsafe { stream.launch(device.kernels().get(OP)?, grid, &arguments) }
}

/// Returns the grid for `n` values of the result; an error unless they are whole groups.
fn grid(n: usize, multiprocessors: usize) -> Result<Grid> {
    if n == 0 || !n.is_multiple_of(VALUES) {
        return Err(CudaError::shape("glu", format!("{n} values, no multiple of {VALUES}")));
    }
    let blocks = n.div_ceil(VALUES * THREADS);
    let blocks = blocks.min(multiprocessors.max(1) * BLOCKS_PER_MULTIPROCESSOR);
    Ok(Grid::line(blocks as u32, THREADS as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_the_values_or_fill_the_device() {
        assert_eq!(grid(8, 132), Ok(Grid::line(1, 256)));
        assert_eq!(grid(2_048, 132), Ok(Grid::line(1, 256)));
        assert_eq!(grid(2_056, 132), Ok(Grid::line(2, 256)));
        assert_eq!(grid(16_896 * 3_072, 132), Ok(Grid::line(1_056, 256)));
        assert!(grid(0, 132).is_err());
        assert!(grid(12, 132).is_err());
    }
}
