//! Helpers of the GPU tests: streams, data and comparisons.

use half::bf16;
use polysift_kernels::cuda::{Buffer, CudaError, Device, Element, Limits, Staged, Stream, devices};

/// Result of a test; `?` carries any failure out.
pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Largest relative error of rounding to bf16, which has 8 significant bits.
pub(crate) const BF16: f64 = 1.0 / 256.0;
/// Largest relative error of rounding to f32, which has 24 significant bits.
pub(crate) const F32: f64 = 1.0 / 16_777_216.0;

/// Type of the operands of a product; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatmulPrecision {
    /// Operands and results are bf16.
    Bf16,
    /// Operands are e4m3, with a scale of x and one per output. Results are bf16, or e4m3 after GELU.
    Fp8,
}

/// Returns a stream of the first GPU; without a GPU, prints a line and returns `None`.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn stream() -> Result<Option<Stream>, Box<dyn std::error::Error>> {
    let none = match devices() {
        Ok(gpus) => gpus.is_empty(),
        Err(CudaError::NoDriver) => true,
        Err(error) => return Err(error.into()),
    };
    if !none {
        return Ok(Some(Device::open(0)?.stream()?));
    }
    if std::env::var("POLYSIFT_REQUIRE_CUDA").is_ok_and(|value| value == "1") {
        return Err("POLYSIFT_REQUIRE_CUDA is 1, and there is no CUDA device".into());
    }
    eprintln!("skipped: no CUDA device");
    Ok(None)
}

/// Returns true if the GPU is simulated and thus slow: tests then take fewer sizes.
pub(crate) fn is_simulated(device: &Device) -> bool {
    device.info().name.starts_with("Simulated")
}

/// Random numbers, equal for equal seeds.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Returns a roughly normal number, deviation 1: the sum of 12 uniform numbers less its mean.
    pub(crate) fn value(&mut self) -> f32 {
        (0..12).map(|_| self.next() as f32 / (1u64 << 31) as f32).sum::<f32>() - 6.0
    }

    pub(crate) fn values(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.value() * scale).collect()
    }

    pub(crate) fn bf16_values(&mut self, n: usize, scale: f32) -> Vec<bf16> {
        (0..n).map(|_| bf16::from_f32(self.value() * scale)).collect()
    }
}

/// A value that no operation returns.
pub(crate) trait Poison: Element {
    const POISON: Self;
}
impl Poison for bf16 {
    const POISON: Self = Self::NAN;
}
impl Poison for f32 {
    const POISON: Self = Self::NAN;
}
impl Poison for f64 {
    const POISON: Self = Self::NAN;
}
impl Poison for u8 {
    const POISON: Self = 77;
}

/// Returns a buffer for results, full of poison.
pub(crate) fn poisoned<T: Poison>(stream: &Stream, n: usize) -> Result<Buffer<T>, CudaError> {
    stream.to_device(&vec![T::POISON; n], "a test")
}

pub(crate) fn download<T: Poison>(
    stream: &Stream,
    buffer: &Buffer<T>,
) -> Result<Vec<T>, CudaError> {
    let mut values = vec![T::POISON; buffer.len()];
    stream.download(buffer, 0, &mut values)?;
    Ok(values)
}

pub(crate) fn starts(lengths: &[usize]) -> Vec<u32> {
    let ends = lengths.iter().scan(0, |end, &length| {
        *end += length as u32;
        Some(*end)
    });
    [0].into_iter().chain(ends).collect()
}

/// Limits of a small model with learned positions.
pub(crate) const LIMITS: Limits = Limits { vocab_size: 50, num_positions: 30, max_tokens: None };

/// Puts a batch with sequences of `lengths` on the GPU; token ids and positions do not matter.
pub(crate) fn staged(stream: &Stream, lengths: &[usize]) -> Result<Staged, CudaError> {
    let tokens: usize = lengths.iter().sum();
    let limits = Limits { vocab_size: 10, num_positions: 10_000, ..LIMITS };
    let room = tokens.max(4 * lengths.len()).max(1).next_multiple_of(16) + 16;
    let mut staged = Staged::new(stream, room, limits)?;
    staged.put(stream, &vec![5; tokens], [], &starts(lengths))?;
    Ok(staged)
}

/// Fails unless `|actual - expected| <= tolerance`, or both are NaN or the same infinity.
pub(crate) fn check(
    what: &str,
    actual: impl IntoIterator<Item = f64>,
    expected: impl IntoIterator<Item = (f64, f64)>,
) -> TestResult {
    let mut actual = actual.into_iter();
    for (i, (expected, tolerance)) in expected.into_iter().enumerate() {
        let actual = actual.next().ok_or_else(|| format!("{what}: {i} values only"))?;
        // The difference of equal infinities is NaN, so equal bits also pass.
        let same = actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan();
        let close = (actual - expected).abs() <= tolerance;
        if !same && !close {
            return Err(format!(
                "{what}: value {i} is {actual:e}, not {expected:e} within {tolerance:e}"
            )
            .into());
        }
    }
    Ok(())
}

pub(crate) fn wide(values: &[bf16]) -> impl Iterator<Item = f64> + '_ {
    values.iter().map(|&value| f64::from(value))
}
