//! The kernels of scoring, in f32: layers of a small head, and the largest similarity to references.

use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::stream::{Argument, Grid, Stream};

const THREADS: u32 = 256;
/// Warps of a block.
const WARPS: usize = 8;
/// Rows and outputs of a block of [`linear_relu`] and [`max_similarity`].
const TILE: usize = 64;
/// Blocks of [`max_similarity`] that a multiprocessor has room for.
const BLOCKS_PER_MULTIPROCESSOR: usize = 4;

/// `out` `[rows, width]` = the rows of `x`, and `usable` `[rows]` = 1 where a row takes part. With
/// `unit` a row is divided by its L2 norm and usable if that is positive and finite; without, it is
/// copied and usable if all its values are finite. Rows that are not usable become zeros.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the GPU fails.
pub fn prepare_rows(
    stream: &Stream,
    x: &Buffer<f32>,
    out: &mut Buffer<f32>,
    usable: &mut Buffer<u8>,
    (rows, width): (usize, usize),
    unit: bool,
) -> Result<()> {
    const OP: &str = "prepare_rows";
    check_len(OP, "x", x.len(), rows.checked_mul(width))?;
    check_len(OP, "out", out.len(), rows.checked_mul(width))?;
    check_len(OP, "usable", usable.len(), Some(rows))?;
    let grid = warps_grid(OP, Some(rows), width)?;
    let (rows, width, unit) = (rows as i32, width as i32, i32::from(unit));
    let kernel = stream.device().kernels().prepare_rows;
    // SAFETY: the arguments of prepare_rows, whose rows are inside their buffers.
    unsafe { stream.launch(kernel, grid, &[x, &*out, &*usable, &rows, &width, &unit]) }
}

/// `y` `[rows, outputs]` = max(0, `x` `[rows, inputs]` · `w` `[outputs, inputs]`ᵀ + `b` `[outputs]`).
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the GPU fails.
pub fn linear_relu(
    stream: &Stream,
    x: &Buffer<f32>,
    (w, b): (&Buffer<f32>, &Buffer<f32>),
    y: &mut Buffer<f32>,
    rows: usize,
) -> Result<()> {
    const OP: &str = "linear_relu";
    let (outputs, inputs) = sizes(OP, w, b)?;
    check_len(OP, "x", x.len(), rows.checked_mul(inputs))?;
    check_len(OP, "y", y.len(), rows.checked_mul(outputs))?;
    let grid = tiles_grid(OP, rows, outputs, inputs)?;
    let [rows, inputs, outputs] = [rows, inputs, outputs].map(|n| n as i32);
    let kernel = stream.device().kernels().linear_relu;
    // SAFETY: the arguments of linear_relu, whose rows are inside their buffers.
    unsafe { stream.launch(kernel, grid, &[x, w, b, &*y, &rows, &inputs, &outputs]) }
}

/// `out` `[rows, outputs]` = `x` `[rows, inputs]` · `w` `[outputs, inputs]`ᵀ + `b` `[outputs]`, summed in f64.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the GPU fails.
pub fn linear_f64(
    stream: &Stream,
    x: &Buffer<f32>,
    (w, b): (&Buffer<f32>, &Buffer<f32>),
    out: &mut Buffer<f64>,
    rows: usize,
) -> Result<()> {
    const OP: &str = "linear_f64";
    let (outputs, inputs) = sizes(OP, w, b)?;
    check_len(OP, "x", x.len(), rows.checked_mul(inputs))?;
    check_len(OP, "out", out.len(), rows.checked_mul(outputs))?;
    let grid = warps_grid(OP, rows.checked_mul(outputs), inputs)?;
    let [rows, inputs, outputs] = [rows, inputs, outputs].map(|n| n as i32);
    let kernel = stream.device().kernels().linear_f64;
    // SAFETY: the arguments of linear_f64, whose rows are inside their buffers.
    unsafe { stream.launch(kernel, grid, &[x, w, b, &*out, &rows, &inputs, &outputs]) }
}

/// The first `rows` values of `out` = the largest product of a row of `x` `[rows, width]` with a row of
/// `references` `[K, width]`, at most 1. What `out` holds beyond is overwritten: with room for several
/// times `rows`, more of the GPU takes part.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the GPU fails.
pub fn max_similarity(
    stream: &Stream,
    x: &Buffer<f32>,
    references: &Buffer<f32>,
    out: &mut Buffer<f32>,
    (rows, width): (usize, usize),
) -> Result<()> {
    const OP: &str = "max_similarity";
    if width == 0 || references.is_empty() || !references.len().is_multiple_of(width) {
        let reason = format!("references of {} values, rows of {width}", references.len());
        return Err(CudaError::shape(OP, reason));
    }
    check_len(OP, "x", x.len(), rows.checked_mul(width))?;
    check_len(OP, "out", out.len(), Some(rows))?;
    let count = references.len() / width;
    // The limits of a grid; and in the kernel the end of a part is an i32.
    warps_grid(OP, Some(rows), width)?;
    warps_grid(OP, count.checked_mul(2), width)?;
    let device = stream.device();
    let (parts, part) =
        similarity_parts(rows, count, out.len(), device.info().multiprocessors as usize);
    let grid = Grid { blocks: (rows.div_ceil(TILE) as u32, parts as u32), threads: THREADS };
    let [num_rows, count, part, width] = [rows, count, part, width].map(|n| n as i32);
    let arguments: [&dyn Argument; 7] = [x, references, &*out, &num_rows, &count, &part, &width];
    // SAFETY: the arguments of max_similarity, whose rows are inside their buffers, as are `parts`
    // results for each row.
    unsafe { stream.launch(device.kernels().max_similarity, grid, &arguments)? };
    if parts == 1 {
        return Ok(());
    }
    let grid = Grid::line(rows.div_ceil(THREADS as usize) as u32, THREADS);
    let arguments: [&dyn Argument; 3] = [&*out, &num_rows, &(parts as i32)];
    // SAFETY: the arguments of max_of_parts; as above.
    unsafe { stream.launch(device.kernels().max_of_parts, grid, &arguments) }
}

