//! Queries, keys and values of a head in f16, packed anew for each head of each sequence: with the
//! CPU's own conversion and transposition in registers.

use std::arch::x86_64::{
    __m256i, __m512, _MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT, _mm256_store_si256,
    _mm512_castpd_ps, _mm512_castps_pd, _mm512_cvtepu16_epi32, _mm512_cvtps_ph, _mm512_loadu_ps,
    _mm512_or_si512, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_slli_epi32,
    _mm512_store_si512, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd,
    _mm512_unpacklo_ps,
};

use std::ops::Range;

use crate::packed::{Line, PANEL_LINES, WORDS};
use crate::{Arithmetic, Isa, Matrix, PackedMatrix};

/// [`PackedMatrix::pack`] in f16.
pub(super) fn pack(isa: Isa, packed: &mut PackedMatrix, matrix: Matrix<'_>) {
    assert!(isa.units().fp16, "the CPU multiplies f16");
    packed.resize(Arithmetic::F16, matrix.rows(), matrix.columns());
    for (p, panel) in packed.panels_mut().enumerate() {
        // SAFETY: the CPU has AVX512-FP16, which includes AVX-512F.
        unsafe { pack_panel(panel, matrix, p * Arithmetic::F16.panel()) };
    }
}

/// [`PackedMatrix::pack_transposed`] in f16.
pub(super) fn pack_transposed(isa: Isa, packed: &mut PackedMatrix, matrix: Matrix<'_>) {
    assert!(isa.units().fp16, "the CPU multiplies f16");
    packed.resize(Arithmetic::F16, matrix.columns(), matrix.rows());
    for (p, panel) in packed.panels_mut().enumerate() {
        // SAFETY: as above.
        unsafe { pack_transposed_panel(panel, matrix, p * Arithmetic::F16.panel()) };
    }
}

/// Rows `rows` of `matrix` as a left operand: each value twice in a word.
pub(super) fn pack_rows(isa: Isa, matrix: Matrix<'_>, rows: Range<usize>, lines: &mut [Line]) {
    assert!(isa.units().fp16, "the CPU multiplies f16");
    // SAFETY: as above.
    unsafe { pack_rows_avx512(matrix, rows, lines) };
}

#[target_feature(enable = "avx512f")]
fn pack_rows_avx512(matrix: Matrix<'_>, rows: Range<usize>, lines: &mut [Line]) {
    for (b, lines) in lines.chunks_exact_mut(rows.len()).enumerate() {
        for (line, i) in lines.iter_mut().zip(rows.clone()) {
            store_twice(load(matrix.row(i), b * WORDS), line);
        }
    }
}

/// Rows of `matrix` from `first` on as the columns of `panel`.
#[target_feature(enable = "avx512f")]
fn pack_panel(panel: &mut [Line], matrix: Matrix<'_>, first: usize) {
    for (b, steps) in panel.chunks_mut(PANEL_LINES * WORDS).enumerate() {
        for group in 0..2 * PANEL_LINES {
            let row = first + group * WORDS;
            if row >= matrix.rows() {
                break; // zeros already
            }
            let mut rows = [_mm512_setzero_ps(); WORDS];
            for (values, i) in rows.iter_mut().zip(row..matrix.rows()) {
                *values = load(matrix.row(i), b * WORDS);
            }
            for (step, column) in steps.chunks_exact_mut(PANEL_LINES).zip(transpose(&rows)) {
                store(column, step, group);
            }
        }
    }
}

/// Columns of `matrix` from `first` on as the columns of `panel`.
#[target_feature(enable = "avx512f")]
fn pack_transposed_panel(panel: &mut [Line], matrix: Matrix<'_>, first: usize) {
    for (i, step) in panel.chunks_exact_mut(PANEL_LINES).enumerate().take(matrix.rows()) {
        let row = matrix.row(i);
        for (group, column) in (first..row.len()).step_by(WORDS).take(2 * PANEL_LINES).enumerate() {
            store(load(row, column), step, group);
        }
    }
}

/// 16 values of `row` from `first` on, zeros beyond its end.
#[target_feature(enable = "avx512f")]
fn load(row: &[f32], first: usize) -> __m512 {
    let values = &row[first..];
    let mut padded = [0.0; WORDS];
    let whole = values.first_chunk().unwrap_or_else(|| {
        padded[..values.len()].copy_from_slice(values);
        &padded
    });
    // SAFETY: 16 values.
    unsafe { _mm512_loadu_ps(whole.as_ptr()) }
}

/// Stores `values` as f16 into half a line: number `group` of `step`.
#[target_feature(enable = "avx512f")]
fn store(values: __m512, step: &mut [Line], group: usize) {
    let half: &mut [u32; WORDS / 2] = &mut step[group / 2].0.as_chunks_mut().0[group % 2];
    // SAFETY: half a line is 32 bytes, aligned to as many.
    unsafe { _mm256_store_si256(half.as_mut_ptr().cast::<__m256i>(), to_f16(values)) };
}

/// Stores `values` as f16, each twice.
#[target_feature(enable = "avx512f")]
pub(super) fn store_twice(values: __m512, line: &mut Line) {
    let once = _mm512_cvtepu16_epi32(to_f16(values));
    let twice = _mm512_or_si512(once, _mm512_slli_epi32::<16>(once));
    // SAFETY: a line holds 16 words and is aligned to 64 bytes.
    unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), twice) };
}

#[target_feature(enable = "avx512f")]
fn to_f16(values: __m512) -> __m256i {
    _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(values)
}

/// The transpose of 16 x 16 values.
#[target_feature(enable = "avx512f")]
fn transpose(rows: &[__m512; WORDS]) -> [__m512; WORDS] {
    // Within each quarter of the registers: pairs of rows, then fours of rows.
    let mut fours = [_mm512_setzero_ps(); WORDS];
    for (four, rows) in fours.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
        let low = [_mm512_unpacklo_ps(rows[0], rows[1]), _mm512_unpacklo_ps(rows[2], rows[3])];
        let high = [_mm512_unpackhi_ps(rows[0], rows[1]), _mm512_unpackhi_ps(rows[2], rows[3])];
        for (two, [a, b]) in four.chunks_exact_mut(2).zip([low, high]) {
            let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
            two[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            two[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    // Quarter q of `fours[4 g + c]` is column 4 q + c of rows 4 g to 4 g + 3: transpose the quarters.
    let mut columns = [_mm512_setzero_ps(); WORDS];
    for c in 0..4 {
        let (a, b, d, e) = (fours[c], fours[4 + c], fours[8 + c], fours[12 + c]);
        let low = [_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0x44>(d, e)];
        let high = [_mm512_shuffle_f32x4::<0xee>(a, b), _mm512_shuffle_f32x4::<0xee>(d, e)];
        columns[c] = _mm512_shuffle_f32x4::<0x88>(low[0], low[1]);
        columns[4 + c] = _mm512_shuffle_f32x4::<0xdd>(low[0], low[1]);
        columns[8 + c] = _mm512_shuffle_f32x4::<0x88>(high[0], high[1]);
        columns[12 + c] = _mm512_shuffle_f32x4::<0xdd>(high[0], high[1]);
    }
    columns
}
