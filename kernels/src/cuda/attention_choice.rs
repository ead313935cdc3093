//! The choice between the kernels of attention, made on the card itself.
//!
//! The kernel for warpgroups ought to be the faster one, but what it relies on (the layout of
//! operands in shared memory, the order of accesses to it) shows on a card only. So it is used
//! where it gives the results of the kernel for warps and takes less time.

use half::bf16;

use super::attention::{AttentionKernel, attention};
use super::error::Result;
use super::memory::Buffer;
use super::search::{median_seconds, random_values};
use super::staged::Staged;
use super::staging::Limits;
use super::stream::Stream;

/// Largest relative L2 distance between two right results: both round the weights and the result
/// to bf16, by at most 2^-8 each and by far less on average.
const MAX_DISTANCE: f64 = 1.0 / 128.0;
/// Work items per multiprocessor of the trial: a few rounds of the blocks that are on one at once.
const ITEMS: usize = 6;
/// Tiles of a sequence of 512 tokens.
const TILES: usize = 4;

/// What [`AttentionKernel::choose`] found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionChoice {
    /// The kernel to use.
    pub kernel: AttentionKernel,
    /// Relative L2 distance between the results of the two; `None` if the card has only one.
    pub distance: Option<f64>,
}

impl AttentionChoice {
    /// Whether the two kernels disagree, so that the one for warps is used.
    pub fn is_disagreement(&self) -> bool {
        self.distance.is_some_and(|distance| distance > MAX_DISTANCE || distance.is_nan())
    }
}

impl AttentionKernel {
    /// Chooses the kernel for `heads` heads of `head_size` values and sequences of up to
    /// `max_tokens` tokens. Overwrites `qkv` `[T, 3 * heads * D]` and `context` `[T, heads * D]`.
    /// Nothing else should run on the card meanwhile.
    ///
    /// # Errors
    /// As [`attention`] and [`Device::alloc`](super::Device::alloc).
    pub fn choose(
        stream: &Stream,
        qkv: &mut Buffer<bf16>,
        context: &mut Buffer<bf16>,
        (heads, head_size): (usize, usize),
        (limits, max_tokens): (Limits, usize),
    ) -> Result<AttentionChoice> {
        if !Self::Warpgroup.is_on(stream.device(), head_size) {
            return Ok(AttentionChoice { kernel: Self::Warp, distance: None });
        }
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
        stream.upload(qkv, 0, &random_values(3 * values))?;

        let mut results = Vec::new();
        let mut seconds = Vec::new();
        for kernel in [Self::Warp, Self::Warpgroup] {
            let mut run = || attention(stream, &staged, qkv, context, (heads, head_size), kernel);
            seconds.push(median_seconds(stream, &mut run)?);
            let mut result = vec![bf16::ZERO; values];
            stream.download(context, &mut result)?;
            results.push(result);
        }
        let mut choice = AttentionChoice {
            kernel: Self::Warp,
            distance: Some(distance(&results[0], &results[1])),
        };
        if !choice.is_disagreement() && seconds[1] < seconds[0] {
            choice.kernel = Self::Warpgroup;
        }
        Ok(choice)
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

/// ‖a - b‖ / ‖a‖.
fn distance(a: &[bf16], b: &[bf16]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let differences = a.iter().zip(b).map(|(&x, &y)| f64::from(x) - f64::from(y));
    norm(&mut { differences }) / norm(&mut a.iter().map(|&x| f64::from(x)))
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

    #[test]
    fn results_that_are_far_apart_or_not_numbers_are_a_disagreement() {
        let values = |x: f32| [bf16::ONE, bf16::from_f32(x)];
        let choice = |x: f32| AttentionChoice {
            kernel: AttentionKernel::Warp,
            distance: Some(distance(&values(1.0), &values(x))),
        };
        assert!(!choice(1.0).is_disagreement());
        // One unit of bf16 above 1 in one of two values: 2^-7 / sqrt(2).
        assert!(!choice(1.007_812_5).is_disagreement());
        assert!(choice(1.03).is_disagreement());
        assert!(choice(f32::NAN).is_disagreement());
    }
}
