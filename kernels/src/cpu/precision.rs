//! Number formats of matrix products, and the rounding of values and rows to them.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

#[cfg(target_arch = "aarch64")]
pub(crate) use self::aarch64::f16_twice;
use crate::cpu::isa::{Isa, Units, vectorized};

/// Number format of the factors of a product. `Y`, bias and residual are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// f32 factors and sums.
    #[default]
    F32,
    /// Factors rounded to bf16, sums in f32.
    Bf16,
    /// Factors rounded to f16; values beyond 65,504 become infinite. Sums in f32; if the CPU
    /// multiplies f16 itself, up to 128 products are summed in f16 before they are added in f32.
    F16,
    /// Weights as 8-bit integers with a scale per output; `X` minus a mean as integers with a scale
    /// and a zero point per row ([`crate::PackedMatrix::around`]). Sums are exact.
    Int8,
}

impl Precision {
    /// Returns the two-byte format with products clearly faster than f32, if there is one.
    pub fn fastest_half(isa: Isa) -> Option<Self> {
        let Units { bf16, fp16, amx, .. } = isa.units;
        if amx {
            return Some(Self::Bf16);
        }
        fp16.then_some(Self::F16).or(bf16.then_some(Self::Bf16))
    }

    /// Returns the columns per panel of a [`crate::PackedMatrix`]: 128 bytes of one unit of k.
    pub(crate) fn panel_columns(self) -> usize {
        if self == Self::F16 { 64 } else { 32 }
    }

    /// Returns how many consecutive values of k lie side by side for one column.
    pub(crate) fn k_per_unit(self) -> usize {
        match self {
            Self::F32 | Self::F16 => 1,
            Self::Bf16 => 2,
            Self::Int8 => 4,
        }
    }
}

/// Returns the nearest bf16, ties to even, in the low half.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }
}

/// Returns the value of bf16 `bits` (in the low half).
#[inline(always)]
pub(crate) fn bf16_value(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// Returns the nearest f16, ties to even, in the low half.
#[inline(always)]
pub(crate) fn f16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Rounds at the 13th bit; the exponent's bias shrinks from 127 to 15.
    let normal =
        magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    // One unit in the last place of 0.5 is f16's smallest value: the addition rounds to it.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 113 << 23 { small } else { normal };
    let large = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    (if magnitude < 0x4780_0000 { finite } else { large }) | (bits >> 16 & 0x8000)
}

/// Returns the value of f16 `bits` (in the low half).
#[inline(always)]
pub(crate) fn f16_value(bits: u32) -> f32 {
    let shifted = (bits & 0x7fff) << 13;
    let scaled = f32::from_bits(shifted) * f32::from_bits((127 + 112) << 23);
    let special = shifted | 0x7f80_0000;
    let magnitude = if shifted < 31 << 23 { scaled.to_bits() } else { special };
    f32::from_bits(magnitude | (bits & 0x8000) << 16)
}

/// Largest integer of a value of X in int8. CPUs without dot products of bytes sum two or four
/// products in 16 bits; with integers up to 255, most sums of four would not fit.
pub(crate) const X_MAX: i32 = 177;

/// Quantisation of a row to 8-bit integers: `value ≈ scale · (integer - zero)`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quantisation {
    /// Not finite if a value of the row is not.
    pub(crate) scale: f32,
    inverse: f32,
    /// The integer that represents 0.
    pub(crate) zero: i32,
}

impl Quantisation {
    /// Quantises magnitudes up to `largest` to integers from -`most` to `most`; 0 becomes 0.
    pub(crate) fn symmetric(largest: f32, most: i32) -> Self {
        if !largest.is_finite() {
            return Self { scale: f32::NAN, inverse: 0.0, zero: 0 };
        }
        // The bound keeps the inverse of zero and of subnormals finite.
        let inverse = (most as f32 / largest).min(f32::from_bits((127 + 120) << 23));
        Self { scale: 1.0 / inverse, inverse, zero: 0 }
    }

