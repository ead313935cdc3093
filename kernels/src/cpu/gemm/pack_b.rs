//! Packs B, the right operand of a product, in the order in which the micro-kernels read it.

#[cfg(target_arch = "x86_64")]
use super::avx2;
#[cfg(target_arch = "x86_64")]
use super::kernel::{Kernel, Variant};
use super::micro_kernel::{CacheLine, PANEL_LINES, WORDS};
use crate::cpu::isa::vectorized;
use crate::cpu::precision::{
    Quantisation, X_MAX, pack_interleaved, pack_pairs, range_with_zero, to_bf16, to_f16,
    to_integers,
};
use crate::cpu::rows::linear_f64;
use crate::{Isa, Matrix, Precision};

/// Maximum units of k that are transposed at a time.
const UNITS: usize = 64;

/// Packed weights `[outputs, k]` in panels of 32 outputs (64 in f16; the last panel is padded with
/// zeros). A panel is `[units, 128 bytes]`: a unit holds one (f32, f16), two (bf16) or four (int8)
/// values of k for each output, neighbouring values of one output side by side.
#[derive(Debug, Clone, Default)]
pub struct PackedMatrix {
    pub(super) precision: Precision,
    outputs: usize,
    k: usize,
    lines: Vec<CacheLine>,
    /// Whether the units of each panel are in the order of sums of four products.
    pub(super) in_fours: bool,
    /// For int8 only, padded to whole panels: the scale of each output.
    scales: Vec<f32>,
    /// For int8 only, padded to whole panels: the sum of the integers of each output.
    sums: Vec<i32>,
    /// For int8 only.
    pub(super) channels: Channels,
    /// For int8 only: the products of means and weights, `[kinds, outputs]`, outputs padded.
    of_means: Vec<f32>,
}

/// Means and factors that centre and scale each of the k channels of X before rounding to int8.
#[derive(Debug, Clone, Default)]
pub(crate) struct Channels {
    /// `[kinds, k]`, subtracted from the rows of each kind.
    pub(super) means: Vec<f32>,
    /// `[k]`, multiplied with the differences.
    pub(super) factors: Vec<f32>,
}

impl PackedMatrix {
    /// Packs `weights` `[outputs, k]`, the layout of a linear layer, for products in `precision` on
    /// `isa`. In int8, k is at most 65,536, so that sums fit 32 bits.
    pub fn new(isa: Isa, precision: Precision, weights: Matrix<'_>) -> Self {
        let mut packed = Self::default();
        packed.pack(isa, precision, weights);
        packed
    }

    /// Packs weights in int8 for rows that are near one of `means` `[kinds, k]`;
    /// [`Matrix::with_kinds`] sets the mean of each row. The difference from the mean is multiplied
    /// in int8, and the product of the mean itself is exact.
    ///
    /// `deviations` `[k]` are the standard deviations from the means. A channel's values are
    /// divided, and its weights multiplied, by `deviation^(1/8) / rms(weights)^(3/4)`: one scale
    /// for a row, or for an output, then suits all channels better. "SmoothQuant" (Xiao et al.,
    /// 2023) does so with largest magnitudes; the exponents had the smallest errors with three
    /// encoders.
    pub fn around(isa: Isa, weights: Matrix<'_>, means: &[f32], deviations: &[f32]) -> Self {
        let (outputs, k) = (weights.rows(), weights.columns());
        let kinds = means.len() / k.max(1);
        assert!(kinds > 0 && means.len() == kinds * k, "means of another length");
        assert!(deviations.len() == k, "deviations of another length");
        let mut squares = vec![0.0; k];
        for row in (0..outputs).map(|j| weights.row(j)) {
            squares.iter_mut().zip(row).for_each(|(sum, w)| *sum += f64::from(*w).powi(2));
        }
        let deviations = deviations.iter().map(|deviation| f64::from(*deviation).powi(2));
        let (x, w) = (raise_small(deviations.collect()), raise_small(squares));
        // Square roots, unlike powers, have the same bits everywhere.
        let scale = |(x, w): (f64, f64)| {
            let (x, w) = (x.sqrt().sqrt().sqrt(), w.sqrt().sqrt());
            (x.sqrt() / (w * w.sqrt())) as f32
        };
        let scales: Vec<f32> = x.into_iter().zip(w).map(scale).collect();
        let mut scaled = vec![0.0; outputs * k];
        for (j, to) in scaled.chunks_exact_mut(k).enumerate() {
            for ((to, weight), scale) in to.iter_mut().zip(weights.row(j)).zip(&scales) {
                *to = weight * scale;
            }
        }
        let mut packed = Self::new(isa, Precision::Int8, Matrix::new(&scaled, outputs, k, k));
        let padded = packed.scales.len();
        packed.channels.means = means.to_vec();
        packed.channels.factors = scales.iter().map(|scale| 1.0 / scale).collect();
        packed.of_means = vec![0.0; kinds * padded];
        let of_means = packed.of_means.chunks_exact_mut(padded);
        for (mean, of_mean) in means.chunks_exact(k).zip(of_means) {
            for (j, value) in of_mean[..outputs].iter_mut().enumerate() {
                let mut product = [0.0];
                linear_f64(isa, mean, weights.row(j), &[0.0], &mut product);
                *value = product[0] as f32;
            }
        }
        packed
    }

