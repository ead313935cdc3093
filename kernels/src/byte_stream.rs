//! Floats whose bytes are stored apart: all first bytes, then all second bytes, and so on (Parquet's
//! `BYTE_STREAM_SPLIT`; little-endian, so the last stream holds signs and exponents).

use crate::cpu::isa::vectorized;

vectorized! {
    /// Values `from..from + out.len()` of the f32 values whose four byte streams follow each other in
    /// `streams`, bit for bit.
    ///
    /// # Panics
    /// If the streams hold fewer values.
    pub fn join_f32(streams: &[u8], from: usize, out: &mut [f32]) = join_f32_body
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn join_f32_body(streams: &[u8], from: usize, out: &mut [f32]) {
    let (count, length) = (streams.len() / 4, out.len());
    assert!(from <= count && length <= count - from, "{length} values from {from} on of {count}");
    let stream = |i: usize| &streams[i * count + from..][..length];
    let (a, b, c, d) = (stream(0), stream(1), stream(2), stream(3));
    for i in 0..length {
        out[i] = f32::from_bits(u32::from_le_bytes([a[i], b[i], c[i], d[i]]));
    }
}

vectorized! {
    /// Values `from..from + out.len()` of the f16 values whose two byte streams follow each other in
    /// `streams`, widened exactly.
    ///
    /// # Panics
    /// If the streams hold fewer values.
    pub fn join_f16(streams: &[u8], from: usize, out: &mut [f32]) = join_f16_body
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn join_f16_body(streams: &[u8], from: usize, out: &mut [f32]) {
    let (count, length) = (streams.len() / 2, out.len());
    assert!(from <= count && length <= count - from, "{length} values from {from} on of {count}");
    let stream = |i: usize| &streams[i * count + from..][..length];
    let (low, high) = (stream(0), stream(1));
    for i in 0..length {
        out[i] = widen(u16::from_le_bytes([low[i], high[i]]));
    }
}

/// 2^112, the distance between the biases of the exponents of f32 and f16.
const REBIAS: f32 = f32::from_bits((127 + 112) << 23);

/// The f16 of these bits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn widen(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    // Exact: a power of two times at most 11 bits. Subnormals become normal in the product.
    let finite = (f32::from_bits(rest << 13) * REBIAS).to_bits();
    let infinite = if rest >= 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(sign | finite | infinite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// The bytes of `values` as streams.
    fn split<const N: usize>(values: &[[u8; N]]) -> Vec<u8> {
        (0..N).flat_map(|i| values.iter().map(move |bytes| bytes[i])).collect()
    }

    #[test]
    fn any_range_of_split_f32_comes_back_bit_for_bit() {
        let bits = |i: u32| i.wrapping_mul(0x9e37_79b9);
        let values: Vec<[u8; 4]> = (0..1000).map(|i| bits(i).to_le_bytes()).collect();
        let streams = split(&values);
        for isa in Isa::available() {
            for (from, length) in [(0, 1000), (1, 999), (77, 65), (999, 1), (1000, 0)] {
                let mut out = vec![0.0; length];
                join_f32(isa, &streams, from, &mut out);
                let found: Vec<u32> = out.iter().map(|value| value.to_bits()).collect();
                let expected: Vec<u32> = (from..from + length).map(|i| bits(i as u32)).collect();
                assert_eq!(found, expected, "{} from {from}", isa.name());
            }
        }
    }

    /// The value of an f16 by its definition.
    fn defined(bits: u16) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        sign * match exponent {
            0 => fraction * 2f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
        }
    }

    #[test]
    fn every_f16_is_widened_to_its_value() {
        let all: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_le_bytes).collect();
        let streams = split(&all);
        for isa in Isa::available() {
            let mut out = vec![0.0; all.len()];
            join_f16(isa, &streams, 0, &mut out);
            for (bits, value) in (0..=u16::MAX).zip(out) {
                let (value, expected) = (f64::from(value), defined(bits));
                let same = value.to_bits() == expected.to_bits();
                assert!(same || value.is_nan() && expected.is_nan(), "{bits:#x}: {value}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "2 values from 3 on of 4")]
    fn values_beyond_the_streams_are_refused() {
        join_f32(Isa::detect(), &[0; 16], 3, &mut [0.0; 2]);
    }
}
