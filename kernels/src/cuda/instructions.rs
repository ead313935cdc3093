//! Matrix instructions of the kernels, and the check that two kernels for an operation agree.

use half::bf16;

use super::device::Device;
use super::error::Result;
use super::memory::Buffer;
use super::stream::Stream;

/// Matrix instructions that a matrix product or attention uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixInstructions {
    /// Instructions of a warp (mma.sync), on every supported GPU; bf16 only.
    Warp,
    /// Instructions of a warpgroup (wgmma), on GPUs of compute capability 9.0.
    Warpgroup,
}

/// Values compared at each end of a result: the first ones that the kernels compute, and the ones
/// that they compute after they have reused all their memory several times.
const COMPARED: usize = 1 << 20;
/// Largest relative L2 distance of right results: rounding to bf16 adds at most 2^-8 to each.
const MAX_DISTANCE: f64 = 1.0 / 128.0;

impl MatrixInstructions {
    /// Returns the fastest instructions that `device` has kernels for.
    pub fn fastest(device: &Device) -> Self {
        if device.kernels().check_hopper().is_ok() { Self::Warpgroup } else { Self::Warp }
    }

    /// Returns [`Self::Warpgroup`] if its result agrees with [`Self::Warp`]'s; otherwise warns and
    /// returns [`Self::Warp`]: the warpgroup kernels rely on places in shared memory and on the
    /// order of accesses, which only a GPU shows. `run` queues `what` and returns its [`ends`].
    pub fn agreeing(what: &str, mut run: impl FnMut(Self) -> Result<Vec<bf16>>) -> Result<Self> {
        let distance = relative_distance(&run(Self::Warp)?, &run(Self::Warpgroup)?);
        tracing::debug!(distance, "{what}: distance of two kernels");
        if distance <= MAX_DISTANCE {
            return Ok(Self::Warpgroup);
        }
        tracing::warn!(
            distance,
            "the kernel for warpgroups gives wrong results for {what} on this GPU and is not used; \
             please report this"
        );
        Ok(Self::Warp)
    }
}

/// Waits for the work queued so far, and returns values at both ends of the first `n` of `result`.
pub fn ends(stream: &Stream, result: &Buffer<bf16>, n: usize) -> Result<Vec<bf16>> {
    let mut ends = vec![bf16::ZERO; n.min(2 * COMPARED)];
    let (first, last) = ends.split_at_mut(n.min(COMPARED));
    stream.download(result, 0, first)?;
    stream.download(result, n - last.len(), last)?;
    Ok(ends)
}

/// Fills the first `n` values of `buffer` with values between -1 and 1, random but always the same.
pub fn randomize(stream: &Stream, buffer: &mut Buffer<bf16>, n: usize) -> Result<()> {
    let block = random_values(n.clamp(1, 1 << 20));
    (0..n)
        .step_by(block.len())
        .try_for_each(|at| stream.upload(buffer, at, &block[..block.len().min(n - at)]))
}

/// Returns the L2 norm of `a - b` by that of `a`; NaN if `a` is zero or a value is not finite.
fn relative_distance(a: &[bf16], b: &[bf16]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let differences = a.iter().zip(b).map(|(&x, &y)| f64::from(x) - f64::from(y));
    norm(&mut { differences }) / norm(&mut a.iter().map(|&x| f64::from(x)))
}

/// Returns `n` values from -1 to 1, always the same.
fn random_values(n: usize) -> Vec<bf16> {
    let mut state = 0u64;
    let next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bf16::from_f32(((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    std::iter::repeat_with(next).take(n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_are_spread_and_not_zero() {
        let values = random_values(10_000);
        let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / 1e4;
        let square = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 1e4;
        // For the uniform distribution, the mean is 0 with deviation 0.0058 and the mean square 1/3
        // with deviation 0.003; the test allows 4 deviations.
        assert!(mean.abs() < 0.024 && (square - 1.0 / 3.0).abs() < 0.012, "{mean} {square}");
        assert!(values.iter().all(|x| x.to_f32().abs() <= 1.0));
    }

    #[test]
    fn results_that_are_far_apart_or_not_numbers_do_not_agree() {
        let values = |x: f32| [bf16::ONE, bf16::from_f32(x)];
        let agrees = |x: f32| relative_distance(&values(1.0), &values(x)) <= MAX_DISTANCE;
        assert!(agrees(1.0));
        // One of two values is one bf16 unit above 1: the distance is 2^-7 / sqrt(2).
        assert!(agrees(1.007_812_5));
        assert!(!agrees(1.03));
        assert!(!agrees(f32::NAN));
    }
}
