//! X in the order and the form in which the kernels read it.

use std::ops::Range;

use super::GemmScratch;
use super::method::Form;
use crate::arithmetic::{
    Quantisation, bf16_bits, bf16_value, f16_bits, f16_value, largest_magnitude,
};
use crate::isa::{inlined, vectorized};
use crate::packed::{Line, WORDS};
use crate::{Arithmetic, Isa, Matrix};

/// Packs `tiles`, which follow each other, into `scratch`: for each tile `[groups, rows, 16 words]`.
pub(crate) fn pack(
    isa: Isa,
    form: Form,
    x: Matrix<'_>,
    tiles: impl Iterator<Item = Range<usize>>,
    scratch: &mut GemmScratch,
) {
    let groups = x.columns().div_ceil(WORDS * form.steps());
    let mut used = 0;
    scratch.scales.clear();
    for tile in tiles {
        let height = tile.len();
        let end = used + height * groups;
        if scratch.x.len() < end {
            scratch.x.resize(end, Line::ZERO);
        }
        let lines = &mut scratch.x[used..end];
        for (i, row) in tile.enumerate() {
            let (row, lines) = (x.row(row), lines.get_mut(i..).unwrap_or_default());
            match form {
                Form::F32(Arithmetic::Bf16) => f32_from_bf16(isa, row, lines, height),
                Form::F32(Arithmetic::F16) => f32_from_f16(isa, row, lines, height),
                Form::F32(_) => f32(isa, row, lines, height),
                Form::Bf16 => bf16(isa, row, lines, height),
                Form::F16 => f16(isa, row, lines, height),
                Form::Int8 => int8(isa, row, lines, height, &mut scratch.scales),
            }
        }
        used = end;
    }
}

vectorized! { fn f32(row: &[f32], lines: &mut [Line], height: usize) = f32_body }
vectorized! { fn f32_from_bf16(row: &[f32], lines: &mut [Line], height: usize) = f32_from_bf16_body }
vectorized! { fn f32_from_f16(row: &[f32], lines: &mut [Line], height: usize) = f32_from_f16_body }
vectorized! { fn bf16(row: &[f32], lines: &mut [Line], height: usize) = bf16_body }
vectorized! { fn f16(row: &[f32], lines: &mut [Line], height: usize) = f16_body }
vectorized! {
    fn int8(row: &[f32], lines: &mut [Line], height: usize, scales: &mut Vec<f32>) = int8_body
}

inlined! {
    /// The first `LENGTH` of `values`, or all and zeros.
    fn padded<const LENGTH: usize>(values: &[f32]) -> [f32; LENGTH] {
        if let Some(values) = values.first_chunk() {
            return *values;
        }
        let mut padded = [0.0; LENGTH];
        padded[..values.len()].copy_from_slice(values);
        padded
    }

    fn f32_body(row: &[f32], lines: &mut [Line], height: usize) {
        for (line, values) in lines.iter_mut().step_by(height).zip(row.chunks(WORDS)) {
            for (word, value) in line.0.iter_mut().zip(padded::<WORDS>(values)) {
                *word = value.to_bits();
            }
        }
    }

    fn f32_from_bf16_body(row: &[f32], lines: &mut [Line], height: usize) {
        for (line, values) in lines.iter_mut().step_by(height).zip(row.chunks(WORDS)) {
            for (word, value) in line.0.iter_mut().zip(padded::<WORDS>(values)) {
                *word = bf16_value(bf16_bits(value)).to_bits();
            }
        }
    }

    fn f32_from_f16_body(row: &[f32], lines: &mut [Line], height: usize) {
        for (line, values) in lines.iter_mut().step_by(height).zip(row.chunks(WORDS)) {
            for (word, value) in line.0.iter_mut().zip(padded::<WORDS>(values)) {
                *word = f16_value(f16_bits(value)).to_bits();
            }
        }
    }

    fn bf16_body(row: &[f32], lines: &mut [Line], height: usize) {
        for (line, values) in lines.iter_mut().step_by(height).zip(row.chunks(2 * WORDS)) {
            let values = padded::<{ 2 * WORDS }>(values);
            for (i, word) in line.0.iter_mut().enumerate() {
                *word = bf16_bits(values[2 * i]) | bf16_bits(values[2 * i + 1]) << 16;
            }
        }
    }

    fn f16_body(row: &[f32], lines: &mut [Line], height: usize) {
        for (line, values) in lines.iter_mut().step_by(height).zip(row.chunks(WORDS)) {
            for (word, value) in line.0.iter_mut().zip(padded::<WORDS>(values)) {
                *word = f16_bits(value) * 0x1_0001;
            }
        }
    }

    fn int8_body(row: &[f32], lines: &mut [Line], height: usize, scales: &mut Vec<f32>) {
        let quantisation = Quantisation::new(largest_magnitude(row));
        scales.push(quantisation.scale);
        for (line, values) in lines.iter_mut().step_by(height).zip(row.chunks(4 * WORDS)) {
            let values = padded::<{ 4 * WORDS }>(values);
            let mut bytes = [0; 4 * WORDS];
            for (byte, value) in bytes.iter_mut().zip(values) {
                *byte = (quantisation.integer(value) + 128) as u8;
            }
            for (word, bytes) in line.0.iter_mut().zip(bytes.as_chunks().0) {
                *word = u32::from_le_bytes(*bytes);
            }
        }
    }
}
