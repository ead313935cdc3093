//! The search for the fastest algorithm of a matrix product.

use std::time::Instant;

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::matmul::{Algorithm, Linear, Matmul, Operands};
use super::memory::Buffer;
use super::stream::Stream;

/// Candidates that a search asks cublasLt for.
const CANDIDATES: usize = 32;
/// Timings of a candidate, of which the median counts.
const TIMINGS: usize = 5;
/// Seconds that a timing should take, so that the clock and the wait do not show...
const TIMING_SECONDS: f64 = 1e-3;
/// ... and the most products that it takes for that.
const MAX_PRODUCTS: f64 = 20.0;

impl Matmul {
    /// The fastest algorithm on this card. Overwrites `x`, with random values (zeros would let the
    /// card run faster than it ever will), and `y`. Nothing else should run meanwhile.
    ///
    /// # Errors
    /// As [`Matmul::candidates`] and [`Matmul::run`].
    pub fn search(
        &mut self,
        stream: &Stream,
        linear: &Linear,
        x: &mut Buffer<bf16>,
        y: &mut Buffer<bf16>,
        workspace: &mut Buffer<u8>,
    ) -> Result<Algorithm> {
        let values = self.shape.tokens * self.shape.inputs;
        check_len("search", "x", x.len(), Some(values))?;
        let block = random_values(values.min(1 << 20));
        for at in (0..values).step_by(block.len()) {
            stream.upload(x, at, &block[..block.len().min(values - at)])?;
        }
        let mut best: Option<(f64, Algorithm)> = None;
        let mut refused = None;
        for algorithm in self.candidates(linear, CANDIDATES)? {
            let mut product = || {
                let operands = Operands { x: &*x, y: &mut *y, workspace: &mut *workspace };
                self.run(stream, &algorithm, linear, operands)
            };
            // A candidate may still be refused; the next one then counts.
            match median_seconds(stream, &mut product) {
                Ok(seconds) if best.is_none_or(|(least, _)| seconds < least) => {
                    best = Some((seconds, algorithm));
                }
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match (best, refused) {
            (Some((_, algorithm)), _) => Ok(algorithm),
            (None, Some(error)) => Err(error),
            (None, None) => Err(CudaError::unsupported(format!("{:?}", self.shape))),
        }
    }
}

/// Median time of one `product` (or anything else), by the host's clock over several in a row: the driver's own timing
/// of events is not in drivers before CUDA 12.8 under the name that we are bound to.
pub(super) fn median_seconds(
    stream: &Stream,
    product: &mut impl FnMut() -> Result<()>,
) -> Result<f64> {
    let mut seconds_of = |products: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..products {
            product()?;
        }
        stream.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / products as f64)
    };
    seconds_of(1)?;
    let products = (TIMING_SECONDS / seconds_of(1)?).clamp(1.0, MAX_PRODUCTS) as usize;
    let mut timings = (0..TIMINGS).map(|_| seconds_of(products)).collect::<Result<Vec<f64>>>()?;
    timings.sort_by(f64::total_cmp);
    Ok(timings[TIMINGS / 2])
}

/// Values between -1 and 1, the same ones at every call.
pub(super) fn random_values(n: usize) -> Vec<bf16> {
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
    fn the_values_of_a_search_are_spread_and_not_zero() {
        let values = random_values(10_000);
        let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / 1e4;
        let square = values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 1e4;
        // Uniform on [-1, 1]: the mean is 0 within 4 of its deviations of 0.0058, the square 1/3
        // within 4 of 0.003.
        assert!(mean.abs() < 0.024 && (square - 1.0 / 3.0).abs() < 0.012, "{mean} {square}");
        assert!(values.iter().all(|x| x.to_f32().abs() <= 1.0));
    }
}
