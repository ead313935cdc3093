//! Layer norm of rows, alone or fused with a sum of embeddings or of states.

use half::bf16;

use super::e4m3::Bound;
use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::staged::Staged;
use super::stream::{ABSENT, Argument, Grid, Stream};

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
        kernel_widths(gamma.len())?;
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
        kernel_widths(width)?;
        if !words.len().is_multiple_of(width) || !positions.len().is_multiple_of(width) {
            let reason = format!("tables of {} and {} values", words.len(), positions.len());
            return Err(CudaError::shape("embedding", format!("{reason}, rows of {width}")));
        }
        let words = stream.to_device(words, "the weights")?;
        Ok(Self { words, positions: stream.to_device(positions, "the weights")?, width })
    }
}

/// The rows that a layer norm reads.
pub enum NormInput<'a> {
    /// Word + position of the tokens.
    Tokens(&'a Staged, &'a Embedding),
    /// Rows `[rows, H]`.
    Rows(&'a Buffer<bf16>),
    /// Sums, which become the states.
    Sums {
        /// `[rows, H]`, added to the states.
        update: &'a Buffer<bf16>,
        /// `[rows, H]`.
        states: &'a mut Buffer<f32>,
        /// Whether the states so far are the rows of the result, whatever `states` holds.
        is_first: bool,
    },
}

/// Computes `out` `[rows, H]` = layer norm of the rows of `input`, and writes the same rows in
/// e4m3, with the scale of `norm`, to `copy` if it is given.
pub fn layer_norm(
    stream: &Stream,
    input: NormInput<'_>,
    norm: &Norm,
    out: &mut Buffer<bf16>,
    copy: Option<&mut Buffer<u8>>,
    rows: usize,
) -> Result<()> {
    let kernels = stream.device().kernels();
    let width = norm.width();
    let values = rows.checked_mul(width);
    let (ids, positions, first);
    let (op, mut arguments): (_, Vec<&dyn Argument>) = match input {
        NormInput::Tokens(staged, embedding) => {
            let (op, limits, layout) = ("embed_layer_norm", staged.limits(), &staged.layout);
            let Embedding { words, positions: of_positions, .. } = embedding;
            check_len(op, "gamma", width, Some(embedding.width))?;
            check_len(op, "the batch", staged.tokens(), Some(rows))?;
            check_len(op, "words", words.len(), limits.vocab_size.checked_mul(width))?;
            let places = limits.num_positions.checked_mul(width);
            check_len(op, "positions", of_positions.len(), places)?;
            (ids, positions) = (staged.start(layout.input_ids), staged.start(layout.position_ids));
            (op, vec![&ids, &positions, words, of_positions])
        }
        NormInput::Rows(x) => {
            check_len("layer_norm", "x", x.len(), values)?;
            ("layer_norm", vec![x])
        }
        NormInput::Sums { update, states, is_first } => {
            check_len("add_norm", "the update", update.len(), values)?;
            check_len("add_norm", "the states", states.len(), values)?;
            first = i32::from(is_first);
            ("add_norm", vec![update, &*states, &first])
        }
    };
    check_len(op, "the result", out.len(), values)?;
    let copy = copy.map(|copy| &*copy);
    if let Some(copy) = copy {
        check_len(op, "the copy", copy.len(), values)?;
        kernels.check_hopper()?;
    }
    let (copy, inverse) = (copy.map_or(&ABSENT as &dyn Argument, |copy| copy), norm.scale.recip());
    arguments.extend([&norm.gamma as &dyn Argument, &norm.beta, &norm.eps, &*out, copy, &inverse]);
    let sizes = [rows as i32, width as i32];
    arguments.extend(sizes.iter().map(|size| size as &dyn Argument));
    let function = kernels.get(&format!("{op}_{}", kernel_widths(width)?))?;
    // SAFETY: the arguments match layer_norm.cu; all rows and indices are inside their buffers.
    unsafe { stream.launch(function, grid(op, rows)?, &arguments) }
}

/// Returns the width in the kernel's name for rows of `width`, such as `upto_512`; or an error.
fn kernel_widths(width: usize) -> Result<&'static str> {
    match width {
        768 => Ok("768"),
        1024 => Ok("1024"),
        _ if width == 0 || width > MAX_WIDTH || !width.is_multiple_of(8) => {
            let reason = format!("rows of {width} values; multiples of 8 up to {MAX_WIDTH} are");
            Err(CudaError::Unsupported(reason))
        }
        _ if width <= 512 => Ok("upto_512"),
        _ => Ok("upto_1024"),
    }
}

/// Returns the grid for `rows` rows, at least one and as many as an i32 counts.
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
            let name = kernel_widths(width).unwrap_or("none");
            let holds = match name.split_once('_') {
                Some(("upto", most)) => most.parse().is_ok_and(|most: usize| width <= most),
                _ => name == width.to_string(),
            };
            assert!(holds, "{width}: {name}");
        }
        for width in [0, 4, 12, 1032] {
            assert!(kernel_widths(width).is_err(), "{width}");
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