    /// Like [`PackedMatrix::new`], but reuses the memory of `self`.
    pub fn pack(&mut self, isa: Isa, precision: Precision, weights: Matrix<'_>) {
        self.resize(precision, weights.rows(), weights.columns());
        let units = self.units();
        let quantisations = self.quantise(isa, weights);
        let mut columns = UnitsByColumn([[0; UNITS]; PANEL_LINES * WORDS]);
        for p in 0..self.panels() {
            for first in (0..units).step_by(UNITS) {
                let count = UNITS.min(units - first);
                for (i, words) in columns.0.iter_mut().enumerate() {
                    let column = p * PANEL_LINES * WORDS + i;
                    let rows = self.precision.panel_columns() / (PANEL_LINES * WORDS);
                    (rows * column..rows * (column + 1)).for_each(|row| weights.fetch_after(row));
                    let words = &mut words[..count];
                    words.fill(0);
                    match precision {
                        Precision::F32 => pack_f32(weights, column, first, words),
                        Precision::Bf16 => pack_bf16(isa, weights, column, first, words),
                        Precision::F16 => pack_f16(isa, weights, column, first, words),
                        Precision::Int8 => {
                            let Some(&of_row) = quantisations.get(column) else { continue };
                            let row = weights.row(column);
                            let sum = pack_int8(isa, of_row, row, first, words);
                            self.sums[column] += sum;
                        }
                    }
                }
                let lines = (p * units + first) * PANEL_LINES;
                transpose(isa, &columns, &mut self.lines[lines..][..count * PANEL_LINES]);
            }
        }
        #[cfg(target_arch = "x86_64")]
        self.reorder_in_fours(Kernel::new(isa, precision));
    }

    /// Orders each block of KC units of each panel for sums of four products, if `kernel` takes
    /// them.
    #[cfg(target_arch = "x86_64")]
    fn reorder_in_fours(&mut self, kernel: Kernel) {
        if kernel.variant != Variant::Int8Sums {
            return;
        }
        let (units, header) = (self.units(), kernel.variant.header_lines());
        let headers = self.panels() * units.div_ceil(kernel.kc).max(1) * header;
        let mut lines = Vec::with_capacity(self.lines.len() + headers);
        for p in 0..self.panels() {
            // Without units there is a block of a header alone.
            for first in (0..units.max(1)).step_by(kernel.kc) {
                let block = p * units + first..p * units + units.min(first + kernel.kc);
                let block = &self.lines[block.start * PANEL_LINES..block.end * PANEL_LINES];
                let start = lines.len();
                lines.resize(start + block.len() + header, CacheLine::ZERO);
                // SAFETY: only CPUs with AVX2 have kernels of this variant.
                unsafe { avx2::in_fours(block, &mut lines[start..]) };
            }
        }
        (self.lines, self.in_fours) = (lines, true);
    }

    /// Packs the transpose of `values` `[k, outputs]`, reusing the memory of `self`; not in int8.
    pub fn pack_transposed(&mut self, isa: Isa, precision: Precision, values: Matrix<'_>) {
        assert!(precision != Precision::Int8, "int8 is packed from [outputs, k]");
        self.resize(precision, values.columns(), values.rows());
        let units = self.units();
        let mut words = vec![0; self.panels() * PANEL_LINES * WORDS];
        let mut halves = [vec![0; self.outputs], vec![0; self.outputs]];
        for unit in 0..units {
            let row = unit * precision.k_per_unit();
            (row..row + precision.k_per_unit()).for_each(|row| values.fetch_after(row));
            match (precision, values.get(row)) {
                (_, None) => words.fill(0),
                (Precision::Bf16, Some(even)) => {
                    to_bf16(isa, even, &mut halves[0]);
                    match values.get(2 * unit + 1) {
                        Some(odd) => to_bf16(isa, odd, &mut halves[1]),
                        None => halves[1].fill(0),
                    }
                    pack_interleaved(isa, &halves[0], &halves[1], &mut words);
                }
                (Precision::F16, Some(row)) => {
                    halves[0].resize(self.outputs.next_multiple_of(2), 0);
                    to_f16(row, &mut halves[0][..self.outputs]);
                    pack_pairs(isa, &halves[0], &mut words);
                }
                (_, Some(row)) => {
                    for (word, value) in words.iter_mut().zip(row) {
                        *word = value.to_bits();
                    }
                }
            }
            for (p, words) in words.as_chunks::<WORDS>().0.chunks(PANEL_LINES).enumerate() {
                let lines = &mut self.lines[(p * units + unit) * PANEL_LINES..][..PANEL_LINES];
                for (line, words) in lines.iter_mut().zip(words) {
                    line.0 = *words;
                }
            }
        }
    }

