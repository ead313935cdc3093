//! The choice between the kernels of attention, made on the GPU itself.

use super::attention::{AttentionKernel, attention};
use super::error::Result;
use super::memory::Buffer;
use super::search::{Trial, randomize, trials};
use super::staged::Staged;
use super::staging::Limits;
use super::stream::Stream;
use half::bf16;

/// Work items per multiprocessor of the trial: a few rounds of the blocks that are on one at once.
const ITEMS: usize = 6;
/// Tiles of a sequence of 512 tokens.
const TILES: usize = 4;

impl AttentionKernel {
    /// The kernels that the GPU has for `heads` heads of `head_size` values, the fastest first and
    /// wrong ones last, tried on sequences of up to `max_tokens` tokens. Overwrites `qkv`
    /// `[T, 3 * heads * D]` and `context` `[T, heads * D]`. Nothing else should run on the GPU meanwhile.
    ///
    /// # Errors
    /// As [`attention`] and [`Device::alloc`](super::Device::alloc).
    pub fn search(
        stream: &Stream,
        qkv: &mut Buffer<bf16>,
        context: &mut Buffer<bf16>,
        (heads, head_size): (usize, usize),
        (limits, max_tokens): (Limits, usize),
    ) -> Result<Vec<Trial<Self>>> {
        let tokens = context.len() / (heads * head_size).max(1);
        let multiprocessors = stream.device().info().multiprocessors as usize;
        let sequences = (ITEMS * multiprocessors).div_ceil(TILES * heads.max(1));
        let cu_seqlens = trial_batch(tokens, max_tokens, sequences);
        let num_tokens = cu_seqlens[cu_seqlens.len() - 1] as usize;
        let mut staged = Staged::new(stream, tokens, limits)?;
        // Attention sees no token ids; one that is no padding gives every token a position.
        let any_id = u32::from(limits.pad_token_id == 0);
        staged.put(stream, &vec![any_id; num_tokens], &cu_seqlens)?;
        let values = num_tokens * heads * head_size;
        randomize(stream, qkv, 3 * values)?;
        let kernels = [Self::Warp, Self::Warpgroup].into_iter();
        let kernels = kernels.filter(|kernel| kernel.is_on(stream.device(), head_size)).collect();
        trials(stream, kernels, context, values, |&kernel, context| {
            attention(stream, &staged, qkv, context, (heads, head_size), kernel)
        })
    }
}

/// Starts of at most `sequences` sequences in at most `tokens` tokens, of four lengths each of which
/// leaves another rest of a tile.
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
    fn the_trial_fits_and_has_different_lengths() {
        let lengths = |starts: &[u32]| starts.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
        assert_eq!(lengths(&trial_batch(16_896, 512, 5)), [512, 257, 135, 384, 512]);
        assert_eq!(lengths(&trial_batch(800, 512, 17)), [512, 257]);
        assert_eq!(lengths(&trial_batch(8, 1, 3)), [1, 1, 1]);
        assert_eq!(trial_batch(100, 512, 3), [0]);
    }
}