    /// Quantises values from `low` (at most 0) to `high` (at least 0) to integers in 0..=[`X_MAX`].
    pub(crate) fn asymmetric([low, high]: [f32; 2]) -> Self {
        // One unit less for the two roundings of an integer. Halves do not overflow.
        let symmetric = Self::symmetric(high * 0.5 - low * 0.5, (X_MAX - 1) / 2);
        Self { zero: if low < 0.0 { -symmetric.integer(low) } else { 0 }, ..symmetric }
    }

    /// Returns the nearest integer of `value`, ties to even; `value` is in the range of the row.
    #[inline(always)]
    pub(crate) fn integer(self, value: f32) -> i32 {
        // Adding 1.5 · 2²³ leaves the nearest integer, ties to even, in the low bits.
        const MAGIC: f32 = 12_582_912.0;
        let rounded = (value * self.inverse + MAGIC).to_bits();
        rounded.wrapping_sub(MAGIC.to_bits()).cast_signed() + self.zero
    }
}

/// Returns the smallest and the largest of `values` and 0; NaN if a value is not finite.
#[inline(always)]
pub(crate) fn range_with_zero(values: &[f32]) -> [f32; 2] {
    let (mut low, mut high, mut largest) = ([0.0; LANES], [0.0; LANES], [0; LANES]);
    let mut take = |lane: usize, value: f32| {
        low[lane] = if value < low[lane] { value } else { low[lane] };
        high[lane] = if value > high[lane] { value } else { high[lane] };
        largest[lane] = largest[lane].max(value.to_bits() & 0x7fff_ffff);
    };
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, &value) in block.iter().enumerate() {
            take(lane, value);
        }
    }
    for (lane, &value) in rest.iter().enumerate() {
        take(lane, value);
    }
    if largest.iter().any(|&bits| bits >= 0x7f80_0000) {
        return [f32::NAN; 2];
    }
    [low.into_iter().fold(0.0, f32::min), high.into_iter().fold(0.0, f32::max)]
}

/// Number of values that [`range_with_zero`] handles side by side.
const LANES: usize = 32;

/// Rounds each of `values` to the nearest f16, ties to even; both slices have one length.
pub(crate) fn to_f16(values: &[f32], halves: &mut [u16]) {
    halves.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values);
}

/// Rounds each of `values` to the nearest bf16; see [`Isa::rounds_to_bf16`] for the smallest.
pub(crate) fn to_bf16(isa: Isa, values: &[f32], halves: &mut [u16]) {
    #[cfg(target_arch = "x86_64")]
    if isa.rounds_to_bf16() {
        // SAFETY: the CPU has AVX512-BF16, which includes AVX-512F.
        let done = unsafe { x86::to_bf16_by_16(values, halves) };
        return to_bf16_by_integers(isa, &values[done..], &mut halves[done..]);
    }
    to_bf16_by_integers(isa, values, halves);
}

