//! Which of several kernels is the fastest on this GPU, and whether they agree.
//!
//! Candidates are timed as they run in the encoder: in graphs, on a GPU that is warm, in turn. What
//! a kernel for new matrix units relies on (the layout of operands in shared memory, the order of
//! accesses to it) shows on a GPU only: so each result is held against the first candidate's, and
//! one that is far from it does not count.

use std::time::{Duration, Instant};

use half::bf16;

use super::error::{CudaError, Result, check_len};
use super::linear::{Linear, MatmulResult, MatmulShape, Operands};
use super::matmul::{Algorithm, Matmul};
use super::memory::Buffer;
use super::stream::{Graph, Stream};

/// Candidates that a search asks cublasLt for.
const CANDIDATES: usize = 32;
/// Rounds in which each candidate is timed once; the median counts.
const ROUNDS: usize = 5;
/// Time that a timing should take, so that the clock and the wait do not show...
const TIMING: Duration = Duration::from_millis(1);
/// ... and the most launches that it takes for that.
const MOST_LAUNCHES: u32 = 20;
/// Work before the first timing: a GPU that was idle takes a while to reach its clock.
const WARM_UP: Duration = Duration::from_millis(30);
/// Values of a result that are compared at either end of it: what the kernels begin with, and what they
/// come to when all that they reuse was used many times.
const COMPARED: usize = 1 << 20;
/// Largest relative L2 distance between two right results: both are rounded to bf16, by at most
/// 2^-8 each and by far less on average.
const MAX_DISTANCE: f64 = 1.0 / 128.0;

/// A candidate that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial<T> {
    /// The candidate.
    pub candidate: T,
    /// Median time of a run; 0 where there was nothing to choose.
    pub seconds: f64,
    /// Relative L2 distance of its result from the first candidate's.
    pub distance: f64,
}

impl<T> Trial<T> {
    /// Where there is nothing to choose.
    fn only(candidate: T) -> Self {
        Self { candidate, seconds: 0.0, distance: 0.0 }
    }

    /// Whether its result is far from the first candidate's.
    pub fn is_wrong(&self) -> bool {
        self.distance > MAX_DISTANCE || self.distance.is_nan()
    }
}

impl Matmul {
    /// All algorithms for this product, the fastest first and wrong ones last, tried on `operands`,
    /// whose inputs should be random ([`randomize`]; zeros would let the GPU run faster than it ever
    /// will). Nothing else should run on the GPU meanwhile.
    ///
    /// # Errors
    /// As [`Matmul::candidates`] and [`Matmul::run`]; those of a candidate only if none can be run.
    pub fn search(
        &self,
        stream: &Stream,
        linear: &Linear,
        operands: Operands<'_>,
    ) -> Result<Vec<Trial<Algorithm>>> {
        let Operands { x, residual, y, workspace } = operands;
        let MatmulShape { tokens, outputs, .. } = self.shape();
        let candidates = self.candidates(linear, CANDIDATES)?;
        let y = match y {
            MatmulResult::Bf16(y) => y,
            // One kernel computes these.
            MatmulResult::Fp8(_) => {
                let one = candidates.first().copied().map(Trial::only);
                return one.map(|one| vec![one]).ok_or_else(|| CudaError::unsupported("no kernel"));
            }
        };
        trials(stream, candidates, y, tokens * outputs, |algorithm, y| {
            let y = MatmulResult::Bf16(y);
            let operands = Operands { x, residual, y, workspace: &mut *workspace };
            self.run(stream, algorithm, linear, operands)
        })
    }
}

/// Fills the first `n` values of `buffer` with random values between -1 and 1, the same ones at every
/// call.
///
/// # Errors
/// As [`Stream::upload`].
pub fn randomize(stream: &Stream, buffer: &mut Buffer<bf16>, n: usize) -> Result<()> {
    let block = random_values(n.clamp(1, 1 << 20));
    (0..n)
        .step_by(block.len())
        .try_for_each(|at| stream.upload(buffer, at, &block[..block.len().min(n - at)]))
}

