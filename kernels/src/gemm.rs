//! `Y = X · Wᵀ` with a fused tail (bias, GELU, residual).
//!
//! A value of the product is the sum, first to last, of the sums of blocks of the depth, each from
//! zero. So a value does not depend on the number of rows or on the row's place; and in f32 and
//! int8 not on the instruction set.
//!
//! Blocking: a block of rows of X is packed (and rounded or quantised) into tiles that stay in the
//! second-level cache; each panel of W meets all tiles of the block, one stretch of the depth after
//! the other, while the next stretch is fetched. The sums of a tile and a panel stay in registers
//! and the first-level cache until they are final.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod direct;
mod expand;
mod finish;
pub(crate) mod method;
mod panel;
mod portable;
pub(crate) mod rows;
#[cfg(test)]
mod tests;

use std::ops::Range;

use finish::Columns;
use method::{Method, Sums};
use panel::Panel;

use crate::packed::{Line, UNROLL, WORDS};
use crate::{Isa, Matrix, MatrixMut, PackedMatrix};

/// What happens to a value of the product before it is final.
#[derive(Debug, Clone, Copy)]
pub enum Epilogue<'a> {
    /// Nothing.
    None,
    /// `+ bias[output]`.
    Bias(&'a [f32]),
    /// `gelu(· + bias[output])`, the exact (erf) form.
    BiasGelu(&'a [f32]),
    /// `(· + bias[output]) + residual[row, output]`.
    BiasResidual(&'a [f32], Matrix<'a>),
}

/// Memory of [`gemm`] that is worth keeping between calls.
#[derive(Debug, Default)]
pub struct GemmScratch {
    /// Packed rows of X.
    pub(crate) x: Vec<Line>,
    row: rows::Row,
    /// Scales of the rows of X; int8 only.
    scales: Vec<f32>,
    /// A stretch of a panel in f32, where W is kept in less.
    panel: Vec<Line>,
    /// Of the tiles of a block of rows.
    sums: Vec<Sums>,
}

/// `y` `[m, n]` = `x` `[m, k]` · `w` `[n, k]`ᵀ with `epilogue`, in the precision of `w`.
///
/// A row of `x` that is not finite makes the same row of `y` not finite, and no other.
///
/// # Panics
/// If the shapes do not fit together.
///
/// # Precision
/// With `u = 2⁻²⁴` and blocks of `b = 128` steps, the error of a value is at most
/// - f32: `(b + k / b) · u · Σ|x·w|`;
/// - bf16: that of f32 and `2⁻⁷ · Σ|x·w|` for the rounded factors;
/// - f16: that of f32 and `2⁻¹⁰ · Σ|x·w|`, with sums in f16 `b · 2⁻¹¹ · Σ|x·w|` more;
/// - int8: half a unit of each factor.
pub fn gemm(
    isa: Isa,
    x: Matrix<'_>,
    w: &PackedMatrix,
    epilogue: Epilogue<'_>,
    y: &mut MatrixMut<'_>,
    scratch: &mut GemmScratch,
) {
    check(x, w, epilogue, y);
    let method = Method::new(isa, w.precision());
    let units = x.columns().div_ceil(method.form.steps()).next_multiple_of(UNROLL);
    let row_lines = units.div_ceil(WORDS);
    let tile_rows = method.kernels.len();
    let lines = isa.second_level_cache() / 2 / size_of::<Line>();
    let block = (lines / row_lines.max(1) / tile_rows).max(1) * tile_rows;
    for rows in parts(0..x.rows(), block) {
        rows::pack(isa, method.form, x, parts(rows.clone(), tile_rows), scratch);
        for p in 0..w.outputs().div_ceil(method.panel) {
            let columns = Columns::new(epilogue, w, p, method);
            let panel = Panel { isa, method, w, p, units, columns };
            panel.multiply(rows.clone(), y, scratch);
        }
    }
}

fn check(x: Matrix<'_>, w: &PackedMatrix, epilogue: Epilogue<'_>, y: &MatrixMut<'_>) {
    let (m, n, k) = (x.rows(), w.outputs(), w.depth());
    assert!(x.columns() == k, "x has {} columns, w a depth of {k}", x.columns());
    assert!(y.rows() == m && y.columns() == n, "y is not {m} x {n}");
    if let Epilogue::Bias(b) | Epilogue::BiasGelu(b) | Epilogue::BiasResidual(b, _) = epilogue {
        assert!(b.len() == n, "the bias has {} values, not {n}", b.len());
    }
    if let Epilogue::BiasResidual(_, r) = epilogue {
        assert!(r.rows() == m && r.columns() == n, "the residual is not {m} x {n}");
    }
}

/// `range` in as few parts as have at most `most` members each, of nearly equal length.
fn parts(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let (start, length) = (range.start, range.len());
    let count = length.div_ceil(most);
    (0..count).map(move |i| start + i * length / count..start + (i + 1) * length / count)
}
