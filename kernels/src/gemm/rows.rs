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
    /// Fills every `height`-th line with the words that `words` makes of the next values of `row`.
    fn fill<const VALUES: usize>(
        row: &[f32],
        lines: &mut [Line],
        height: usize,
        words: impl Fn(&[f32; VALUES]) -> [u32; WORDS],
    ) {
        let (whole, rest) = row.as_chunks();
        let mut lines = lines.iter_mut().step_by(height);
        for (values, line) in whole.iter().zip(&mut lines) {
            line.0 = words(values);
        }
        if let (false, Some(line)) = (rest.is_empty(), lines.next()) {
            let mut values = [0.0; VALUES];
            values[..rest.len()].copy_from_slice(rest);
            line.0 = words(&values);
        }
    }

    fn f32_body(row: &[f32], lines: &mut [Line], height: usize) {
        fill::<WORDS>(row, lines, height, |values| values.map(f32::to_bits));
    }

    fn f32_from_bf16_body(row: &[f32], lines: &mut [Line], height: usize) {
        fill::<WORDS>(row, lines, height, |values| {
            values.map(|value| bf16_value(bf16_bits(value)).to_bits())
        });
    }

    fn f32_from_f16_body(row: &[f32], lines: &mut [Line], height: usize) {
        fill::<WORDS>(row, lines, height, |values| {
            values.map(|value| f16_value(f16_bits(value)).to_bits())
        });
    }

    fn bf16_body(row: &[f32], lines: &mut [Line], height: usize) {
        fill::<{ 2 * WORDS }>(row, lines, height, |values| {
            std::array::from_fn(|i| bf16_bits(values[2 * i]) | bf16_bits(values[2 * i + 1]) << 16)
        });
    }

    fn f16_body(row: &[f32], lines: &mut [Line], height: usize) {
        fill::<WORDS>(row, lines, height, |values| {
            values.map(|value| f16_bits(value) * 0x1_0001)
        });
    }

    fn int8_body(row: &[f32], lines: &mut [Line], height: usize, scales: &mut Vec<f32>) {
        let quantisation = Quantisation::new(largest_magnitude(row));
        scales.push(quantisation.scale);
        fill::<{ 4 * WORDS }>(row, lines, height, |values| {
            let bytes = values.map(|value| (quantisation.integer(value) + 128) as u8);
            std::array::from_fn(|i| {
                u32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
            })
        });
    }
}
