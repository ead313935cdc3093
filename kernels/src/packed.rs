//! The right-hand side of a matrix multiplication, in the order in which the kernels read it.

use crate::arithmetic::{Quantisation, bf16_bits, f16_bits, largest_magnitude};
use crate::isa::{inlined, vectorized};
use crate::{Arithmetic, Isa, Matrix};

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
    arithmetic: Arithmetic,
    outputs: usize,
    depth: usize,
    lines: Vec<Line>,
    /// int8 only, padded to whole panels: what an integer of each output is worth.
    scales: Vec<f32>,
    /// int8 only, padded likewise: 128 times the sum of the integers of each output.
    offsets: Vec<i32>,
}

impl PackedMatrix {
    /// Packs `weights` `[outputs, depth]`, the layout of a linear layer, for products in `arithmetic`.
    ///
    /// # Panics
    /// If `arithmetic` is int8 and the depth exceeds 65,536: the sums would not fit 32 bits.
    pub fn new(isa: Isa, arithmetic: Arithmetic, weights: Matrix<'_>) -> Self {
        let mut packed = Self::default();
        packed.pack(isa, arithmetic, weights);
        packed
    }

    /// As [`PackedMatrix::new`], into the memory of `self`.
    pub fn pack(&mut self, isa: Isa, arithmetic: Arithmetic, weights: Matrix<'_>) {
        self.resize(arithmetic, weights.rows(), weights.columns());
        match arithmetic {
            Arithmetic::F32 => pack_f32(isa, self, weights),
            Arithmetic::Bf16 => pack_bf16(isa, self, weights),
            Arithmetic::F16 => pack_f16(isa, self, weights),
            Arithmetic::Int8 => pack_int8(isa, self, weights),
        }
    }

