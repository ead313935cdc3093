//! Turns scores into softmax weights that are not yet divided by their sum: powers of two.

use crate::Isa;
use crate::cpu::gemm::micro_kernel::{CacheLine, MR, WORDS};
use crate::cpu::isa::{horner, vectorized};
use crate::cpu::precision::bf16_bits;
#[cfg(target_arch = "aarch64")]
use crate::cpu::precision::f16_twice;

/// Minimum exponent; lower exponents are raised to it.
const LOWEST: f32 = -125.0;
/// Adding and subtracting this rounds to an integer, which is in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// Polynomial for `(2^r - 1) / r`, see coefficients.py.
#[expect(clippy::approx_constant, reason = "fitted")]
const POLYNOMIAL: [f32; 6] =
    [0.693_147_2, 0.240_226_48, 0.055_503_324, 0.009_618_437, 0.001_339_887_6, 0.000_153_533_69];

/// State of softmax for the rows of a tile.
pub(super) struct Softmax {
    /// Factor from a score to the exponent of two.
    scale: f32,
    rows: usize,
    largest: [f32; MR],
    /// Largest score of each row per lane; a lane is every sixteenth key.
    lanes: [[f32; WORDS]; MR],
    /// Sum of the powers of each row per lane.
    sums: [[f32; WORDS]; MR],
}

impl Softmax {
    pub(super) fn new(head_size: usize) -> Self {
        Self {
            scale: std::f32::consts::LOG2_E / (head_size as f32).sqrt(),
            rows: 0,
            largest: [f32::NEG_INFINITY; MR],
            lanes: [[f32::NEG_INFINITY; WORDS]; MR],
            sums: [[0.0; WORDS]; MR],
        }
    }

    /// Starts with `rows` new rows, at most [`MR`].
    pub(super) fn start(&mut self, rows: usize) {
        self.rows = rows;
        self.lanes[..rows].fill([f32::NEG_INFINITY; WORDS]);
        self.sums[..rows].fill([0.0; WORDS]);
    }

    /// Finds each row's largest score among those that [`raise_lanes`] has seen.
    pub(super) fn find_largest(&mut self) {
        for (largest, lanes) in self.largest.iter_mut().zip(&self.lanes[..self.rows]) {
            *largest = lanes.iter().fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        }
    }

    /// Returns the factor that divides the weights of each row by their sum, once all are made.
    pub(super) fn inverse_sums(&self) -> [f32; MR] {
        let mut inverses = [0.0; MR];
        for (inverse, lanes) in inverses.iter_mut().zip(&self.sums[..self.rows]) {
            *inverse = 1.0 / lanes.iter().sum::<f32>();
        }
        inverses
    }
}

vectorized! {
    /// Raises the largest scores in the lanes of the rows to those in `scores`; NaN is ignored.
    pub(super) fn raise_lanes(scores: &[CacheLine], softmax: &mut Softmax) {
        let rows = scores.chunks_exact(scores.len() / softmax.rows);
        for (scores, lanes) in rows.zip(&mut softmax.lanes) {
            // Only values in registers, converted to floats before the comparison, are vectorised.
            let mut largest = *lanes;
            for line in scores {
                let mut values = [0.0; WORDS];
                for (value, &bits) in values.iter_mut().zip(&line.0) {
                    *value = f32::from_bits(bits);
                }
                for (lane, value) in largest.iter_mut().zip(values) {
                    *lane = if value > *lane { value } else { *lane };
                }
            }
            *lanes = largest;
        }
    }

    /// Writes the powers of `scores` `[rows, panel]` as packed f32 rows; adds them to the sums.
    pub(super) fn weigh_f32(
        scores: &[CacheLine], weights: &mut [CacheLine], softmax: &mut Softmax,
    ) {
        for (i, scores) in scores.chunks_exact(scores.len() / softmax.rows).enumerate() {
            for (weights, line) in weights[i..].iter_mut().step_by(softmax.rows).zip(scores) {
                let powers = powers(line, i, softmax);
                for (word, power) in weights.0.iter_mut().zip(powers) {
                    *word = power.to_bits();
                }
            }
        }
    }
}

