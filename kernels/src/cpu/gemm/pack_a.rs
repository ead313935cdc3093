//! A, the left-hand side of a product, in the order in which the micro-kernels read it.

use std::ops::Range;

use super::kernel::Variant;
use super::micro_kernel::{CacheLine, WORDS};
use crate::cpu::isa::vectorized;
use crate::cpu::precision::{
    Quantisation, bf16_bits, bf16_value, f16_bits, f16_value, interleaved, largest_magnitude,
    pairs, to_bf16, to_f16, to_integers,
};
use crate::{Isa, Matrix, Precision};

/// Rows of A as micro-panels, which follow each other: each `[groups, rows, 16 words]`.
#[derive(Debug, Default)]
pub(crate) struct PackedRows {
    pub(crate) lines: Vec<CacheLine>,
    /// Of the rows; int8 only.
    pub(super) scales: Vec<f32>,
    row: RowBuffers,
}

/// A row on its way into micro-panels: long loops are what compilers vectorise.
#[derive(Debug, Default)]
struct RowBuffers {
    words: Vec<u32>,
    halves: Vec<u16>,
    bytes: Vec<u8>,
}

impl PackedRows {
    /// Packs the rows `panels` of `a`, in the place of what was packed before.
    pub(crate) fn pack(
        &mut self,
        isa: Isa,
        variant: Variant,
        a: Matrix<'_>,
        panels: impl Iterator<Item = Range<usize>>,
    ) {
        let Self { lines, scales, row } = self;
        let groups = a.columns().div_ceil(WORDS * variant.k_per_unit());
        row.resize(groups * WORDS);
        scales.clear();
        let mut used = 0;
        for panel in panels {
            let height = panel.len();
            let end = used + height * groups;
            if lines.len() < end {
                lines.resize(end, CacheLine::ZERO);
            }
            for (i, values) in panel.map(|i| a.row(i)).enumerate() {
                let lines = lines[used..end].iter_mut().skip(i).step_by(height);
                match variant {
                    Variant::F32(Precision::F32 | Precision::Int8) => {
                        copy(values, lines);
                        continue;
                    }
                    Variant::F32(Precision::Bf16) => rounded_to_bf16(isa, values, &mut row.words),
                    Variant::F32(Precision::F16) => rounded_to_f16(isa, values, &mut row.words),
                    Variant::Bf16 => row.bf16(isa, values),
                    Variant::F16 => row.f16(isa, values),
                    Variant::Int8 => scales.push(row.int8(isa, values)),
                }
                for (line, words) in lines.zip(row.words.as_chunks().0) {
                    line.0 = *words;
                }
            }
            used = end;
        }
    }
}

fn copy<'a>(values: &[f32], mut lines: impl Iterator<Item = &'a mut CacheLine>) {
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
    /// Makes room for `words` words, zeros where no value will be.
    fn resize(&mut self, words: usize) {
        self.words.clear();
        self.words.resize(words, 0);
        self.halves.clear();
        self.halves.resize(2 * words, 0);
        self.bytes.clear();
        self.bytes.resize(4 * words, 0);
    }

    fn bf16(&mut self, isa: Isa, values: &[f32]) {
        to_bf16(isa, values, &mut self.halves);
        pairs(isa, &self.halves, &mut self.words);
    }

    fn f16(&mut self, isa: Isa, values: &[f32]) {
        let halves = &mut self.halves[..values.len()];
        to_f16(isa, values, halves);
        interleaved(isa, halves, halves, &mut self.words);
    }

    /// Returns the scale.
    fn int8(&mut self, isa: Isa, values: &[f32]) -> f32 {
        let mut largest = 0;
        find_largest(isa, values, &mut largest);
        let quantisation = Quantisation::new(largest);
        to_integers(isa, quantisation, values, &mut self.bytes);
        unsigned(isa, &self.bytes, &mut self.words);
        quantisation.scale
    }
}

vectorized! {
    fn rounded_to_bf16(values: &[f32], words: &mut [u32]) {
        for (word, &value) in words.iter_mut().zip(values) {
            *word = bf16_value(bf16_bits(value)).to_bits();
        }
    }
}

vectorized! {
    fn rounded_to_f16(values: &[f32], words: &mut [u32]) {
        for (word, &value) in words.iter_mut().zip(values) {
            *word = f16_value(f16_bits(value)).to_bits();
        }
    }
}

vectorized! {
    fn find_largest(values: &[f32], largest: &mut u32) {
        *largest = largest_magnitude(values);
    }
}

vectorized! {
    /// Adds 128 to each byte, which turns the bit of its sign.
    fn unsigned(bytes: &[u8], words: &mut [u32]) {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes) ^ 0x8080_8080;
        }
    }
}
