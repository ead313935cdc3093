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
    int8: bool,
    chunks: [Chunk; MAX_COLUMNS / WORDS],
}

/// What 16 columns need.
#[derive(Clone, Copy, Default)]
struct Chunk {
    bias: [f32; WORDS],
    /// int8 only, as the next.
    scales: [f32; WORDS],
    offsets: [i32; WORDS],
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
        let int8 = method.form == Form::Int8;
        let mut chunks = [Chunk::default(); MAX_COLUMNS / WORDS];
        for (c, chunk) in chunks[..width.div_ceil(WORDS)].iter_mut().enumerate() {
            let exist = WORDS.min(width - c * WORDS);
            let from = first + c * WORDS;
            if let Some(values) = values {
                chunk.bias[..exist].copy_from_slice(&values[from..][..exist]);
            }
            if int8 {
                let (scales, offsets) = w.dequantisation(from);
                (chunk.scales, chunk.offsets) = (*scales, *offsets);
            }
        }
        Self { first, width, panel: method.panel, tail, int8, chunks }
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

const NONE: u8 = 0;
const BIAS: u8 = 1;
const GELU: u8 = 2;
const RESIDUAL: u8 = 3;

inlined! {
    fn finish_body(
        columns: &Columns<'_>,
        sums: &Sums,
        scales: &[f32],
        y: &mut MatrixMut<'_>,
        rows: Range<usize>,
    ) {
        // One loop for each case: the compiler vectorises none with a choice inside.
        match (columns.tail, columns.int8) {
            (Tail::None, false) => finish_rows::<NONE, false>(columns, sums, scales, y, rows),
            (Tail::None, true) => finish_rows::<NONE, true>(columns, sums, scales, y, rows),
            (Tail::Bias, false) => finish_rows::<BIAS, false>(columns, sums, scales, y, rows),
            (Tail::Bias, true) => finish_rows::<BIAS, true>(columns, sums, scales, y, rows),
            (Tail::Gelu, false) => finish_rows::<GELU, false>(columns, sums, scales, y, rows),
            (Tail::Gelu, true) => finish_rows::<GELU, true>(columns, sums, scales, y, rows),
            (Tail::Residual(_), false) => {
                finish_rows::<RESIDUAL, false>(columns, sums, scales, y, rows);
            }
            (Tail::Residual(_), true) => {
                finish_rows::<RESIDUAL, true>(columns, sums, scales, y, rows);
            }
        }
    }

    fn finish_rows<const TAIL: u8, const INT8: bool>(
        columns: &Columns<'_>,
        sums: &Sums,
        scales: &[f32],
        y: &mut MatrixMut<'_>,
        rows: Range<usize>,
    ) {
        let (sums, _) = sums.0.as_chunks::<WORDS>();
        let sums = sums.chunks_exact(columns.panel / WORDS);
        for ((i, row), sums) in rows.enumerate().zip(sums) {
            let scale = if INT8 { scales[i] } else { 0.0 };
            let residual = match columns.tail {
                Tail::Residual(residual) => &residual.row(row)[columns.first..][..columns.width],
                _ => &[],
            };
            let (residual, residual_rest) = residual.as_chunks::<WORDS>();
            let (whole, rest) = y.part(row, columns.first, columns.width).as_chunks_mut();
            for (c, to) in whole.iter_mut().enumerate() {
                let residual = if TAIL == RESIDUAL { &residual[c] } else { &[0.0; WORDS] };
                finish_chunk::<TAIL, INT8>(&columns.chunks[c], &sums[c], scale, residual, to);
            }
            if !rest.is_empty() {
                let (mut chunk, mut padded) = ([0.0; WORDS], [0.0; WORDS]);
                padded[..residual_rest.len()].copy_from_slice(residual_rest);
                let c = whole.len();
                finish_chunk::<TAIL, INT8>(&columns.chunks[c], &sums[c], scale, &padded, &mut chunk);
                rest.copy_from_slice(&chunk[..rest.len()]);
            }
        }
    }

    fn finish_chunk<const TAIL: u8, const INT8: bool>(
        columns: &Chunk,
        sums: &[u32; WORDS],
        scale: f32,
        residual: &[f32; WORDS],
        to: &mut [f32; WORDS],
    ) {
        let mut values = [0.0; WORDS];
        for j in 0..WORDS {
            let mut value = f32::from_bits(sums[j]);
            if INT8 {
                let sum = sums[j].cast_signed() - columns.offsets[j];
                value = sum as f32 * columns.scales[j] * scale;
            }
            if TAIL != NONE {
                value += columns.bias[j];
            }
            if TAIL == GELU {
                value = gelu_scalar(value);
            }
            if TAIL == RESIDUAL {
                value += residual[j];
            }
            values[j] = value;
        }
        *to = values;
    }
}
