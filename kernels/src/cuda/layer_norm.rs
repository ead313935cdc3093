//! Layer norm of rows, alone or fused with a sum of embeddings or of states.

use half::bf16;

use super::e4m3::Bound;
use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::module::{Function, NORM_WIDTHS};
use super::staged::Staged;
use super::stream::{Absent, Argument, Grid, Stream};

/// Maximum width of a row, which the kernels hold in registers.
pub const MAX_WIDTH: usize = 1024;

/// Rows per block: four warps with two rows each.
const ROWS: usize = 8;
const THREADS: u32 = 128;

/// Weights of a layer norm, on a GPU.
pub struct Norm {
    pub(super) gamma: Buffer<f32>,
    pub(super) beta: Buffer<f32>,
    pub(super) eps: f32,
    /// Scale of the normalised rows in e4m3.
    pub(super) scale: f32,
}

impl Norm {
    /// Copies `gamma` and `beta` `[H]` to the GPU; H is a multiple of 8, at most [`MAX_WIDTH`].
    pub fn new(stream: &Stream, gamma: &[f32], beta: &[f32], eps: f64) -> Result<Self> {
        check_len("layer norm", "beta", beta.len(), Some(gamma.len()))?;
        variant(gamma.len())?;
        let scale = Bound::Normalised { gamma, beta }.scale();
        let gamma = stream.to_device(gamma, "the weights")?;
        Ok(Self { gamma, beta: stream.to_device(beta, "the weights")?, eps: eps as f32, scale })
    }

    /// Returns the width H of a row.
    pub fn width(&self) -> usize {
        self.gamma.len()
    }
}

/// The embedding tables of a model, on a GPU.
pub struct Embedding {
    words: Buffer<bf16>,
    positions: Buffer<f32>,
    width: usize,
}

impl Embedding {
    /// Copies `words` `[V, H]` and `positions` `[P, H]`, H = `width`, to the GPU. `positions` must
    /// already include the embedding of the one token type.
    pub fn new(stream: &Stream, words: &[bf16], positions: &[f32], width: usize) -> Result<Self> {
        variant(width)?;
        if !words.len().is_multiple_of(width) || !positions.len().is_multiple_of(width) {
            let reason = format!("tables of {} and {} values", words.len(), positions.len());
            return Err(CudaError::shape("embedding", format!("{reason}, rows of {width}")));
        }
        let words = stream.to_device(words, "the weights")?;
        Ok(Self { words, positions: stream.to_device(positions, "the weights")?, width })
    }
}

/// Computes `hidden` `[T, H]` = layer norm of word + position for the T rows of `staged`, and
/// writes the same rows in e4m3, with the scale of `norm`, to `copy` if it is given.
pub fn embed_layer_norm(
    stream: &Stream,
    staged: &Staged,
    embedding: &Embedding,
    norm: &Norm,
    hidden: &mut Buffer<bf16>,
    copy: Option<&mut Buffer<u8>>,
) -> Result<()> {
    const OP: &str = "embed_layer_norm";
    let (rows, width) = (staged.tokens(), embedding.width);
    let limits = staged.limits();
    check_len(OP, "gamma", norm.width(), Some(width))?;
    check_len(OP, "words", embedding.words.len(), limits.vocab_size.checked_mul(width))?;
    check_len(OP, "positions", embedding.positions.len(), limits.num_positions.checked_mul(width))?;
    let kernels = &stream.device().kernels().embed_layer_norm;
    let layout = &staged.layout;
    let (ids, positions) = (staged.start(layout.input_ids), staged.start(layout.position_ids));
    let rows_of: [&dyn Argument; 4] = [&ids, &positions, &embedding.words, &embedding.positions];
    // SAFETY: `rows_of` are the first arguments; all rows and indices are inside their buffers.
    unsafe { launch(OP, stream, kernels, &rows_of, norm, hidden, copy, rows) }
}

/// Computes `out` `[rows, H]` = layer norm of each row of `x` `[rows, H]`, and writes the same rows
/// in e4m3 to `copy` if it is given, as [`embed_layer_norm`] does.
pub fn layer_norm(
    stream: &Stream,
    x: &Buffer<bf16>,
    norm: &Norm,
    out: &mut Buffer<bf16>,
    copy: Option<&mut Buffer<u8>>,
    rows: usize,
) -> Result<()> {
    const OP: &str = "layer_norm";
    check_len(OP, "x", x.len(), rows.checked_mul(norm.width()))?;
    let kernels = &stream.device().kernels().layer_norm;
    // SAFETY: `x` is the first argument; every row is inside its buffer.
    unsafe { launch(OP, stream, kernels, &[x], norm, out, copy, rows) }
}

