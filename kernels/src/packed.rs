//! The right-hand side of a matrix multiplication, in the order in which the kernels read it.

use crate::convert::{interleaved, pairs, to_bf16, to_f16, to_integers};
use crate::precision::{Quantisation, largest_magnitude};
use crate::transpose::{Columns, UNITS, transpose};
use crate::{Isa, Matrix, Precision};

/// 32-bit words in a cache line.
pub(crate) const WORDS: usize = 16;
/// Cache lines of a panel for one unit of the depth.
pub(crate) const PANEL_LINES: usize = 2;

/// The depth is padded with zeros to a multiple of so many units.
pub(crate) const UNROLL: usize = 4;

/// One cache line; loads of a panel must not straddle two.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; WORDS]);

impl Line {
    pub(crate) const ZERO: Self = Self([0; WORDS]);
}

/// `[outputs, depth]`, kept as panels of 32 outputs (64 in f16; the last one padded with zeros). A panel
/// is `[units, 128 bytes]`: a unit holds the values of one step (f32, f16), two (bf16) or four
/// (int8) for each output, neighbouring steps of one output side by side.
#[derive(Debug, Clone, Default)]
pub struct PackedMatrix {
    precision: Precision,
    outputs: usize,
    depth: usize,
    lines: Vec<Line>,
    /// int8 only, padded to whole panels: what an integer of each output is worth.
    scales: Vec<f32>,
    /// int8 only, padded likewise: 128 times the sum of the integers of each output.
    offsets: Vec<i32>,
}

impl PackedMatrix {
    /// Packs `weights` `[outputs, depth]`, the layout of a linear layer, for products in `precision`.
    ///
    /// # Panics
    /// If `precision` is int8 and the depth exceeds 65,536: the sums would not fit 32 bits.
    pub fn new(isa: Isa, precision: Precision, weights: Matrix<'_>) -> Self {
        let mut packed = Self::default();
        packed.pack(isa, precision, weights);
        packed
    }

    /// As [`PackedMatrix::new`], into the memory of `self`.
    pub fn pack(&mut self, isa: Isa, precision: Precision, weights: Matrix<'_>) {
        self.resize(precision, weights.rows(), weights.columns());
        let units = self.units();
        let quantisations = self.quantise(weights);
        let mut columns = Columns([[0; UNITS]; PANEL_LINES * WORDS]);
        for p in 0..self.panels() {
            for first in (0..units).step_by(UNITS) {
                let count = UNITS.min(units - first);
                for (i, words) in columns.0.iter_mut().enumerate() {
                    let column = p * PANEL_LINES * WORDS + i;
                    let words = &mut words[..count];
                    words.fill(0);
                    match precision {
                        Precision::F32 => f32_words(weights, column, first, words),
                        Precision::Bf16 => bf16_words(isa, weights, column, first, words),
                        Precision::F16 => f16_words(isa, weights, column, first, words),
                        Precision::Int8 => {
                            let Some(&of_row) = quantisations.get(column) else { continue };
                            let row = weights.row(column);
                            let sum = int8_words(isa, of_row, row, first, words);
                            self.offsets[column] += 128 * sum;
                        }
                    }
                }
                let lines = (p * units + first) * PANEL_LINES;
                transpose(isa, &columns, &mut self.lines[lines..][..count * PANEL_LINES]);
            }
        }
    }