    /// Returns the number of outputs (rows of the weights, columns of a product).
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns k, the length of the sums.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Makes room; old contents stay until they are overwritten.
    fn resize(&mut self, precision: Precision, outputs: usize, k: usize) {
        (self.precision, self.outputs, self.k) = (precision, outputs, k);
        self.in_fours = false;
        self.lines.resize(self.panels() * self.units() * PANEL_LINES, CacheLine::ZERO);
    }

    /// Returns the quantisation of each row of `weights` in int8; empty in other precisions.
    fn quantise(&mut self, isa: Isa, weights: Matrix<'_>) -> Vec<Quantisation> {
        self.scales.clear();
        self.sums.clear();
        self.channels = Channels::default();
        self.of_means.clear();
        if self.precision != Precision::Int8 {
            return Vec::new();
        }
        assert!(self.k <= 1 << 16, "int8 sums of {} steps do not fit 32 bits", self.k);
        let mut bytes = vec![0; self.k.next_multiple_of(2 * WORDS)];
        let rows: Vec<_> =
            (0..self.outputs).map(|j| quantise_row(isa, weights.row(j), &mut bytes)).collect();
        self.scales.extend(rows.iter().map(|row| row.scale));
        self.scales.resize(self.panels() * self.precision.panel_columns(), 0.0);
        self.sums.resize(self.scales.len(), 0);
        // There is one kind of rows, with mean 0.
        self.channels.means.resize(self.k, 0.0);
        self.channels.factors.resize(self.k, 1.0);
        self.of_means.resize(self.scales.len(), 0.0);
        rows
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(self.precision.panel_columns())
    }

    /// Returns the units of k, padded with zeros to whole AMX tiles.
    fn units(&self) -> usize {
        self.k.div_ceil(self.precision.k_per_unit()).next_multiple_of(WORDS)
    }

    /// Returns panel `p`: `[units, PANEL_LINES]`, with headers where sums are of four products.
    pub(crate) fn panel(&self, p: usize) -> &[CacheLine] {
        let lines = self.lines.len() / self.panels();
        &self.lines[p * lines..][..lines]
    }

    /// Returns scales and sums of 16 outputs from `first`, a multiple of 16; int8 only.
    pub(crate) fn dequantisation(&self, first: usize) -> (&[f32; WORDS], &[i32; WORDS]) {
        let (scales, sums) = (self.scales.as_chunks().0, self.sums.as_chunks().0);
        (&scales[first / WORDS], &sums[first / WORDS])
    }

    /// Returns the products of the mean of `kind` from output `first`, a multiple of 16; int8 only.
    pub(crate) fn products_of_mean(&self, kind: usize, first: usize) -> &[[f32; WORDS]] {
        self.of_means[kind * self.scales.len()..][..self.scales.len()][first..].as_chunks().0
    }
}

/// Raises each of `squares` to at least a millionth of their mean; all are 1 without a finite mean
/// above 0.
fn raise_small(squares: Vec<f64>) -> Vec<f64> {
    let mean = squares.iter().sum::<f64>() / squares.len() as f64;
    if !(mean.is_finite() && mean > 0.0) {
        return vec![1.0; squares.len()];
    }
    squares.into_iter().map(|square| square.max(1e-6 * mean)).collect()
}

/// Returns the quantisation of a row of weights with which the sum of the products of two
/// neighbours with integers up to [`X_MAX`] fits 16 bits. `bytes` are whole groups of 32 for the
/// row; those after the row are zeros.
fn quantise_row(isa: Isa, row: &[f32], bytes: &mut [u8]) -> Quantisation {
    let [low, high] = range_with_zero(row);
    let mut largest = if high > -low { high } else { -low };
    loop {
        let quantisation = Quantisation::symmetric(largest, 127);
        to_integers(isa, quantisation, row, bytes);
        let mut pairs = [0; WORDS];
        raise_to_largest_pairs(isa, bytes, &mut pairs);
        let largest_pair = pairs.into_iter().map(i32::from).fold(0, i32::max);
        let excess = (largest_pair * X_MAX) as f32 / f32::from(i16::MAX);
        if excess <= 1.0 {
            return quantisation;
        }
        largest *= excess;
    }
}

