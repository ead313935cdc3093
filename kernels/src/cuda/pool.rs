//! Pools token states to one vector per sequence.

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::staged::{Staged, max_sequences};
use super::stream::{Argument, Grid, Stream};

/// Columns per block.
const COLUMNS: usize = 64;
/// Blocks of 256 threads that fit on a multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: usize = 8;

/// Tokens that the mean of a sequence is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PooledTokens {
    /// All tokens.
    All,
    /// The first token.
    First,
    /// The last token.
    Last,
}

/// Computes, for each sequence, the mean over the rows of `hidden` `[T, width]` that `tokens`
/// selects, and writes the first `num_sequences` rows of `embeddings` `[T / 4, width]` f32.
pub fn pool(
    stream: &Stream,
    staged: &Staged,
    hidden: &Buffer<bf16>,
    embeddings: &mut Buffer<f32>,
    width: usize,
    tokens: PooledTokens,
) -> Result<()> {
    const OP: &str = "pool";
    let sequences = max_sequences(staged.tokens());
    check_len(OP, "hidden", hidden.len(), staged.tokens().checked_mul(width))?;
    check_len(OP, "embeddings", embeddings.len(), sequences.checked_mul(width))?;
    let device = stream.device();
    let grid = grid(sequences, width, device.info().multiprocessors as usize)?;
    let (width, tokens) = (width as i32, tokens as i32);
    let (starts, counts) = (staged.start(staged.layout.cu_seqlens), staged.counts());
    let arguments: [&dyn Argument; 6] = [hidden, &starts, counts, &*embeddings, &width, &tokens];
    // SAFETY: the arguments match; `staged` holds at most T / 4 sequences, which are inside T rows.
    unsafe { stream.launch(device.kernels().get(OP)?, grid, &arguments) }
}

/// Returns blocks for parts of the width by sequences, or fewer if so many do not fit the GPU.
fn grid(sequences: usize, width: usize, multiprocessors: usize) -> Result<Grid> {
    if width == 0 || !width.is_multiple_of(8) || i32::try_from(width).is_err() {
        return Err(CudaError::shape("pool", format!("rows of {width} values")));
    }
    let across = width.div_ceil(COLUMNS);
    // Batches with T / 4 sequences are rare: more blocks than fit on the GPU would mostly be idle.
    let room = (multiprocessors * BLOCKS_PER_MULTIPROCESSOR / across).max(1);
    Ok(Grid { blocks: (across as u32, sequences.clamp(1, room) as u32), threads: 256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_every_column_and_as_many_sequences_as_the_device_has_room_for() {
        assert_eq!(grid(33, 768, 132), Ok(Grid { blocks: (12, 33), threads: 256 }));
        assert_eq!(grid(8_448, 768, 132), Ok(Grid { blocks: (12, 88), threads: 256 }));
        assert_eq!(grid(8_448, 264, 132), Ok(Grid { blocks: (5, 211), threads: 256 }));
        assert_eq!(grid(0, 8, 0), Ok(Grid { blocks: (1, 1), threads: 256 }));
        assert!(grid(1, 12, 132).is_err());
    }
}
