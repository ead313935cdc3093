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

/// 16 neighbouring values of a row.
type Chunk = [f32; WORDS];

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
        let (chunks, _) = sums.0.as_chunks::<WORDS>();
        let tile = chunks.chunks_exact(columns.panel / WORDS);
        let values = |sum: &[u32; WORDS], i: usize, c: usize| match columns.dequantisation {
            None => sum.map(f32::from_bits),
            Some((of_columns, offsets)) => {
                dequantised(sum, &of_columns[c..], &offsets[c..], scales[i])
            }
        };
        match columns.tail {
            Tail::None => each(columns, tile, y, rows, |sum, i, c, _| values(sum, i, c)),
            Tail::Bias => each(columns, tile, y, rows, |sum, i, c, _| {
                added(values(sum, i, c), &columns.bias[c..])
            }),
            Tail::Gelu => each(columns, tile, y, rows, |sum, i, c, _| {
                added(values(sum, i, c), &columns.bias[c..]).map(gelu_scalar)
            }),
            Tail::Residual(residual) => each(columns, tile, y, rows, |sum, i, c, row| {
                let residual = &residual.row(row)[columns.first..][..columns.width][c..];
                added(added(values(sum, i, c), &columns.bias[c..]), residual)
            }),
        }
    }

    /// Writes what `value` makes of each chunk of `tile`, given its row in the tile, column and row.
    fn each<'a>(
        columns: &Columns<'_>,
        tile: impl Iterator<Item = &'a [[u32; WORDS]]>,
        y: &mut MatrixMut<'_>,
        rows: Range<usize>,
        value: impl Fn(&[u32; WORDS], usize, usize, usize) -> Chunk,
    ) {
        for ((i, row), sums) in rows.enumerate().zip(tile) {
            let mut to = y.part(row, columns.first, columns.width).chunks_mut(WORDS);
            for (c, sum) in sums.iter().enumerate() {
                let Some(to) = to.next() else { break };
                let chunk = value(sum, i, c * WORDS, row);
                if let Some(to) = to.as_mut_array() {
                    *to = chunk;
                } else {
                    to.copy_from_slice(&chunk[..to.len()]);
                }
            }
        }
    }

    /// `chunk` and the `addend` of the columns that exist.
    fn added(chunk: Chunk, addend: &[f32]) -> Chunk {
        let mut sums = chunk;
        if let Some(addend) = addend.first_chunk::<WORDS>() {
            for (sum, a) in sums.iter_mut().zip(addend) {
                *sum += a;
            }
        } else {
            for (sum, a) in sums.iter_mut().zip(addend) {
                *sum += a;
            }
        }
        sums
    }

    fn dequantised(sum: &[u32; WORDS], scales: &[f32], offsets: &[i32], scale: f32) -> Chunk {
        let (scales, offsets) = (&scales[..WORDS], &offsets[..WORDS]);
        std::array::from_fn(|j| {
            (sum[j].cast_signed() - offsets[j]) as f32 * scales[j] * scale
        })
    }
}