vectorized! {
    /// Raises each of `largest` to the largest sum of two neighbours of one sign, or one neighbour.
    fn raise_to_largest_pairs(weights: &[u8], largest: &mut [i16; WORDS]) {
        for weights in weights.as_chunks::<{ 2 * WORDS }>().0 {
            for (largest, pair) in largest.iter_mut().zip(weights.as_chunks().0) {
                let pair = i16::from_le_bytes(*pair);
                let [low, high] = [pair << 8 >> 8, pair >> 8];
                let sums = [low.max(0) + high.max(0), -low.min(0) - high.min(0)];
                *largest = (*largest).max(sums[0]).max(sums[1]);
            }
        }
    }
}

/// Writes the units of output `column` from `first` on into `words`, which are zeros.
fn pack_f32(weights: Matrix<'_>, column: usize, first: usize, words: &mut [u32]) {
    for (word, value) in words.iter_mut().zip(row_part(weights, column, first, UNITS)) {
        *word = value.to_bits();
    }
}

/// Like [`pack_f32`], with two values of k per word.
fn pack_bf16(isa: Isa, weights: Matrix<'_>, column: usize, first: usize, words: &mut [u32]) {
    let values = row_part(weights, column, 2 * first, 2 * UNITS);
    let mut halves = [0; 2 * UNITS];
    to_bf16(isa, values, &mut halves);
    pack_pairs(isa, &halves, words);
}

/// Like [`pack_f32`], with outputs `2 · column` and `2 · column + 1` in a word.
fn pack_f16(isa: Isa, weights: Matrix<'_>, column: usize, first: usize, words: &mut [u32]) {
    let mut halves = [[0; UNITS]; 2];
    for (i, halves) in halves.iter_mut().enumerate() {
        let values = row_part(weights, 2 * column + i, first, UNITS);
        to_f16(values, &mut halves[..values.len()]);
    }
    pack_interleaved(isa, &halves[0], &halves[1], words);
}

/// Like [`pack_f32`] for a row, four values of k per word; returns the sum of the integers.
fn pack_int8(isa: Isa, how: Quantisation, row: &[f32], first: usize, words: &mut [u32]) -> i32 {
    let values = &row[(4 * first).min(row.len())..(4 * (first + UNITS)).min(row.len())];
    let mut bytes = [0; 4 * UNITS];
    to_integers(isa, how, values, &mut bytes);
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    bytes.iter().map(|byte| i32::from(byte.cast_signed())).sum()
}

/// Returns up to `most` values of row `i` from `first`; none in the padding of a panel.
fn row_part(weights: Matrix<'_>, i: usize, first: usize, most: usize) -> &[f32] {
    let row = weights.get(i).unwrap_or_default();
    let row = &row[first.min(row.len())..];
    &row[..most.min(row.len())]
}

/// The words of up to 64 units of each column of a panel.
#[repr(C, align(64))]
struct UnitsByColumn([[u32; UNITS]; PANEL_LINES * WORDS]);

/// Writes the units of `columns` into `lines` one after another, two lines each.
fn transpose(isa: Isa, columns: &UnitsByColumn, lines: &mut [CacheLine]) {
    assert!(lines.len() <= UNITS * PANEL_LINES, "{} lines", lines.len());
    #[cfg(target_arch = "x86_64")]
    if isa.level == crate::cpu::isa::Level::Avx512 {
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

    use crate::cpu::gemm::micro_kernel::{CacheLine, PANEL_LINES, WORDS};
    use crate::cpu::gemm::pack_b::{UNITS, UnitsByColumn};

    #[target_feature(enable = "avx512f")]
    pub(super) fn transpose(columns: &UnitsByColumn, lines: &mut [CacheLine]) {
        for (block, lines) in lines.chunks_mut(WORDS * PANEL_LINES).take(UNITS / WORDS).enumerate()
        {
            for (half, columns) in columns.0.as_chunks::<WORDS>().0.iter().enumerate() {
                let mut rows = [_mm512_setzero_si512(); WORDS];
                for (row, column) in rows.iter_mut().zip(columns) {
                    let words: &[u32; WORDS] = &column.as_chunks().0[block];
                    // SAFETY: 16 words, aligned as `UnitsByColumn` and blocks of 64 bytes are.
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
        let mut columns = UnitsByColumn([[0; UNITS]; PANEL_LINES * WORDS]);
        for (c, column) in columns.0.iter_mut().enumerate() {
            for (unit, word) in column.iter_mut().enumerate() {
                *word = (1000 * c + unit) as u32;
            }
        }
        for (isa, units) in
            Isa::available().into_iter().flat_map(|isa| [4, 20, 64].map(|u| (isa, u)))
        {
            let mut lines = vec![CacheLine::ZERO; units * PANEL_LINES];
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
