//! Rotary position embedding (`RoPE`).

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::staged::Staged;
use super::stream::{Argument, Grid, Stream};

const THREADS: u32 = 256;
/// Units of work per tile.
const SLICES: usize = 8;
/// Blocks of 256 threads that fit on a multiprocessor.
const BLOCKS_PER_MULTIPROCESSOR: usize = 6;

/// Rotates queries and keys of `qkv` `[T, 3 * heads * D]` (rows of q, k, v) in place. Row i of
/// `angles` `[max_tokens, D]` rotates the token at position i of its sequence: D / 2 cosines, then
/// D / 2 sines. Value i of a head is rotated with value i + D / 2. D is a multiple of 16.
pub fn rotate(
    stream: &Stream,
    staged: &Staged,
    angles: &Buffer<f32>,
    qkv: &mut Buffer<bf16>,
    (heads, head_size): (usize, usize),
) -> Result<()> {
    const OP: &str = "rotate";
    let width = heads.checked_mul(head_size).and_then(|width| width.checked_mul(3));
    check_len(OP, "qkv", qkv.len(), width.and_then(|width| width.checked_mul(staged.tokens())))?;
    // Every position of a sequence must have its angles.
    let places = staged.limits().max_tokens.unwrap_or(usize::MAX);
    check_len(OP, "angles", angles.len(), places.checked_mul(head_size))?;
    if head_size == 0 || !head_size.is_multiple_of(16) || width.is_none_or(|w| w > 1 << 24) {
        return Err(CudaError::shape(OP, format!("{heads} heads of {head_size} values")));
    }
    let device = stream.device();
    let room = device.info().multiprocessors as usize * BLOCKS_PER_MULTIPROCESSOR;
    let blocks = staged.layout.max_tiles.saturating_mul(SLICES).clamp(1, room.max(1));
    let (tiles, counts) = (staged.start(staged.layout.tiles), staged.counts());
    let (heads, head_size) = (heads as i32, head_size as i32);
    let arguments: [&dyn Argument; 6] = [&*qkv, angles, &tiles, counts, &heads, &head_size];
    // SAFETY: the arguments match; tiles are inside T rows, no sequence is longer than the angles.
    unsafe {
        stream.launch(device.kernels().get(OP)?, Grid::line(blocks as u32, THREADS), &arguments)
    }
}
