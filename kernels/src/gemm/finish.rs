//! From the sums of a tile to values of Y: dequantisation, bias, GELU, residual.

use std::ops::Range;

use super::Epilogue;
use super::method::{Form, MAX_COLUMNS, Method, Sums};
use crate::gelu::gelu_scalar;
use crate::isa::{inlined, vectorized};
use crate::{Matrix, MatrixMut, PackedMatrix};

/// What the columns of a panel need, padded to its width.
pub(super) struct Columns<'a> {
    first: usize,
    /// Columns that exist.
    width: usize,
    panel: usize,
    tail: Tail<'a>,
    bias: [f32; MAX_COLUMNS],
    /// int8 only.
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
            let values = &sums.0[i * columns.panel..][..columns.panel];
            let mut finished = [0.0; MAX_COLUMNS];
            match columns.dequantisation {
                None => {
                    for (to, &sum) in finished.iter_mut().zip(values) {
                        *to = f32::from_bits(sum);
                    }
                }
                Some((column_scales, offsets)) => {
                    for (j, to) in finished[..columns.panel].iter_mut().enumerate() {
                        let sum = values[j].cast_signed() - offsets[j];
                        *to = sum as f32 * column_scales[j] * scales[i];
                    }
                }
            }
            if !matches!(columns.tail, Tail::None) {
                for (value, bias) in finished.iter_mut().zip(&columns.bias) {
                    *value += bias;
                }
            }
            match columns.tail {
                Tail::None | Tail::Bias => {}
                Tail::Gelu => {
                    for value in &mut finished[..columns.panel] {
                        *value = gelu_scalar(*value);
                    }
                }
                Tail::Residual(residual) => {
                    let residual = &residual.row(row)[columns.first..][..columns.width];
                    for (value, residual) in finished.iter_mut().zip(residual) {
                        *value += residual;
                    }
                }
            }
            y.part(row, columns.first, columns.width).copy_from_slice(&finished[..columns.width]);
        }
    }
}
