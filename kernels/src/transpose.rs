//! Words by column to words by unit.

use crate::Isa;
use crate::packed::{Line, PANEL_LINES, WORDS};

/// Most units of a block.
pub(crate) const UNITS: usize = 64;

/// Columns of a panel, with the words of up to 64 units each.
#[repr(C, align(64))]
pub(crate) struct Columns(pub(crate) [[u32; UNITS]; PANEL_LINES * WORDS]);

/// Writes unit after unit of `columns` into `lines`, two for each.
///
/// # Panics
/// If there are more lines than 64 units have.
pub(crate) fn transpose(isa: Isa, columns: &Columns, lines: &mut [Line]) {
    assert!(lines.len() <= UNITS * PANEL_LINES, "{} lines", lines.len());
    #[cfg(target_arch = "x86_64")]
    if isa.level() == crate::isa::Level::Avx512 {
        // SAFETY: an `Isa` of this level exists only if the CPU has AVX-512F.
        return unsafe { x86::transpose(columns, lines) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    for (unit, lines) in lines.chunks_mut(PANEL_LINES).enumerate() {
        for (line, columns) in lines.iter_mut().zip(columns.0.as_chunks::<WORDS>().0) {
            for (word, column) in line.0.iter_mut().zip(columns) {
                *word = column[unit];
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512i, _mm512_load_si512, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_store_si512,
        _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
    };

    use super::{Columns, Line, PANEL_LINES, UNITS, WORDS};

    /// At most 64 units.
    #[target_feature(enable = "avx512f")]
    pub(super) fn transpose(columns: &Columns, lines: &mut [Line]) {
        for (block, lines) in lines.chunks_mut(WORDS * PANEL_LINES).take(UNITS / WORDS).enumerate()
        {
            for (half, columns) in columns.0.as_chunks::<WORDS>().0.iter().enumerate() {
                let mut rows = [_mm512_setzero_si512(); WORDS];
                for (row, column) in rows.iter_mut().zip(columns) {
                    let words: &[u32; WORDS] = &column.as_chunks().0[block];
                    // SAFETY: 16 words, aligned as `Columns` and blocks of 64 bytes are.
                    *row = unsafe { _mm512_load_si512(words.as_ptr().cast()) };
                }
                let units = transpose_16(&rows);
                for (line, unit) in lines.iter_mut().skip(half).step_by(PANEL_LINES).zip(units) {
                    // SAFETY: a line is 16 words, aligned to 64 bytes.
                    unsafe { _mm512_store_si512((&raw mut *line).cast(), unit) };
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transpose_16(rows: &[__m512i; WORDS]) -> [__m512i; WORDS] {
        let mut pairs = *rows;
        for i in (0..WORDS).step_by(2) {
            pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
        }
        // `fours[4 i + j]` holds units j, 4 + j, 8 + j and 12 + j of rows 4 i to 4 i + 3.
        let mut fours = pairs;
        for i in (0..WORDS).step_by(4) {
            fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
            fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
            fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
            fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
        }
        let mut units = fours;
        for j in 0..4 {
            let even = _mm512_shuffle_i32x4::<0x88>(fours[j], fours[4 + j]);
            let odd = _mm512_shuffle_i32x4::<0xdd>(fours[j], fours[4 + j]);
            let even_below = _mm512_shuffle_i32x4::<0x88>(fours[8 + j], fours[12 + j]);
            let odd_below = _mm512_shuffle_i32x4::<0xdd>(fours[8 + j], fours[12 + j]);
            units[j] = _mm512_shuffle_i32x4::<0x88>(even, even_below);
            units[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd, odd_below);
            units[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even, even_below);
            units[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd, odd_below);
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_finds_its_place_on_every_instruction_set() {
        let mut columns = Columns([[0; UNITS]; PANEL_LINES * WORDS]);
        for (c, column) in columns.0.iter_mut().enumerate() {
            for (unit, word) in column.iter_mut().enumerate() {
                *word = (1000 * c + unit) as u32;
            }
        }
        for (isa, units) in
            Isa::available().into_iter().flat_map(|isa| [4, 20, 64].map(|u| (isa, u)))
        {
            let mut lines = vec![Line::ZERO; units * PANEL_LINES];
            transpose(isa, &columns, &mut lines);
            for (i, line) in lines.iter().enumerate() {
                for (j, &word) in line.0.iter().enumerate() {
                    let (c, unit) = (i % PANEL_LINES * WORDS + j, i / PANEL_LINES);
                    assert_eq!(word, (1000 * c + unit) as u32, "{isa:?}");
                }
            }
        }
    }
}