    /// Packs the transpose of `values` `[depth, outputs]`, into the memory of `self`.
    ///
    /// # Panics
    /// If `arithmetic` is int8, which only weights are packed for.
    pub fn pack_transposed(&mut self, isa: Isa, arithmetic: Arithmetic, values: Matrix<'_>) {
        self.resize(arithmetic, values.columns(), values.rows());
        match arithmetic {
            Arithmetic::F32 => transpose_f32(isa, self, values),
            Arithmetic::Bf16 => transpose_bf16(isa, self, values),
            Arithmetic::F16 => transpose_f16(isa, self, values),
            Arithmetic::Int8 => assert!(values.rows() == 0, "int8 is packed from [outputs, depth]"),
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

    /// The arithmetic of its products.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Bytes that the packed values take.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
            + size_of_val(&self.scales[..])
            + size_of_val(&self.offsets[..])
    }

    /// Zeros for `outputs` and `depth`, in the memory that is there.
    pub(crate) fn resize(&mut self, arithmetic: Arithmetic, outputs: usize, depth: usize) {
        (self.arithmetic, self.outputs, self.depth) = (arithmetic, outputs, depth);
        let panels = outputs.div_ceil(arithmetic.panel());
        self.lines.clear();
        self.lines.resize(panels * self.units() * PANEL_LINES, Line::ZERO);
        self.scales.clear();
        self.offsets.clear();
        if arithmetic == Arithmetic::Int8 {
            assert!(depth <= 1 << 16, "int8 sums of {depth} steps do not fit 32 bits");
            self.scales.resize(panels * arithmetic.panel(), 0.0);
            self.offsets.resize(panels * arithmetic.panel(), 0);
        }
    }

    inlined! {
        /// Fills all lines from words by column: `words(c, u, out)` writes units `u..` of column `c`
        /// into as many of 16 zeros as there are. Two outputs of f16 make one column.
        fn fill(&mut self, mut words: impl FnMut(usize, usize, &mut [u32; WORDS])) {
            let units = self.units();
            for (p, panel) in self.lines.chunks_exact_mut((units * PANEL_LINES).max(1)).enumerate() {
                for line in 0..PANEL_LINES {
                    let first = (p * PANEL_LINES + line) * WORDS;
                    for (b, lines) in panel.chunks_mut(WORDS * PANEL_LINES).enumerate() {
                        let mut block = [[0; WORDS]; WORDS];
                        for (i, column) in block.iter_mut().enumerate() {
                            words(first + i, b * WORDS, column);
                        }
                        for (u, lines) in lines.chunks_exact_mut(PANEL_LINES).enumerate() {
                            lines[line] = Line(std::array::from_fn(|i| block[i][u]));
                        }
                    }
                }
            }
        }

        /// Fills all lines: `words(u, c, out)` writes columns `c..` of unit `u` into as many of 16
        /// zeros as there are.
        fn fill_lines(&mut self, mut words: impl FnMut(usize, usize, &mut [u32; WORDS])) {
            let units = self.units();
            for (p, panel) in self.lines.chunks_exact_mut((units * PANEL_LINES).max(1)).enumerate() {
                for (unit, lines) in panel.chunks_exact_mut(PANEL_LINES).enumerate() {
                    for (i, line) in lines.iter_mut().enumerate() {
                        words(unit, (p * PANEL_LINES + i) * WORDS, &mut line.0);
                    }
                }
            }
        }
    }

    /// Units of the depth, with the padding.
    pub(crate) fn units(&self) -> usize {
        self.depth.div_ceil(self.arithmetic.steps()).next_multiple_of(UNROLL)
    }

    pub(crate) fn panels_mut(&mut self) -> impl Iterator<Item = &mut [Line]> {
        let lines = self.units() * PANEL_LINES;
        self.lines.chunks_exact_mut(lines.max(1))
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

vectorized! { fn pack_f32(packed: &mut PackedMatrix, weights: Matrix<'_>) = pack_f32_body }
vectorized! { fn pack_bf16(packed: &mut PackedMatrix, weights: Matrix<'_>) = pack_bf16_body }
vectorized! { fn pack_f16(packed: &mut PackedMatrix, weights: Matrix<'_>) = pack_f16_body }
vectorized! { fn pack_int8(packed: &mut PackedMatrix, weights: Matrix<'_>) = pack_int8_body }
vectorized! { fn transpose_f32(packed: &mut PackedMatrix, values: Matrix<'_>) = transpose_f32_body }
vectorized! { fn transpose_bf16(packed: &mut PackedMatrix, values: Matrix<'_>) = transpose_bf16_body }
vectorized! { fn transpose_f16(packed: &mut PackedMatrix, values: Matrix<'_>) = transpose_f16_body }

inlined! {
    fn pack_f32_body(packed: &mut PackedMatrix, weights: Matrix<'_>) {
        packed.fill(|column, first, words| {
            let Some(row) = weights.get(column) else { return };
            for (word, value) in words.iter_mut().zip(from(row, first)) {
                *word = value.to_bits();
            }
        });
    }

    fn pack_bf16_body(packed: &mut PackedMatrix, weights: Matrix<'_>) {
        packed.fill(|column, first, words| {
            let Some(row) = weights.get(column) else { return };
            let pairs = padded::<{ 2 * WORDS }>(from(row, 2 * first));
            for (word, pair) in words.iter_mut().zip(pairs.as_chunks().0) {
                let [even, odd] = *pair;
                *word = bf16_bits(even) | bf16_bits(odd) << 16;
            }
        });
    }

    fn pack_f16_body(packed: &mut PackedMatrix, weights: Matrix<'_>) {
        packed.fill(|column, first, words| {
            for (shift, j) in [(0, 2 * column), (16, 2 * column + 1)] {
                let Some(row) = weights.get(j) else { return };
                for (word, &value) in words.iter_mut().zip(from(row, first)) {
                    *word |= f16_bits(value) << shift;
                }
            }
        });
    }

    fn pack_int8_body(packed: &mut PackedMatrix, weights: Matrix<'_>) {
        let rows: Vec<Quantisation> = (0..weights.rows())
            .map(|j| Quantisation::new(largest_magnitude(weights.row(j))))
            .collect();
        let mut offsets = std::mem::take(&mut packed.offsets);
        packed.fill(|column, first, words| {
            let Some(row) = weights.get(column) else { return };
            let fours = padded::<{ 4 * WORDS }>(from(row, 4 * first));
            for (word, four) in words.iter_mut().zip(fours.as_chunks::<4>().0) {
                let integers = four.map(|value| rows[column].integer(value));
                offsets[column] += 128 * integers.iter().sum::<i32>();
                *word = u32::from_le_bytes(integers.map(|integer| integer as u8));
            }
        });
        packed.offsets = offsets;
        for (scale, row) in packed.scales.iter_mut().zip(&rows) {
            *scale = row.scale;
        }
    }

    fn transpose_f32_body(packed: &mut PackedMatrix, values: Matrix<'_>) {
        packed.fill_lines(|unit, first, words| {
            let Some(row) = values.get(unit) else { return };
            for (word, value) in words.iter_mut().zip(from(row, first)) {
                *word = value.to_bits();
            }
        });
    }

    fn transpose_bf16_body(packed: &mut PackedMatrix, values: Matrix<'_>) {
        packed.fill_lines(|unit, first, words| {
            for (shift, k) in [(0, 2 * unit), (16, 2 * unit + 1)] {
                let Some(row) = values.get(k) else { return };
                for (word, &value) in words.iter_mut().zip(from(row, first)) {
                    *word |= bf16_bits(value) << shift;
                }
            }
        });
    }

    fn transpose_f16_body(packed: &mut PackedMatrix, values: Matrix<'_>) {
        packed.fill_lines(|unit, first, words| {
            let Some(row) = values.get(unit) else { return };
            let pairs = padded::<{ 2 * WORDS }>(from(row, 2 * first));
            for (word, pair) in words.iter_mut().zip(pairs.as_chunks().0) {
                let [even, odd] = *pair;
                *word = f16_bits(even) | f16_bits(odd) << 16;
            }
        });
    }

    /// The values from `first` on: none in the padding of a panel.
    fn from(values: &[f32], first: usize) -> &[f32] {
        &values[first.min(values.len())..]
    }

    fn padded<const LENGTH: usize>(values: &[f32]) -> [f32; LENGTH] {
        let mut padded = [0.0; LENGTH];
        let length = LENGTH.min(values.len());
        padded[..length].copy_from_slice(&values[..length]);
        padded
    }
}
