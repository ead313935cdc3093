//! Turns the sums of a micro-tile into values of C: dequantisation, bias, GELU, residual.

use std::ops::Range;

use super::kernel::Kernel;
use super::micro_kernel::{MicroTile, NR, WORDS};
use super::pack_b::PackedMatrix;
use crate::cpu::gelu::gelu_scalar;
use crate::cpu::isa::vectorized;
use crate::cpu::precision::Quantisation;
use crate::{Matrix, MatrixMut};

/// Operation on a value of the product before it is written.
#[derive(Debug, Clone, Copy)]
pub enum Epilogue<'a> {
    /// Writes the product.
    None,
    /// Adds the bias: `+ bias[output]`.
    Bias(&'a [f32]),
    /// Adds the bias and applies GELU in its exact (erf) form: `gelu(· + bias[output])`.
    BiasGelu(&'a [f32]),
    /// Adds bias and residual: `(· + bias[output]) + residual[row, output]`.
    BiasResidual(&'a [f32], Matrix<'a>),
}

/// Epilogue data for the columns of a panel, padded to its width.
pub(super) struct EpilogueColumns<'a> {
    pub(super) first: usize,
    /// Number of columns that exist.
    pub(super) width: usize,
    nr: usize,
    epilogue: Epilogue<'a>,
    /// The weights, if sums are integers (int8).
    int8: Option<&'a PackedMatrix>,
    lines: [LineOfColumns; NR / WORDS],
}

/// Epilogue data for 16 columns.
#[derive(Clone, Copy, Default)]
struct LineOfColumns {
    bias: [f32; WORDS],
    /// For int8 only, like `sums`.
    scales: [f32; WORDS],
    sums: [i32; WORDS],
}

impl<'a> EpilogueColumns<'a> {
    pub(super) fn new(
        epilogue: Epilogue<'a>,
        (b, p): (&'a PackedMatrix, usize),
        kernel: Kernel,
    ) -> Self {
        let first = p * kernel.nr;
        let width = kernel.nr.min(b.outputs() - first);
        let bias = match epilogue {
            Epilogue::None => None,
            Epilogue::Bias(b) | Epilogue::BiasGelu(b) | Epilogue::BiasResidual(b, _) => Some(b),
        };
        let int8 = kernel.variant.is_integer().then_some(b);
        let mut lines = [LineOfColumns::default(); NR / WORDS];
        for (c, line) in lines[..width.div_ceil(WORDS)].iter_mut().enumerate() {
            let exist = WORDS.min(width - c * WORDS);
            let from = first + c * WORDS;
            if let Some(bias) = bias {
                line.bias[..exist].copy_from_slice(&bias[from..][..exist]);
            }
            if int8.is_some() {
                let (scales, sums) = b.dequantisation(from);
                (line.scales, line.sums) = (*scales, *sums);
            }
        }
        Self { first, width, nr: kernel.nr, epilogue, int8, lines }
    }
}

vectorized! {
    /// Writes the values of `rows` and `columns` of `c`; `quantised` describes the rows in int8.
    pub(super) fn apply(
        columns: &EpilogueColumns<'_>,
        sums: &MicroTile,
        quantised: &[(Quantisation, usize)],
        c: &mut MatrixMut<'_>,
        rows: Range<usize>,
    ) {
        use Epilogue::{Bias, BiasGelu, BiasResidual};
        // One loop per case: the compiler does not vectorise a loop with a branch inside.
        match (columns.epilogue, columns.int8.is_some()) {
            (Epilogue::None, false) => apply_rows::<NONE, false>(columns, sums, quantised, c, rows),
            (Epilogue::None, true) => apply_rows::<NONE, true>(columns, sums, quantised, c, rows),
            (Bias(_), false) => apply_rows::<BIAS, false>(columns, sums, quantised, c, rows),
            (Bias(_), true) => apply_rows::<BIAS, true>(columns, sums, quantised, c, rows),
            (BiasGelu(_), false) => apply_rows::<GELU, false>(columns, sums, quantised, c, rows),
            (BiasGelu(_), true) => apply_rows::<GELU, true>(columns, sums, quantised, c, rows),
            (BiasResidual(..), false) => {
                apply_rows::<RESIDUAL, false>(columns, sums, quantised, c, rows);
            }
            (BiasResidual(..), true) => {
                apply_rows::<RESIDUAL, true>(columns, sums, quantised, c, rows);
            }
        }
    }
}

const NONE: u8 = 0;
const BIAS: u8 = 1;
const GELU: u8 = 2;
const RESIDUAL: u8 = 3;

/// Writes rows as [`apply`] does, with the epilogue and the type of sums known to the compiler.
#[inline(always)]
fn apply_rows<const EPILOGUE: u8, const INT8: bool>(
    columns: &EpilogueColumns<'_>,
    sums: &MicroTile,
    quantised: &[(Quantisation, usize)],
    c: &mut MatrixMut<'_>,
    rows: Range<usize>,
) {
    let (sums, _) = sums.0.as_chunks::<WORDS>();
    let sums = sums.chunks_exact(columns.nr / WORDS);
    for ((i, row), sums) in rows.enumerate().zip(sums) {
        let (row_of_a, kind) = if INT8 { quantised[i] } else { Default::default() };
        let of_mean = match columns.int8 {
            Some(b) if INT8 => b.products_of_mean(kind, columns.first),
            _ => &[[0.0; WORDS]; NR / WORDS][..],
        };
        let residual = match columns.epilogue {
            Epilogue::BiasResidual(_, residual) => {
                &residual.row(row)[columns.first..][..columns.width]
            }
            _ => &[],
        };
        let (residual, residual_rest) = residual.as_chunks::<WORDS>();
        let (whole, rest) = c.part(row, columns.first, columns.width).as_chunks_mut();
        for (l, to) in whole.iter_mut().enumerate() {
            let residual = if EPILOGUE == RESIDUAL { &residual[l] } else { &[0.0; WORDS] };
            let of_row = (row_of_a, &of_mean[l]);
            apply_line::<EPILOGUE, INT8>(&columns.lines[l], &sums[l], of_row, residual, to);
        }
        if !rest.is_empty() {
            let (mut line, mut padded) = ([0.0; WORDS], [0.0; WORDS]);
            padded[..residual_rest.len()].copy_from_slice(residual_rest);
            let l = whole.len();
            let of_row = (row_of_a, &of_mean[l]);
            apply_line::<EPILOGUE, INT8>(&columns.lines[l], &sums[l], of_row, &padded, &mut line);
            rest.copy_from_slice(&line[..rest.len()]);
        }
    }
}

/// Computes 16 values; in int8, `row` and `of_mean` are the row's quantisation and mean product.
#[inline(always)]
fn apply_line<const EPILOGUE: u8, const INT8: bool>(
    columns: &LineOfColumns,
    sums: &[u32; WORDS],
    (row, of_mean): (Quantisation, &[f32; WORDS]),
    residual: &[f32; WORDS],
    to: &mut [f32; WORDS],
) {
    let mut values = [0.0; WORDS];
    for j in 0..WORDS {
        let mut value = f32::from_bits(sums[j]);
        if INT8 {
            let sum = sums[j].cast_signed() - row.zero * columns.sums[j];
            value = sum as f32 * columns.scales[j] * row.scale + of_mean[j];
        }
        if EPILOGUE != NONE {
            value += columns.bias[j];
        }
        if EPILOGUE == GELU {
            value = gelu_scalar(value);
        }
        if EPILOGUE == RESIDUAL {
            value += residual[j];
        }
        values[j] = value;
    }
    *to = values;
}