/// Tries the candidates: `run` puts one into the queue, whose result are the first `values` of `y`. An
/// only one is not run.
pub(super) fn trials<T: Copy>(
    stream: &Stream,
    candidates: Vec<T>,
    y: &mut Buffer<bf16>,
    values: usize,
    mut run: impl FnMut(&T, &mut Buffer<bf16>) -> Result<()>,
) -> Result<Vec<Trial<T>>> {
    check_len("search", "the result", y.len(), Some(values))?;
    if let [candidate] = candidates[..] {
        return Ok(vec![Trial::only(candidate)]);
    }
    let mut expected: Option<Vec<bf16>> = None;
    let mut ready = Vec::new();
    let mut refused = CudaError::unsupported("no kernel");
    for candidate in candidates {
        // Alone and not in a graph at first: libraries load what they need. One that is refused when
        // it comes to it is passed over.
        let mut once = || -> Result<(Vec<bf16>, Timed)> {
            run(&candidate, y)?;
            let mut result = vec![bf16::ZERO; values.min(2 * COMPARED)];
            let (first, last) = result.split_at_mut(values.min(COMPARED));
            stream.download(y, 0, first)?;
            stream.download(y, values - last.len(), last)?;
            Ok((result, Timed::record(stream, &mut || run(&candidate, y))?))
        };
        match once() {
            Ok((result, timed)) => {
                let distance =
                    expected.as_ref().map_or(0.0, |expected| distance(expected, &result));
                expected.get_or_insert(result);
                ready.push((Trial { candidate, seconds: 0.0, distance }, timed));
            }
            Err(error) => refused = error,
        }
    }
    time(stream, &mut ready)?;
    let mut trials: Vec<_> = ready.into_iter().map(|(trial, _)| trial).collect();
    trials.sort_by(|a, b| {
        a.is_wrong().cmp(&b.is_wrong()).then_with(|| a.seconds.total_cmp(&b.seconds))
    });
    if trials.is_empty() { Err(refused) } else { Ok(trials) }
}

/// Several runs of a candidate, recorded.
struct Timed {
    graph: Graph,
    launches: u32,
}

impl Timed {
    fn record(stream: &Stream, run: &mut dyn FnMut() -> Result<()>) -> Result<Self> {
        let start = Instant::now();
        run()?;
        stream.synchronize()?;
        let once = start.elapsed().max(Duration::from_nanos(1));
        let launches =
            (TIMING.as_nanos() / once.as_nanos()).clamp(1, u128::from(MOST_LAUNCHES)) as u32;
        let graph = stream.record(|_| (0..launches).try_for_each(|_| run()))?;
        Ok(Self { graph, launches })
    }

    fn seconds(&self, stream: &Stream) -> Result<f64> {
        let start = Instant::now();
        self.graph.launch()?;
        stream.synchronize()?;
        Ok(start.elapsed().as_secs_f64() / f64::from(self.launches))
    }
}

/// Fills in the times: all candidates in turn, after the GPU is warm.
fn time<T>(stream: &Stream, ready: &mut [(Trial<T>, Timed)]) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < WARM_UP && !ready.is_empty() {
        for (_, timed) in ready.iter() {
            timed.seconds(stream)?;
        }
    }
    let mut seconds = vec![Vec::new(); ready.len()];
    // Where a round takes long, as on a simulated GPU, one is enough.
    let slow = start.elapsed() > WARM_UP * 10;
    for _ in 0..if slow { 1 } else { ROUNDS } {
        for ((_, timed), seconds) in ready.iter().zip(&mut seconds) {
            seconds.push(timed.seconds(stream)?);
        }
    }
    for ((trial, _), mut seconds) in ready.iter_mut().zip(seconds) {
        seconds.sort_by(f64::total_cmp);
        trial.seconds = seconds[seconds.len() / 2];
    }
    Ok(())
}

/// ‖a - b‖ / ‖a‖.
fn distance(a: &[bf16], b: &[bf16]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let differences = a.iter().zip(b).map(|(&x, &y)| f64::from(x) - f64::from(y));
    norm(&mut { differences }) / norm(&mut a.iter().map(|&x| f64::from(x)))
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

    #[test]
    fn results_that_are_far_apart_or_not_numbers_are_wrong() {
        let values = |x: f32| [bf16::ONE, bf16::from_f32(x)];
        let is_wrong = |x: f32| {
            let distance = distance(&values(1.0), &values(x));
            Trial { candidate: (), seconds: 0.0, distance }.is_wrong()
        };
        assert!(!is_wrong(1.0));
        // One unit of bf16 above 1 in one of two values: 2^-7 / sqrt(2).
        assert!(!is_wrong(1.007_812_5));
        assert!(is_wrong(1.03));
        assert!(is_wrong(f32::NAN));
    }
}
