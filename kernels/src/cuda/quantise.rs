//! Rows in e4m3, the 8-bit floating-point format of Hopper's matrix units, with a scale per row.

use half::bf16;

use super::device::Device;
use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::stream::{Grid, Stream};

/// Maximum width of a row, which [`quantise_rows`] holds in registers.
const MAX_WIDTH: usize = 4096;
/// Values per thread of [`quantise_rows`].
const VALUES: usize = 32;
const WARP: usize = 32;

/// Rows `[T, W]` of e4m3, one byte per value, and an f32 scale `[T]` per row.
///
/// The scale is the row's largest magnitude / 448, and a byte is value · (448 / largest magnitude)
/// rounded to nearest even. A row with no magnitude above 2⁻¹⁰⁰ becomes zeros with scale 1. NaN
/// stays NaN (0x7f); in a row with an infinity, every byte times the scale is NaN.
#[derive(Debug)]
pub struct Quantised {
    /// Values `[T, W]`.
    pub values: Buffer<u8>,
    /// Scales `[T]`.
    pub scales: Buffer<f32>,
}

impl Quantised {
    /// Allocates `rows` rows of `width` undefined values; an error names the `purpose`.
    ///
    /// # Errors
    /// Returns the errors of [`Device::alloc`].
    pub fn new(device: &Device, rows: usize, width: usize, purpose: &'static str) -> Result<Self> {
        let values = device.alloc(rows.saturating_mul(width), purpose)?;
        Ok(Self { values, scales: device.alloc(rows, purpose)? })
    }

    /// Returns [`CudaError::Shape`] unless there is room for `rows` rows of `width` values.
    pub(super) fn check(&self, op: &'static str, rows: usize, width: usize) -> Result<()> {
        check_len(op, "the quantised rows", self.values.len(), rows.checked_mul(width))?;
        check_len(op, "the scales", self.scales.len(), Some(rows))
    }
}

/// Quantises the rows of `x` `[rows, width]`; `width` is a multiple of 16 up to 4,096.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Unsupported`] if the GPU has no e4m3;
/// [`CudaError::Driver`] if the GPU fails.
pub fn quantise_rows(
    stream: &Stream,
    x: &Buffer<bf16>,
    quantised: &mut Quantised,
    (rows, width): (usize, usize),
) -> Result<()> {
    const OP: &str = "quantise_rows";
    check_len(OP, "x", x.len(), rows.checked_mul(width))?;
    quantised.check(OP, rows, width)?;
    let grid = grid(rows, width)?;
    let function = stream.device().kernels().hopper()?.quantise_rows;
    let Quantised { values, scales } = &*quantised;
    // SAFETY: these are the arguments of quantise_rows; every row is inside its buffer.
    unsafe { stream.launch(function, grid, &[x, values, scales, &(width as i32)]) }
}

fn grid(rows: usize, width: usize) -> Result<Grid> {
    if width == 0 || width > MAX_WIDTH || !width.is_multiple_of(16) {
        let reason = format!("rows of {width} values; multiples of 16 up to {MAX_WIDTH} are");
        return Err(CudaError::unsupported(reason));
    }
    let threads = width.div_ceil(VALUES).next_multiple_of(WARP);
    match i32::try_from(rows) {
        Ok(rows) if rows > 0 => Ok(Grid::line(rows.unsigned_abs(), threads as u32)),
        _ => Err(CudaError::shape("quantise_rows", format!("{rows} rows"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_its_row_with_less_than_a_warp_to_spare() {
        for width in (16..=MAX_WIDTH).step_by(16) {
            let threads = grid(1, width).map_or(0, |grid| grid.threads as usize);
            assert!(threads.is_multiple_of(WARP) && threads <= 128, "{width}: {threads}");
            let room = threads * VALUES;
            assert!(room >= width && room < width + WARP * VALUES, "{width}: {threads}");
        }
        for (rows, width) in [(1, 0), (1, 8), (1, 4112), (0, 16), (1 << 31, 16)] {
            assert!(grid(rows, width).is_err(), "{rows} x {width}");
        }
    }
}
