//! Packs A, the left operand of a product, in the order in which the micro-kernels read it.

use std::ops::Range;

use super::kernel::{Kernel, Variant};
use super::micro_kernel::{CacheLine, WORDS};
use super::pack_b::Channels;
use crate::cpu::isa::vectorized;
use crate::cpu::precision::{
    Quantisation, bf16_bits, bf16_value, f16_bits, f16_value, pack_interleaved, pack_pairs,
    range_with_zero, to_bf16, to_f16, to_integers,
};
use crate::{Isa, Matrix, Precision};

/// Rows of A as consecutive micro-panels, each `[groups, rows, 16 words]`.
#[derive(Debug, Default)]
pub(crate) struct PackedRows {
    pub(crate) lines: Vec<CacheLine>,
    /// For int8 only: how each row is quantised, and the kind of its mean, which was subtracted.
    pub(super) rows: Vec<(Quantisation, usize)>,
    row: RowBuffers,
}

/// A row before it is written to a micro-panel: compilers vectorise long loops.
#[derive(Debug, Default)]
struct RowBuffers {
    words: Vec<u32>,
    halves: Vec<u16>,
    bytes: Vec<u8>,
    centred: Vec<f32>,
}

impl PackedRows {
    /// Packs the rows `panels` of `a` over earlier contents; in int8 as `channels` says. Rows of
    /// zeros end the last micro-panel if `kernel` needs them.
    pub(crate) fn pack(
        &mut self,
        isa: Isa,
        kernel: Kernel,
        (a, channels): (Matrix<'_>, &Channels),
        panels: impl Iterator<Item = Range<usize>>,
    ) {
        let Self { lines, rows, row } = self;
        let variant = kernel.variant;
        let groups = a.columns().div_ceil(WORDS * variant.k_per_unit());
        row.resize(groups * WORDS);
        rows.clear();
        let mut used = 0;
        for panel in panels {
            let height = kernel.height(panel.len());
            let end = used + height * groups;
            lines.resize(lines.len().max(end), CacheLine::ZERO);
            for i in panel.len()..height {
                for line in lines[used..end].iter_mut().skip(i).step_by(height) {
                    *line = CacheLine::ZERO;
                }
            }
            for (i, row_of_a) in panel.enumerate() {
                a.fetch_after(row_of_a);
                let (values, kind) = (a.row(row_of_a), a.kind(row_of_a));
                match variant {
                    Variant::F32(Precision::F32 | Precision::Int8) => {
                        copy_row(values, lines[used..end].iter_mut().skip(i).step_by(height));
                        continue;
                    }
                    Variant::F32(Precision::Bf16) => round_to_bf16(isa, values, &mut row.words),
                    Variant::F32(Precision::F16) => round_to_f16(isa, values, &mut row.words),
                    Variant::Bf16 | Variant::Bf16Blocks => {
                        to_bf16(isa, values, &mut row.halves);
                        pack_pairs(isa, &row.halves, &mut row.words);
                    }
                    Variant::F16 => {
                        let halves = &mut row.halves[..values.len()];
                        to_f16(values, halves);
                        pack_interleaved(isa, halves, halves, &mut row.words);
                    }
                    Variant::Int8
                    | Variant::Int8Sums
                    | Variant::Int8Signed
                    | Variant::Int8Blocks => {
                        let mean = &channels.means[kind * values.len()..][..values.len()];
                        let centred = &mut row.centred[..values.len()];
                        let mut range = [0.0; 2];
                        centre(isa, values, mean, &channels.factors, centred, &mut range);
                        let mut quantisation = Quantisation::asymmetric(range);
                        to_integers(isa, quantisation, centred, &mut row.bytes);
                        let is_signed = variant == Variant::Int8Signed;
                        let (flip, shift) = if is_signed { (0x8080_8080, 128) } else { (0, 0) };
                        for (word, bytes) in row.words.iter_mut().zip(row.bytes.as_chunks().0) {
                            *word = u32::from_le_bytes(*bytes) ^ flip;
                        }
                        // The zero point shifts by 128, as the integers do.
                        quantisation.zero -= shift;
                        rows.push((quantisation, kind));
                    }
                }
                if variant.is_in_blocks() {
                    row.write_blocks(&mut lines[used..end], i, height);
                    continue;
                }
                let lines = lines[used..end].iter_mut().skip(i).step_by(height);
                for (line, words) in lines.zip(row.words.as_chunks().0) {
                    line.0 = *words;
                }
            }
            used = end;
        }
    }
}

/// Copies a row of f32 into `lines`; the last one is padded with zeros.
fn copy_row<'a>(values: &[f32], mut lines: impl Iterator<Item = &'a mut CacheLine>) {
    let (whole, rest) = values.as_chunks::<WORDS>();
    for (values, line) in whole.iter().zip(&mut lines) {
        line.0 = values.map(f32::to_bits);
    }
    if let (false, Some(line)) = (rest.is_empty(), lines.next()) {
        *line = CacheLine::ZERO;
        for (word, value) in line.0.iter_mut().zip(rest) {
            *word = value.to_bits();
        }
    }
}

impl RowBuffers {
    /// Resizes the buffers for `words` words, with zeros where there is no value.
    fn resize(&mut self, words: usize) {
        self.words.clear();
        self.words.resize(words, 0);
        self.halves.clear();
        self.halves.resize(2 * words, 0);
        self.bytes.clear();
        self.bytes.resize(4 * words, 0);
        self.centred.resize(4 * words, 0.0);
    }

    /// Writes row `i` of `height` into its half of the blocks that it shares with a neighbour.
    fn write_blocks(&self, lines: &mut [CacheLine], i: usize, height: usize) {
        let (pair, half) = (i / 2 * 2, i % 2 * 2);
        for (lines, words) in lines.chunks_exact_mut(height).zip(self.words.as_chunks::<WORDS>().0)
        {
            let blocks = lines[pair..pair + 2].iter_mut().flat_map(|line| line.0.as_chunks_mut().0);
            for (block, words) in blocks.zip(words.as_chunks::<2>().0) {
                let block: &mut [u32; 4] = block;
                block[half..half + 2].copy_from_slice(words);
            }
        }
    }
}

vectorized! {
    /// Writes each value as the f32 that is the nearest bf16.
    fn round_to_bf16(values: &[f32], words: &mut [u32]) {
        for (word, &value) in words.iter_mut().zip(values) {
            *word = bf16_value(bf16_bits(value)).to_bits();
        }
    }

    /// Writes each value as the f32 that is the nearest f16.
    fn round_to_f16(values: &[f32], words: &mut [u32]) {
        for (word, &value) in words.iter_mut().zip(values) {
            *word = f16_value(f16_bits(value)).to_bits();
        }
    }

    /// Computes `centred = (values - mean) * factors` and its range.
    fn centre(
        values: &[f32],
        mean: &[f32],
        factors: &[f32],
        centred: &mut [f32],
        range: &mut [f32; 2],
    ) {
        for (((centred, value), mean), factor) in centred.iter_mut().zip(values).zip(mean).zip(factors) {
            *centred = (value - mean) * factor;
        }
        *range = range_with_zero(centred);
    }
}
