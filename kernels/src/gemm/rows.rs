//! X in the order and the form in which the kernels read it.

use std::ops::Range;

use super::GemmScratch;
use super::method::Form;
use crate::arithmetic::{
    Quantisation, bf16_bits, bf16_value, f16_bits, f16_value, largest_magnitude,
};
use crate::convert::{interleaved, pairs, to_bf16, to_f16, to_integers};
use crate::isa::{inlined, vectorized};
use crate::packed::{Line, WORDS};
use crate::{Arithmetic, Isa, Matrix};

/// A row on its way into tiles: long loops are what compilers vectorise.
#[derive(Debug, Default)]
pub(super) struct Row {
    words: Vec<u32>,
    halves: Vec<u16>,
    bytes: Vec<u8>,
}

/// Packs `tiles`, which follow each other, into `scratch`: for each tile `[groups, rows, 16 words]`.
pub(crate) fn pack(
    isa: Isa,
    form: Form,
    x: Matrix<'_>,
    tiles: impl Iterator<Item = Range<usize>>,
    scratch: &mut GemmScratch,
) {
    let GemmScratch { x: lines, scales, row, .. } = scratch;
    let groups = x.columns().div_ceil(WORDS * form.steps());
    row.resize(groups * WORDS);
    scales.clear();
    let mut used = 0;
    for tile in tiles {
        let height = tile.len();
        let end = used + height * groups;
        if lines.len() < end {
            lines.resize(end, Line::ZERO);
        }
        for (i, values) in tile.map(|i| x.row(i)).enumerate() {
            if form == Form::Int8 {
                scales.push(row.quantise(isa, values));
            } else {
                row.convert(isa, form, values);
            }
            let lines = lines[used..end].iter_mut().skip(i).step_by(height);
            for (line, words) in lines.zip(row.words.as_chunks().0) {
                line.0 = *words;
            }
        }
        used = end;
    }
}

impl Row {
    /// Makes room for `words` words, zeros where no value will be.
    fn resize(&mut self, words: usize) {
        self.words.clear();
        self.words.resize(words, 0);
        self.halves.clear();
        self.halves.resize(2 * words, 0);
        self.bytes.clear();
        self.bytes.resize(4 * words, 0);
    }

    fn convert(&mut self, isa: Isa, form: Form, values: &[f32]) {
        let Self { words, halves, .. } = self;
        match form {
            Form::F32(Arithmetic::Bf16) => rounded_to_bf16(isa, values, words),
            Form::F32(Arithmetic::F16) => rounded_to_f16(isa, values, words),
            Form::Bf16 => {
                to_bf16(isa, values, halves);
                pairs(isa, halves, words);
            }
            Form::F16 => {
                let halves = &mut halves[..values.len()];
                to_f16(isa, values, halves);
                interleaved(isa, halves, halves, words);
            }
            Form::F32(_) | Form::Int8 => {
                for (word, value) in words.iter_mut().zip(values) {
                    *word = value.to_bits();
                }
            }
        }
    }

    /// Returns the scale.
    fn quantise(&mut self, isa: Isa, values: &[f32]) -> f32 {
        let mut largest = 0;
        find_largest(isa, values, &mut largest);
        let quantisation = Quantisation::new(largest);
        to_integers(isa, quantisation, values, &mut self.bytes);
        unsigned(isa, &self.bytes, &mut self.words);
        quantisation.scale
    }
}

vectorized! { fn rounded_to_bf16(values: &[f32], words: &mut [u32]) = rounded_to_bf16_body }
vectorized! { fn rounded_to_f16(values: &[f32], words: &mut [u32]) = rounded_to_f16_body }
vectorized! { fn find_largest(values: &[f32], largest: &mut u32) = find_largest_body }
vectorized! { fn unsigned(bytes: &[u8], words: &mut [u32]) = unsigned_body }

inlined! {
    fn rounded_to_bf16_body(values: &[f32], words: &mut [u32]) {
        for (word, &value) in words.iter_mut().zip(values) {
            *word = bf16_value(bf16_bits(value)).to_bits();
        }
    }

    fn rounded_to_f16_body(values: &[f32], words: &mut [u32]) {
        for (word, &value) in words.iter_mut().zip(values) {
            *word = f16_value(f16_bits(value)).to_bits();
        }
    }

    fn find_largest_body(values: &[f32], largest: &mut u32) {
        *largest = largest_magnitude(values);
    }

    /// Adds 128 to each byte, which turns the bit of its sign.
    fn unsigned_body(bytes: &[u8], words: &mut [u32]) {
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes) ^ 0x8080_8080;
        }
    }
}
