//! Attention over packed sequences.

use half::bf16;

use super::device::Device;
use super::e4m3::Output;
use super::error::{CudaError, Result, check_len};
use super::instructions::{MatrixInstructions, ends, randomize};
use super::memory::Buffer;
use super::module::Function;
use super::staged::{Limits, Staged};
use super::stream::{Argument, Grid, Stream};

/// Head sizes that have a kernel.
pub const HEAD_SIZES: [usize; 2] = [32, 64];

/// Returns the kernel for heads of `head_size` values, if there is one, and its threads per block.
fn find_kernel(
    device: &Device,
    instructions: MatrixInstructions,
    head_size: usize,
    is_windowed: bool,
) -> Result<(Function, u32)> {
    let (name, threads) = match instructions {
        MatrixInstructions::Warp => (format!("{head_size}"), 128),
        MatrixInstructions::Warpgroup => (format!("{head_size}_hopper"), 256),
    };
    let window = if is_windowed { "_window" } else { "" };
    Ok((device.kernels().get(&format!("attention{window}_{name}"))?, threads))
}

/// Blocks that fit on a multiprocessor; the blocks share the work among themselves.
const BLOCKS_PER_MULTIPROCESSOR: usize = 2;

/// Maximum window of a kernel, so that its sums with positions fit 32 bits.
const MOST_PLACES: usize = 1 << 30;

/// Units of work per multiprocessor in the trial: a few rounds of the blocks that run on one.
const ITEMS: usize = 6;
/// Tiles of a sequence of 512 tokens.
const TILES: usize = 4;

/// Computes `context` `[T, heads * D]` = softmax(q kᵀ / √D) v for each head and sequence of
/// `staged`, from rows of q, k, v in `qkv` `[T, 3 * heads * D]`. With a `window`, a query attends
/// only to keys at most that many positions away. Rows outside the sequences stay as they are.
pub fn attention(
    stream: &Stream,
    staged: &Staged,
    qkv: &Buffer<bf16>,
    context: &Output<'_>,
    (heads, head_size): (usize, usize),
    window: Option<usize>,
    instructions: MatrixInstructions,
) -> Result<()> {
    const OP: &str = "attention";
    let device = stream.device();
    let (function, threads) = find_kernel(device, instructions, head_size, window.is_some())?;
    let values = heads.checked_mul(head_size).and_then(|width| width.checked_mul(staged.tokens()));
    check_len(OP, "qkv", qkv.len(), values.and_then(|values| values.checked_mul(3)))?;
    check_len(OP, "context", context.len(), values)?;
    let multiprocessors = device.info().multiprocessors as usize;
    let blocks = num_blocks(staged.layout.max_tiles, heads, multiprocessors)?;
    // The kernel's softmax uses base 2.
    let scale = (std::f64::consts::LOG2_E / (head_size as f64).sqrt()) as f32;
    let tiles = staged.start(staged.layout.tiles);
    let (counts, heads) = (staged.counts(), heads as i32);
    let (context, inverse) = context.arguments(device)?;
    let mut arguments: Vec<&dyn Argument> =
        vec![qkv, context, &inverse, &tiles, counts, &heads, &scale];
    let places = window.map(|window| window.min(MOST_PLACES) as i32);
    arguments.extend(places.as_ref().map(|places| places as &dyn Argument));
    // SAFETY: the arguments match the kernels; the tiles that `staged` may hold are inside T rows.
    unsafe { stream.launch(function, Grid::line(blocks, threads), &arguments) }
}

/// Returns the blocks of a launch: as many as fit on the GPU, but no more than there are tiles of
/// heads. No work, or more than an i32 counts, is an error.
fn num_blocks(max_tiles: usize, heads: usize, multiprocessors: usize) -> Result<u32> {
    let items = max_tiles.checked_mul(heads);
    let items = items.filter(|&items| items > 0 && i32::try_from(items).is_ok());
    let wrong = || CudaError::shape("attention", format!("{max_tiles} tiles of {heads} heads"));
    let room = multiprocessors.max(1) * BLOCKS_PER_MULTIPROCESSOR;
    items.map(|items| items.min(room) as u32).ok_or_else(wrong)
}

/// Chooses the instructions for attention with `heads` heads of `head_size` values: warpgroup
/// instructions if the GPU has them and they give right results with `window` on sequences of up to
/// `max_tokens` tokens. Overwrites `qkv` `[T, 3 * heads * D]` and `context` `[T, heads * D]`.
pub fn choose_attention(
    stream: &Stream,
    qkv: &mut Buffer<bf16>,
    context: &mut Buffer<bf16>,
    (heads, head_size): (usize, usize),
    window: Option<usize>,
    (limits, max_tokens): (Limits, usize),
) -> Result<MatrixInstructions> {
    if find_kernel(stream.device(), MatrixInstructions::Warpgroup, head_size, false).is_err() {
        return Ok(MatrixInstructions::Warp);
    }
    let tokens = context.len() / (heads * head_size).max(1);
    let multiprocessors = stream.device().info().multiprocessors as usize;
    let sequences = (ITEMS * multiprocessors).div_ceil(TILES * heads.max(1));
    let cu_seqlens = trial_batch(tokens, max_tokens, sequences);
    let num_tokens = cu_seqlens[cu_seqlens.len() - 1] as usize;
    let mut staged = Staged::new(stream, tokens, limits)?;
    // Attention reads no token ids and no positions.
    staged.put(stream, &vec![0; num_tokens], [], &cu_seqlens)?;
    let values = num_tokens * heads * head_size;
    randomize(stream, qkv, 3 * values)?;
    MatrixInstructions::agreeing("attention", |instructions| {
        let output = Output::Bf16(&mut *context);
        attention(stream, &staged, qkv, &output, (heads, head_size), window, instructions)?;
        ends(stream, context, values)
    })
}

/// Returns the starts of up to `sequences` sequences in `tokens` tokens, and the end of the last.
/// Their four lengths, up to `max_tokens`, leave different remainders of a tile.
fn trial_batch(tokens: usize, max_tokens: usize, sequences: usize) -> Vec<u32> {
    let lengths = [max_tokens, max_tokens.div_ceil(2) + 1, max_tokens / 4 + 7, max_tokens * 3 / 4];
    let mut starts = vec![0];
    let mut end = 0;
    for length in
        lengths.iter().map(|&length| length.clamp(1, max_tokens.max(1))).cycle().take(sequences)
    {
        end += length;
        if end > tokens {
            break;
        }
        starts.push(end as u32);
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_the_device_but_are_not_more_than_the_work() {
        assert_eq!(num_blocks(4_356, 12, 132), Ok(264));
        assert_eq!(num_blocks(136, 1, 132), Ok(136));
        assert_eq!(num_blocks(1, 1, 0), Ok(1));
        assert!(num_blocks(1, 0, 132).is_err());
        assert!(num_blocks(1 << 30, 12, 132).is_err());
    }

    #[test]
    fn the_trial_fits_and_has_different_lengths() {
        let lengths = |starts: &[u32]| starts.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
        assert_eq!(lengths(&trial_batch(16_896, 512, 5)), [512, 257, 135, 384, 512]);
        assert_eq!(lengths(&trial_batch(800, 512, 17)), [512, 257]);
        assert_eq!(lengths(&trial_batch(8, 1, 3)), [1, 1, 1]);
        assert_eq!(trial_batch(100, 512, 3), [0]);
    }
}