vectorized! {
    /// Rounds to bf16 without an instruction for it; numbers below 2^-126 do not become 0.
    fn to_bf16_by_integers(values: &[f32], halves: &mut [u16]) {
        for (half, &value) in halves.iter_mut().zip(values) {
            *half = bf16_bits(value) as u16;
        }
    }

    /// Quantises `values` to the low byte of their integers; bytes without a value stay.
    pub(crate) fn to_integers(quantisation: Quantisation, values: &[f32], bytes: &mut [u8]) {
        for (byte, &value) in bytes.iter_mut().zip(values) {
            *byte = quantisation.integer(value) as u8;
        }
    }

    /// Packs two neighbours into each word, the first in the low half.
    pub(crate) fn pack_pairs(halves: &[u16], words: &mut [u32]) {
        for (word, pair) in words.iter_mut().zip(halves.as_chunks::<2>().0) {
            *word = u32::from(pair[0]) | u32::from(pair[1]) << 16;
        }
    }

    /// Packs one value of each row into each word, that of `low` in the low half.
    pub(crate) fn pack_interleaved(low: &[u16], high: &[u16], words: &mut [u32]) {
        for ((word, &low), &high) in words.iter_mut().zip(low).zip(high) {
            *word = u32::from(low) | u32::from(high) << 16;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256bh, _mm512_cvtneps_pbh, _mm512_loadu_ps};
    use std::mem::transmute;

    /// Converts whole groups of 16 to bf16 and returns the number of converted values.
    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn to_bf16_by_16(values: &[f32], halves: &mut [u16]) -> usize {
        let (values, halves) = (values.as_chunks::<16>().0, halves.as_chunks_mut::<16>().0);
        for (values, halves) in values.iter().zip(halves.iter_mut()) {
            // SAFETY: 16 values are read.
            let converted = _mm512_cvtneps_pbh(unsafe { _mm512_loadu_ps(values.as_ptr()) });
            // SAFETY: both are 256 bits.
            *halves = unsafe { transmute::<__m256bh, [u16; 16]>(converted) };
        }
        16 * values.len().min(halves.len())
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::{
        float16x8_t, uint16x8_t, vcvt_f16_f32, vcvt_high_f16_f32, vld1q_f32, vst1q_u16, vzip1q_u16,
        vzip2q_u16,
    };
    use std::mem::transmute;

    /// Returns words with the nearest f16 of each value in both halves.
    #[inline(always)]
    pub(crate) fn f16_twice(values: &[f32; 16]) -> [u32; 16] {
        let mut words = [0; 16];
        for (words, values) in
            words.as_chunks_mut::<8>().0.iter_mut().zip(values.as_chunks::<8>().0)
        {
            let (from, to) = (values.as_ptr(), words.as_mut_ptr());
            // SAFETY: every CPU of this architecture has NEON; 8 values are read and written.
            unsafe {
                let halves =
                    vcvt_high_f16_f32(vcvt_f16_f32(vld1q_f32(from)), vld1q_f32(from.add(4)));
                let halves = transmute::<float16x8_t, uint16x8_t>(halves);
                vst1q_u16(to.cast(), vzip1q_u16(halves, halves));
                vst1q_u16(to.add(4).cast(), vzip2q_u16(halves, halves));
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_converted_as_single_values_are_on_every_instruction_set() {
        let values: Vec<f32> = (0..67u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B9)))
            .filter(|value| !value.is_nan())
            .chain([
                0.0,
                -0.0,
                -1e-39,
                3e-40,
                65_519.9,
                65_520.0,
                -1e9,
                6e-8,
                2.9e-8,
                f32::INFINITY,
            ])
            .collect();
        for isa in Isa::available() {
            let mut halves = vec![7; values.len()];
            to_f16(&values, &mut halves);
            for (&half, &value) in halves.iter().zip(&values) {
                assert_eq!(u32::from(half), f16_bits(value), "{value:e}");
            }
            to_bf16(isa, &values, &mut halves);
            // By the instruction, numbers below 2^-126 become zeros.
            #[cfg(target_arch = "x86_64")]
            let by_instruction = if isa.rounds_to_bf16() { values.len() / 16 * 16 } else { 0 };
            #[cfg(not(target_arch = "x86_64"))]
            let by_instruction = 0;
            for (at, (&half, &value)) in halves.iter().zip(&values).enumerate() {
                let mut expected = half::bf16::from_f32(value);
                if at < by_instruction && value.abs() < f32::MIN_POSITIVE {
                    expected = half::bf16::ZERO.copysign(expected);
                }
                assert_eq!(half, expected.to_bits(), "{isa:?} {value:e}");
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn both_halves_of_a_word_are_the_nearest_f16() {
        for first in (0..0x7f7e_0000).step_by(1_048_573) {
            let values: [f32; 16] =
                std::array::from_fn(|i| f32::from_bits(first + 8_191 * i as u32));
            assert_eq!(f16_twice(&values), values.map(|value| f16_bits(value) * 0x1_0001));
        }
    }
}