    /// Packs the transpose of `values` `[depth, outputs]`, into the memory of `self`.
    ///
    /// # Panics
    /// If `precision` is int8, which only weights are packed for.
    pub fn pack_transposed(&mut self, isa: Isa, precision: Precision, values: Matrix<'_>) {
        assert!(precision != Precision::Int8, "int8 is packed from [outputs, depth]");
        self.resize(precision, values.columns(), values.rows());
        let units = self.units();
        let mut words = vec![0; self.panels() * PANEL_LINES * WORDS];
        let mut halves = [vec![0; self.outputs], vec![0; self.outputs]];
        for unit in 0..units {
            match (precision, values.get(unit * precision.steps())) {
                (_, None) => words.fill(0),
                (Precision::Bf16, Some(even)) => {
                    to_bf16(isa, even, &mut halves[0]);
                    match values.get(2 * unit + 1) {
                        Some(odd) => to_bf16(isa, odd, &mut halves[1]),
                        None => halves[1].fill(0),
                    }
                    interleaved(isa, &halves[0], &halves[1], &mut words);
                }
                (Precision::F16, Some(row)) => {
                    halves[0].resize(self.outputs.next_multiple_of(2), 0);
                    to_f16(isa, row, &mut halves[0][..self.outputs]);
                    pairs(isa, &halves[0], &mut words);
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

    /// Number of outputs (rows of the weights, columns of a product).
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Length of the sums.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// The precision of its products.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes that the packed values take.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
            + size_of_val(&self.scales[..])
            + size_of_val(&self.offsets[..])
    }

    /// Makes room; what was there stays, to be overwritten.
    fn resize(&mut self, precision: Precision, outputs: usize, depth: usize) {
        (self.precision, self.outputs, self.depth) = (precision, outputs, depth);
        self.lines.resize(self.panels() * self.units() * PANEL_LINES, Line::ZERO);
    }

    /// How each row of `weights` is written in int8; nothing in other precisions.
    fn quantise(&mut self, weights: Matrix<'_>) -> Vec<Quantisation> {
        self.scales.clear();
        self.offsets.clear();
        if self.precision != Precision::Int8 {
            return Vec::new();
        }
        assert!(self.depth <= 1 << 16, "int8 sums of {} steps do not fit 32 bits", self.depth);
        let rows: Vec<_> = (0..self.outputs)
            .map(|j| Quantisation::new(largest_magnitude(weights.row(j))))
            .collect();
        self.scales.extend(rows.iter().map(|row| row.scale));
        self.scales.resize(self.panels() * self.precision.panel(), 0.0);
        self.offsets.resize(self.scales.len(), 0);
        rows
    }

    fn panels(&self) -> usize {
        self.outputs.div_ceil(self.precision.panel())
    }

    /// Units of the depth, with the padding.
    pub(crate) fn units(&self) -> usize {
        self.depth.div_ceil(self.precision.steps()).next_multiple_of(UNROLL)
    }

    /// Panel `p`: `[units, PANEL_LINES]`.
    pub(crate) fn panel(&self, p: usize) -> &[Line] {
        let lines = self.units() * PANEL_LINES;
        &self.lines[p * lines..][..lines]
    }

    /// Scales and offsets of 16 outputs from `first`, a multiple of 16; int8 only.
    pub(crate) fn dequantisation(&self, first: usize) -> (&[f32; WORDS], &[i32; WORDS]) {
        let (scales, offsets) = (self.scales.as_chunks().0, self.offsets.as_chunks().0);
        (&scales[first / WORDS], &offsets[first / WORDS])
    }
}

/// Writes units `first..` of output `column` into as many of `words` (zeros) as there are.
fn f32_words(weights: Matrix<'_>, column: usize, first: usize, words: &mut [u32]) {
    for (word, value) in words.iter_mut().zip(part(weights, column, first, UNITS)) {
        *word = value.to_bits();
    }
}

/// As [`f32_words`], two steps a word.
fn bf16_words(isa: Isa, weights: Matrix<'_>, column: usize, first: usize, words: &mut [u32]) {
    let values = part(weights, column, 2 * first, 2 * UNITS);
    let mut halves = [0; 2 * UNITS];
    to_bf16(isa, values, &mut halves);
    pairs(isa, &halves, words);
}

/// As [`f32_words`], outputs `2 · column` and the next in a word.
fn f16_words(isa: Isa, weights: Matrix<'_>, column: usize, first: usize, words: &mut [u32]) {
    let mut halves = [[0; UNITS]; 2];
    for (i, halves) in halves.iter_mut().enumerate() {
        let values = part(weights, 2 * column + i, first, UNITS);
        to_f16(isa, values, &mut halves[..values.len()]);
    }
    interleaved(isa, &halves[0], &halves[1], words);
}

/// As [`f32_words`], for a row, four steps a word; returns the sum of the integers.
fn int8_words(isa: Isa, how: Quantisation, row: &[f32], first: usize, words: &mut [u32]) -> i32 {
    let values = &row[(4 * first).min(row.len())..(4 * (first + UNITS)).min(row.len())];
    let mut bytes = [0; 4 * UNITS];
    to_integers(isa, how, values, &mut bytes);
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    bytes.iter().map(|byte| i32::from(byte.cast_signed())).sum()
}

/// Up to `most` values of row `i` from `first`: none in the padding of a panel.
fn part(weights: Matrix<'_>, i: usize, first: usize, most: usize) -> &[f32] {
    let row = weights.get(i).unwrap_or_default();
    let row = &row[first.min(row.len())..];
    &row[..most.min(row.len())]
}
