//! Rows of f32 in smaller formats.

use crate::Isa;
use crate::cpu::isa::{Level, vectorized};
use crate::cpu::precision::{Quantisation, bf16_bits, f16_bits};

/// The nearest f16 of each of `values`.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn to_f16(isa: Isa, values: &[f32], halves: &mut [u16]) {
    assert!(values.len() == halves.len(), "{} values, {} halves", values.len(), halves.len());
    let done = match isa.level() {
        Level::Portable => 0,
        // SAFETY: an `Isa` of this level exists only if the CPU has these features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { x86::to_f16_by_8(values, halves) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { x86::to_f16_by_16(values, halves) },
    };
    for (half, &value) in halves[done..].iter_mut().zip(&values[done..]) {
        *half = f16_bits(value) as u16;
    }
}

vectorized! {
    /// The nearest bf16 of each of `values`.
    pub(crate) fn to_bf16(values: &[f32], halves: &mut [u16]) {
        for (half, &value) in halves.iter_mut().zip(values) {
            *half = bf16_bits(value) as u16;
        }
    }
}

vectorized! {
    /// The integers of `values`, as bytes of two's complement.
    pub(crate) fn to_integers(quantisation: Quantisation, values: &[f32], bytes: &mut [u8]) {
        for (byte, &value) in bytes.iter_mut().zip(values) {
            *byte = quantisation.integer(value) as u8;
        }
    }
}

vectorized! {
    /// Words of two neighbours each, the first in the low half.
    pub(crate) fn pairs(halves: &[u16], words: &mut [u32]) {
        for (word, pair) in words.iter_mut().zip(halves.as_chunks::<2>().0) {
            *word = u32::from(pair[0]) | u32::from(pair[1]) << 16;
        }
    }
}

vectorized! {
    /// Words of one value of each row, the first in the low half.
    pub(crate) fn interleaved(low: &[u16], high: &[u16], words: &mut [u32]) {
        for ((word, &low), &high) in words.iter_mut().zip(low).zip(high) {
            *word = u32::from(low) | u32::from(high) << 16;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps, _mm256_storeu_si256, _mm512_cvtps_ph,
        _mm512_loadu_ps,
    };

    /// Converts whole groups of 8 and returns their values' number; ties to even (0).
    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn to_f16_by_8(values: &[f32], halves: &mut [u16]) -> usize {
        let (values, halves) = (values.as_chunks::<8>().0, halves.as_chunks_mut::<8>().0);
        for (values, halves) in values.iter().zip(halves.iter_mut()) {
            // SAFETY: 8 values are read and written.
            unsafe {
                let converted = _mm256_cvtps_ph::<0>(_mm256_loadu_ps(values.as_ptr()));
                _mm_storeu_si128(halves.as_mut_ptr().cast(), converted);
            }
        }
        8 * values.len().min(halves.len())
    }

    /// As [`to_f16_by_8`], 16 at a time.
    #[target_feature(enable = "avx512f")]
    pub(super) fn to_f16_by_16(values: &[f32], halves: &mut [u16]) -> usize {
        let (values, halves) = (values.as_chunks::<16>().0, halves.as_chunks_mut::<16>().0);
        for (values, halves) in values.iter().zip(halves.iter_mut()) {
            // SAFETY: 16 values are read and written.
            unsafe {
                let converted = _mm512_cvtps_ph::<0>(_mm512_loadu_ps(values.as_ptr()));
                _mm256_storeu_si256(halves.as_mut_ptr().cast(), converted);
            }
        }
        16 * values.len().min(halves.len())
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
            .chain([0.0, -0.0, 65_519.9, 65_520.0, -1e9, 6e-8, 2.9e-8, f32::INFINITY])
            .collect();
        for isa in Isa::available() {
            let mut halves = vec![7; values.len()];
            to_f16(isa, &values, &mut halves);
            for (&half, &value) in halves.iter().zip(&values) {
                assert_eq!(half, half::f16::from_f32(value).to_bits(), "{isa:?} {value:e}");
            }
            to_bf16(isa, &values, &mut halves);
            for (&half, &value) in halves.iter().zip(&values) {
                assert_eq!(half, half::bf16::from_f32(value).to_bits(), "{isa:?} {value:e}");
            }
        }
    }
}