/// In how many parts blocks take `count` references, and the references of a part, whole tiles: as
/// many as fill the GPU, if `room` holds a result of each for every row.
fn similarity_parts(
    rows: usize,
    count: usize,
    room: usize,
    multiprocessors: usize,
) -> (usize, usize) {
    let tiles = count.div_ceil(TILE);
    let wanted = multiprocessors * BLOCKS_PER_MULTIPROCESSOR / rows.div_ceil(TILE);
    let parts = wanted.min(room / rows).min(usize::from(u16::MAX)).clamp(1, tiles);
    let part = tiles.div_ceil(parts);
    (tiles.div_ceil(part), part * TILE)
}

/// Outputs and inputs of a layer.
fn sizes(op: &'static str, w: &Buffer<f32>, b: &Buffer<f32>) -> Result<(usize, usize)> {
    if b.is_empty() || w.is_empty() || !w.len().is_multiple_of(b.len()) {
        let reason = format!("{} weights for {} outputs", w.len(), b.len());
        return Err(CudaError::shape(op, reason));
    }
    Ok((b.len(), w.len() / b.len()))
}

/// A warp for each of `values`, each of which reads `inputs`.
fn warps_grid(op: &'static str, values: Option<usize>, inputs: usize) -> Result<Grid> {
    match values {
        Some(n) if n > 0 && inputs > 0 && i32::try_from(n.max(inputs)).is_ok() => {
            Ok(Grid::line(n.div_ceil(WARPS) as u32, THREADS))
        }
        _ => Err(CudaError::shape(op, format!("{values:?} values of {inputs} inputs"))),
    }
}

/// A block for each 64 outputs of 64 rows.
fn tiles_grid(op: &'static str, rows: usize, outputs: usize, inputs: usize) -> Result<Grid> {
    let down = rows.div_ceil(TILE);
    let fits = i32::try_from(outputs.max(inputs)).is_ok() && u16::try_from(down).is_ok();
    if rows == 0 || !fits {
        return Err(CudaError::shape(op, format!("{rows} rows of {inputs}, {outputs} outputs")));
    }
    Ok(Grid { blocks: (outputs.div_ceil(TILE) as u32, down as u32), threads: THREADS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_warp_for_every_value() {
        assert_eq!(warps_grid("x", Some(1), 768), Ok(Grid::line(1, 256)));
        assert_eq!(warps_grid("x", Some(4_097), 768), Ok(Grid::line(513, 256)));
        assert!(warps_grid("x", Some(0), 768).is_err());
        assert!(warps_grid("x", None, 768).is_err());
    }

    #[test]
    fn there_is_a_block_for_every_tile_within_the_limits_of_a_grid() {
        let grid = |rows, outputs| tiles_grid("x", rows, outputs, 768);
        assert_eq!(grid(1, 1), Ok(Grid { blocks: (1, 1), threads: 256 }));
        assert_eq!(grid(64, 64), Ok(Grid { blocks: (1, 1), threads: 256 }));
        assert_eq!(grid(65, 8_192), Ok(Grid { blocks: (128, 2), threads: 256 }));
        assert!(grid(65_535 * 64, 1).is_ok());
        assert!(grid(65_535 * 64 + 1, 1).is_err());
        assert!(grid(0, 1).is_err());
    }

    #[test]
    fn parts_of_the_references_fill_the_device_within_their_room() {
        // 64 tiles of rows; 528 blocks fit.
        assert_eq!(similarity_parts(4_096, 8_192, 8 * 4_096, 132), (8, 16 * 64));
        assert_eq!(similarity_parts(4_096, 8_192, 4_096, 132), (1, 128 * 64));
        assert_eq!(similarity_parts(4_096, 8_193, 3 * 4_096, 132), (3, 43 * 64));
        assert_eq!(similarity_parts(1, 65, 1_000, 132), (2, 64));
        assert_eq!(similarity_parts(1, 1, 1_000, 0), (1, 64));
        for (rows, count) in [(65, 7_000), (130, 8_192), (4_096, 129), (1, 64)] {
            let (parts, part) = similarity_parts(rows, count, 5 * rows, 132);
            assert!(parts <= 5 && parts * part >= count && (parts - 1) * part < count);
        }
    }
}
