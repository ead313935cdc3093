//! From the sums of a tile to values of Y: dequantisation, bias, GELU, residual.

use std::ops::Range;

use super::Epilogue;
use super::method::{Form, MAX_COLUMNS, Method, Sums};
use crate::gelu::gelu_scalar;
use crate::isa::{inlined, vectorized};
use crate::packed::WORDS;
use crate::{Matrix, MatrixMut, PackedMatrix};

/// What the columns of a panel need, padded to its width.
pub(super) struct Columns<'a> {
    pub(super) first: usize,
    /// Columns that exist.
    pub(super) width: usize,
    panel: usize,
    tail: Tail<'a>,
    bias: [f32; MAX_COLUMNS],
    /// int8 only: scales and offsets of the columns.
    dequantisation: Option<(&'a [f32], &'a [i32])>,
}

#[derive(Clone, Copy)]
enum Tail<'a> {
    None,
    Bias,
    Gelu,
    Residual(Matrix<'a>),
}

impl<'a> Columns<'a> {
    pub(super) fn new(
        epilogue: Epilogue<'a>,
        w: &'a PackedMatrix,
        p: usize,
        method: Method,
    ) -> Self {
        let first = p * method.panel;
        let width = method.panel.min(w.outputs() - first);
        let (tail, values) = match epilogue {
            Epilogue::None => (Tail::None, None),
            Epilogue::Bias(values) => (Tail::Bias, Some(values)),
            Epilogue::BiasGelu(values) => (Tail::Gelu, Some(values)),
            Epilogue::BiasResidual(values, residual) => (Tail::Residual(residual), Some(values)),
        };
        let mut bias = [0.0; MAX_COLUMNS];
        if let Some(values) = values {
            bias[..width].copy_from_slice(&values[first..][..width]);
        }
        let dequantisation = (method.form == Form::Int8).then(|| w.dequantisation(p));
        Self { first, width, panel: method.panel, tail, bias, dequantisation }
    }
}

vectorized! {
    /// Writes the values of `rows` and `columns` of `y`; `scales` are those of the rows (int8).
    pub(super) fn finish(
        columns: &Columns<'_>,
        sums: &Sums,
        scales: &[f32],
        y: &mut MatrixMut<'_>,
        rows: Range<usize>,
    ) = finish_body
}

inlined! {
    fn finish_body(
        columns: &Columns<'_>,
        sums: &Sums,
        scales: &[f32],
        y: &mut MatrixMut<'_>,
        rows: Range<usize>,
    ) {
        for (i, row) in rows.enumerate() {
            let residual = match columns.tail {
                Tail::Residual(residual) => &residual.row(row)[columns.first..][..columns.width],
                _ => &[],
            };
            let sums = &sums.0[i * columns.panel..][..columns.panel];
            let to = y.part(row, columns.first, columns.width);
            for (c, to) in to.chunks_mut(WORDS).enumerate() {
                let mut chunk = values(columns, sums, c * WORDS, scales.get(i));
                if !matches!(columns.tail, Tail::None) {
                    add(&mut chunk, &columns.bias[c * WORDS..]);
                }
                match columns.tail {
                    Tail::None | Tail::Bias => {}
                    Tail::Gelu => {
                        for value in &mut chunk {
                            *value = gelu_scalar(*value);
                        }
                    }
                    Tail::Residual(_) => add(&mut chunk, &residual[c * WORDS..]),
                }
                if let Some(to) = to.as_mut_array() {
                    *to = chunk;
                } else {
                    to.copy_from_slice(&chunk[..to.len()]);
                }
            }
        }
    }

    /// The products at columns `c..` of the panel.
    fn values(columns: &Columns<'_>, sums: &[u32], c: usize, scale: Option<&f32>) -> [f32; WORDS] {
        let mut values = [0.0; WORDS];
        let sums = &sums[c..][..WORDS];
        if let (Some((scales, offsets)), Some(scale)) = (columns.dequantisation, scale) {
            let (scales, offsets) = (&scales[c..][..WORDS], &offsets[c..][..WORDS]);
            for (j, value) in values.iter_mut().enumerate() {
                *value = (sums[j].cast_signed() - offsets[j]) as f32 * scales[j] * scale;
            }
        } else {
            for (value, sum) in values.iter_mut().zip(sums) {
                *value = f32::from_bits(*sum);
            }
        }
        values
    }

    /// Adds as much of `addend` as there is.
    fn add(chunk: &mut [f32; WORDS], addend: &[f32]) {
        if let Some(addend) = addend.first_chunk::<WORDS>() {
            for (value, a) in chunk.iter_mut().zip(addend) {
                *value += a;
            }
        } else {
            for (value, a) in chunk.iter_mut().zip(addend) {
                *value += a;
            }
        }
    }
}
