//! Layer norm of rows, fused with the sum of embeddings or with the residual.

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::module::Function;
use super::staged::Staged;
use super::stream::{Grid, Place, Stream};

/// Widest row that the kernels hold in registers.
pub const MAX_WIDTH: usize = 1024;

/// Rows of a block, a warp each.
const ROWS: usize = 8;

/// Weights of a layer norm, on a card.
pub struct Norm {
    gamma: Buffer<f32>,
    beta: Buffer<f32>,
    eps: f32,
}

impl Norm {
    /// Copies `gamma` and `beta` `[H]` to the card; `eps` is added to the variance.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if their lengths differ; [`CudaError::Unsupported`] if H is no multiple of
    /// 8 or more than [`MAX_WIDTH`]; as [`super::Device::alloc`].
    pub fn new(stream: &Stream, gamma: &[f32], beta: &[f32], eps: f64) -> Result<Self> {
        check_len("layer norm", "beta", beta.len(), Some(gamma.len()))?;
        chunks(gamma.len())?;
        let gamma = stream.to_device(gamma, "the weights")?;
        Ok(Self { gamma, beta: stream.to_device(beta, "the weights")?, eps: eps as f32 })
    }

    /// Width H of a row.
    pub fn width(&self) -> usize {
        self.gamma.len()
    }
}

/// The embedding tables of a model, on a card.
pub struct Embedding {
    words: Buffer<bf16>,
    positions: Buffer<f32>,
    width: usize,
}

impl Embedding {
    /// Copies `words` `[V, H]` and `positions` `[P, H]`, to which the embedding of the one token type
    /// is already added, to the card; H = `width`.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if a length is no multiple of H; as [`super::Device::alloc`].
    pub fn new(stream: &Stream, words: &[bf16], positions: &[f32], width: usize) -> Result<Self> {
        chunks(width)?;
        if !words.len().is_multiple_of(width) || !positions.len().is_multiple_of(width) {
            let reason = format!("tables of {} and {} values", words.len(), positions.len());
            return Err(CudaError::shape("embedding", format!("{reason}, rows of {width}")));
        }
        let words = stream.to_device(words, "the weights")?;
        Ok(Self { words, positions: stream.to_device(positions, "the weights")?, width })
    }
}

/// `hidden` `[T, H]` = layer norm of word + position, for the T rows of `staged`.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the card fails.
pub fn embed_layer_norm(
    stream: &Stream,
    staged: &Staged,
    embedding: &Embedding,
    norm: &Norm,
    hidden: &mut Buffer<bf16>,
) -> Result<()> {
    const OP: &str = "embed_layer_norm";
    let (rows, width) = (staged.tokens(), embedding.width);
    let limits = staged.limits();
    check_len(OP, "gamma", norm.width(), Some(width))?;
    check_len(OP, "words", embedding.words.len(), limits.vocab_size.checked_mul(width))?;
    check_len(OP, "positions", embedding.positions.len(), limits.num_positions.checked_mul(width))?;
    check_len(OP, "hidden", hidden.len(), rows.checked_mul(width))?;
    let kernels = &stream.device().kernels().embed_layer_norm;
    let (function, grid) = plan(OP, kernels, rows, width)?;
    // SAFETY: the arguments of embed_layer_norm_N; every row and every index that `staged` may hold
    // is inside its buffer, as checked above.
    unsafe {
        stream.launch(
            function,
            grid,
            &[
                &staged.input_ids(),
                &staged.position_ids(),
                &Place::new(&embedding.words, 0),
                &Place::new(&embedding.positions, 0),
                &Place::new(&norm.gamma, 0),
                &Place::new(&norm.beta, 0),
                &norm.eps,
                &Place::new(hidden, 0),
                &(rows as i32),
                &(width as i32),
            ],
        )
    }
}

/// `hidden` `[rows, H]` = layer norm of `hidden + x`, row by row.
///
/// # Errors
/// [`CudaError::Shape`] if sizes do not fit; [`CudaError::Driver`] if the card fails.
pub fn add_layer_norm(
    stream: &Stream,
    x: &Buffer<bf16>,
    norm: &Norm,
    hidden: &mut Buffer<bf16>,
    rows: usize,
) -> Result<()> {
    const OP: &str = "add_layer_norm";
    let width = norm.width();
    check_len(OP, "x", x.len(), rows.checked_mul(width))?;
    check_len(OP, "hidden", hidden.len(), rows.checked_mul(width))?;
    let (function, grid) = plan(OP, &stream.device().kernels().add_layer_norm, rows, width)?;
    // SAFETY: the arguments of add_layer_norm_N; every row is inside its buffer.
    unsafe {
        stream.launch(
            function,
            grid,
            &[
                &Place::new(x, 0),
                &Place::new(hidden, 0),
                &Place::new(&norm.gamma, 0),
                &Place::new(&norm.beta, 0),
                &norm.eps,
                &(rows as i32),
                &(width as i32),
            ],
        )
    }
}

/// Chunks of 8 values that a lane holds of a row of `width`.
fn chunks(width: usize) -> Result<usize> {
    if width == 0 || width > MAX_WIDTH || !width.is_multiple_of(8) {
        return Err(CudaError::unsupported(format!(
            "rows of {width} values; multiples of 8 up to {MAX_WIDTH} are"
        )));
    }
    Ok(width.div_ceil(256))
}

fn plan(
    op: &'static str,
    kernels: &[Function; 4],
    rows: usize,
    width: usize,
) -> Result<(Function, Grid)> {
    Ok((kernels[chunks(width)? - 1], grid(op, rows)?))
}

fn grid(op: &'static str, rows: usize) -> Result<Grid> {
    match i32::try_from(rows) {
        Ok(rows) if rows > 0 => Ok(Grid::line(rows.unsigned_abs().div_ceil(ROWS as u32), 256)),
        _ => Err(CudaError::shape(op, format!("{rows} rows"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_for_a_width_holds_it_and_no_more_than_a_chunk_too_many() {
        for width in (8..=MAX_WIDTH).step_by(8) {
            let n = chunks(width).unwrap_or(0);
            assert!(256 * n >= width && 256 * (n - 1) < width, "{width}: {n}");
        }
        for width in [0, 4, 12, 1032] {
            assert!(chunks(width).is_err(), "{width}");
        }
    }

    #[test]
    fn the_blocks_hold_every_row() {
        for (rows, blocks) in [(1, 1), (8, 1), (9, 2), (528, 66), (33_792, 4_224)] {
            assert_eq!(grid("x", rows), Ok(Grid::line(blocks, 256)));
        }
        assert!(grid("x", 0).is_err());
        assert!(grid("x", 1 << 31).is_err());
    }
}