/// Like [`weigh_f32`], with the powers in bf16.
pub(super) fn weigh_bf16(
    isa: Isa,
    scores: &[CacheLine],
    weights: &mut [CacheLine],
    softmax: &mut Softmax,
) {
    #[cfg(target_arch = "x86_64")]
    if isa.rounds_to_bf16() {
        // SAFETY: the CPU has AVX512-BF16, which includes AVX-512F.
        return unsafe { x86::weigh_bf16(scores, weights, softmax) };
    }
    weigh_bf16_by_integers(isa, scores, weights, softmax);
}

vectorized! {
    /// Does what [`weigh_bf16`] does, without an instruction that rounds.
    fn weigh_bf16_by_integers(
        scores: &[CacheLine], weights: &mut [CacheLine], softmax: &mut Softmax,
    ) {
        weigh_pairs(scores, weights, softmax, |powers, weights| {
            // Rounding and packing in two loops is what the compiler vectorises.
            let mut halves = [[0u16; WORDS]; 2];
            for (half, power) in halves.as_flattened_mut().iter_mut().zip(powers.as_flattened()) {
                *half = bf16_bits(*power) as u16;
            }
            let pairs = halves.as_flattened().as_chunks::<2>().0;
            for (word, pair) in weights.0.iter_mut().zip(pairs) {
                *word = u32::from(pair[0]) | u32::from(pair[1]) << 16;
            }
        });
    }
}

/// Computes the powers of `scores` `[rows, panel]`, which `pack` writes as pairs in two bytes each.
#[inline(always)]
fn weigh_pairs(
    scores: &[CacheLine],
    weights: &mut [CacheLine],
    softmax: &mut Softmax,
    pack: impl Fn(&[[f32; WORDS]; 2], &mut CacheLine),
) {
    for (i, scores) in scores.chunks_exact(scores.len() / softmax.rows).enumerate() {
        let pairs = scores.as_chunks::<2>().0;
        for (weights, lines) in weights[i..].iter_mut().step_by(softmax.rows).zip(pairs) {
            let powers = [powers(&lines[0], i, softmax), powers(&lines[1], i, softmax)];
            pack(&powers, weights);
        }
    }
}

/// Computes the powers of a line of scores of row `i` and adds them to its sums.
#[inline(always)]
fn powers(scores: &CacheLine, i: usize, softmax: &mut Softmax) -> [f32; WORDS] {
    let (scale, largest) = (softmax.scale, softmax.largest[i]);
    let lowest = LOWEST / scale;
    let mut powers = [0.0; WORDS];
    for ((power, sum), &bits) in powers.iter_mut().zip(&mut softmax.sums[i]).zip(&scores.0) {
        let below = f32::from_bits(bits) - largest;
        *power = exp2_scalar(if below < lowest { lowest } else { below }, scale);
        *sum += *power;
    }
    powers
}

/// Computes `2^(x · scale)` for `LOWEST <= x · scale <= 0`; NaN if `x` is. It is at most 1.25 ulp
/// off the power of the exact product (`exp2_is_within_a_little_over_one_ulp`).
#[inline(always)]
fn exp2_scalar(x: f32, scale: f32) -> f32 {
    let shifted = x.mul_add(scale, ROUND);
    let r = x.mul_add(scale, -(shifted - ROUND));
    let p = horner!(POLYNOMIAL, r, 5 4 3 2 1 0);
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    p.mul_add(r, 1.0) * power
}

#[cfg(target_arch = "aarch64")]
vectorized! {
    /// Like [`weigh_f32`], with each power in f16 twice in a word.
    pub(super) fn weigh_f16(
        scores: &[CacheLine], weights: &mut [CacheLine], softmax: &mut Softmax,
    ) {
        for (i, scores) in scores.chunks_exact(scores.len() / softmax.rows).enumerate() {
            for (weights, line) in weights[i..].iter_mut().step_by(softmax.rows).zip(scores) {
                weights.0 = f16_twice(&powers(line, i, softmax));
            }
        }
    }
}

