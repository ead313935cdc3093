//! Exact GELU.

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::stream::{Grid, Stream};

const THREADS: usize = 256;
/// Values of a thread at a time.
const VALUES: usize = 8;
/// Blocks of 256 threads that a multiprocessor has room for.
const BLOCKS_PER_MULTIPROCESSOR: usize = 8;

/// The first `n` values of `x` become `x Φ(x)`; `n` is a multiple of 8.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the GPU fails.
pub fn gelu(stream: &Stream, x: &mut Buffer<bf16>, n: usize) -> Result<()> {
    check_len("gelu", "x", x.len(), Some(n))?;
    let device = stream.device();
    let grid = grid(n, device.info().multiprocessors as usize)?;
    // SAFETY: the arguments of gelu; `n` values are inside `x`.
    unsafe { stream.launch(device.kernels().gelu, grid, &[&*x, &(n as i64)]) }
}

fn grid(n: usize, multiprocessors: usize) -> Result<Grid> {
    if n == 0 || !n.is_multiple_of(VALUES) {
        return Err(CudaError::shape("gelu", format!("{n} values, no multiple of {VALUES}")));
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