/// Adds `update` `[rows, H]` to `states` `[rows, H]` f32, computes `hidden` `[rows, H]` = layer
/// norm of the sums, and writes the same rows in e4m3 to `copy` if it is given. If `is_first`,
/// the states so far are the rows of `hidden`, whatever `states` holds.
pub fn add_norm(
    stream: &Stream,
    update: &Buffer<bf16>,
    (states, is_first): (&mut Buffer<f32>, bool),
    norm: &Norm,
    hidden: &mut Buffer<bf16>,
    copy: Option<&mut Buffer<u8>>,
    rows: usize,
) -> Result<()> {
    const OP: &str = "add_norm";
    check_len(OP, "the update", update.len(), rows.checked_mul(norm.width()))?;
    check_len(OP, "the states", states.len(), rows.checked_mul(norm.width()))?;
    let kernels = &stream.device().kernels().add_norm;
    let rows_of: [&dyn Argument; 3] = [update, &*states, &i32::from(is_first)];
    // SAFETY: `rows_of` are the first arguments; every row is inside its buffer.
    unsafe { launch(OP, stream, kernels, &rows_of, norm, hidden, copy, rows) }
}

/// Launches one of `kernels`, which take `rows_of`, the norm, the results and the number of rows.
///
/// # Safety
/// `rows_of` must be the first arguments of the kernels. With them, the kernels must stay inside
/// their memory for `rows` rows of the norm's width.
#[expect(clippy::too_many_arguments, reason = "what a kernel takes")]
unsafe fn launch(
    op: &'static str,
    stream: &Stream,
    kernels: &[Function; NORM_WIDTHS.len()],
    rows_of: &[&dyn Argument],
    norm: &Norm,
    out: &mut Buffer<bf16>,
    copy: Option<&mut Buffer<u8>>,
    rows: usize,
) -> Result<()> {
    let width = norm.width();
    check_len(op, "the result", out.len(), rows.checked_mul(width))?;
    let copy = copy.map(|copy| &*copy);
    if let Some(copy) = copy {
        check_len(op, "the copy", copy.len(), rows.checked_mul(width))?;
        stream.device().kernels().hopper()?;
    }
    let (copy, inverse) = (copy.map_or(&Absent as &dyn Argument, |copy| copy), norm.scale.recip());
    let mut arguments = rows_of.to_vec();
    arguments.extend([&norm.gamma as &dyn Argument, &norm.beta, &norm.eps, &*out, copy, &inverse]);
    let sizes = [rows as i32, width as i32];
    arguments.extend(sizes.iter().map(|size| size as &dyn Argument));
    let (function, grid) = (kernels[variant(width)?], grid(op, rows)?);
    // SAFETY: the caller promises the arguments, and the sizes were checked here.
    unsafe { stream.launch(function, grid, &arguments) }
}

/// Returns the index in [`NORM_WIDTHS`] of the kernel for rows of `width`.
fn variant(width: usize) -> Result<usize> {
    match width {
        768 => Ok(1),
        1024 => Ok(2),
        _ if width == 0 || width > MAX_WIDTH || !width.is_multiple_of(8) => {
            let reason = format!("rows of {width} values; multiples of 8 up to {MAX_WIDTH} are");
            Err(CudaError::unsupported(reason))
        }
        _ if width <= 512 => Ok(0),
        _ => Ok(3),
    }
}

fn grid(op: &'static str, rows: usize) -> Result<Grid> {
    match i32::try_from(rows) {
        Ok(rows) if rows > 0 => Ok(Grid::line(rows.unsigned_abs().div_ceil(ROWS as u32), THREADS)),
        _ => Err(CudaError::shape(op, format!("{rows} rows"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_for_a_width_holds_it() {
        for width in (8..=MAX_WIDTH).step_by(8) {
            let name = variant(width).map_or("none", |variant| NORM_WIDTHS[variant]);
            let holds = match name.split_once('_') {
                Some(("upto", most)) => most.parse().is_ok_and(|most: usize| width <= most),
                _ => name == width.to_string(),
            };
            assert!(holds, "{width}: {name}");
        }
        for width in [0, 4, 12, 1032] {
            assert!(variant(width).is_err(), "{width}");
        }
    }

    #[test]
    fn the_blocks_hold_every_row() {
        for (rows, blocks) in [(1, 1), (8, 1), (9, 2), (528, 66), (33_792, 4_224)] {
            assert_eq!(grid("x", rows), Ok(Grid::line(blocks, 128)));
        }
        assert!(grid("x", 0).is_err());
        assert!(grid("x", 1 << 31).is_err());
    }
}