/// Like [`weigh_f32`], with each power in f16 twice in a word.
#[cfg(target_arch = "x86_64")]
pub(super) fn weigh_f16(
    isa: Isa,
    scores: &[CacheLine],
    weights: &mut [CacheLine],
    softmax: &mut Softmax,
) {
    assert!(isa.units.fp16, "the CPU multiplies f16");
    // SAFETY: it has AVX512-FP16, which includes AVX-512F.
    unsafe { x86::weigh_f16(scores, weights, softmax) };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512bh, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm512_add_ps,
        _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtps_ph, _mm512_fmadd_ps,
        _mm512_fmsub_ps, _mm512_load_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_or_si512,
        _mm512_scalef_ps, _mm512_set1_ps, _mm512_slli_epi32, _mm512_store_si512, _mm512_storeu_ps,
        _mm512_sub_ps,
    };

    use std::mem::transmute;

    use crate::cpu::attention::softmax::{LOWEST, ROUND, Softmax, weigh_pairs};
    use crate::cpu::gemm::micro_kernel::CacheLine;

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    /// Polynomial for `(2^r - 1) / r`, off by a tenth of f16's rounding; see coefficients.py.
    const POLYNOMIAL: [f32; 4] = [0.693_124_1, 0.240_240_99, 0.055_906_44, 0.009_582_845];

    /// Like [`weigh_f32`], with the powers in bf16.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn weigh_bf16(
        scores: &[CacheLine],
        weights: &mut [CacheLine],
        softmax: &mut Softmax,
    ) {
        weigh_pairs(scores, weights, softmax, |powers, weights| {
            // SAFETY: 16 values each.
            let [first, second] = powers.each_ref().map(|p| unsafe { _mm512_loadu_ps(p.as_ptr()) });
            let packed = _mm512_cvtne2ps_pbh(second, first);
            // SAFETY: both are 512 bits.
            weights.0 = unsafe { transmute::<__m512bh, [u32; 16]>(packed) };
        });
    }

    /// Like [`weigh_f32`](super::weigh_f32), with f16 twice in a word and a shorter polynomial.
    #[target_feature(enable = "avx512f")]
    pub(super) fn weigh_f16(
        scores: &[CacheLine],
        weights: &mut [CacheLine],
        softmax: &mut Softmax,
    ) {
        let (scale, lowest) =
            (_mm512_set1_ps(softmax.scale), _mm512_set1_ps(LOWEST / softmax.scale));
        let round = _mm512_set1_ps(ROUND);
        for (i, scores) in scores.chunks_exact(scores.len() / softmax.rows).enumerate() {
            let largest = _mm512_set1_ps(softmax.largest[i]);
            let lanes = &mut softmax.sums[i];
            // SAFETY: 16 values.
            let mut sum = unsafe { _mm512_loadu_ps(lanes.as_ptr()) };
            for (weights, line) in weights[i..].iter_mut().step_by(softmax.rows).zip(scores) {
                // SAFETY: a line holds 16 values and is aligned to 64 bytes.
                let score = unsafe { _mm512_load_ps(line.0.as_ptr().cast()) };
                // If one operand is NaN, `max` returns the second.
                let x = _mm512_max_ps(lowest, _mm512_sub_ps(score, largest));
                let n = _mm512_sub_ps(_mm512_fmadd_ps(x, scale, round), round);
                let r = _mm512_fmsub_ps(x, scale, n);
                let mut p = _mm512_set1_ps(POLYNOMIAL[3]);
                for coefficient in [POLYNOMIAL[2], POLYNOMIAL[1], POLYNOMIAL[0], 1.0] {
                    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient));
                }
                let power = _mm512_scalef_ps(p, n);
                sum = _mm512_add_ps(sum, power);
                let once = _mm512_cvtepu16_epi32(_mm512_cvtps_ph::<NEAREST>(power));
                let twice = _mm512_or_si512(once, _mm512_slli_epi32::<16>(once));
                // SAFETY: as above.
                unsafe { _mm512_store_si512(weights.0.as_mut_ptr().cast(), twice) };
            }
            // SAFETY: 16 values.
            unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sum) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_within_a_little_over_one_ulp() {
        let mut worst = 0.0f64;
        let scale = 0.18;
        for bits in (0..(-LOWEST / scale).to_bits()).step_by(97) {
            let x = -f32::from_bits(bits);
            let exact = (f64::from(x) * f64::from(scale)).exp2();
            let ulp = 2f64.powi(exact.log2().floor() as i32 - 23);
            worst = worst.max((f64::from(exp2_scalar(x, scale)) - exact).abs() / ulp);
        }
        assert!(worst <= 1.25, "{worst} ulp");
    }

    #[test]
    fn the_ends_of_the_range_are_clean() {
        for (x, power) in [(0.0, 1.0), (-6.0, 0.125), (2.0 * LOWEST, 2f32.powi(-125))] {
            assert_eq!(exp2_scalar(x, 0.5).to_bits(), power.to_bits());
        }
        assert!(exp2_scalar(f32::NAN, 0.5).is_nan());
    }
}
