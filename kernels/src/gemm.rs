//! `Y = X · Wᵀ` in f32 with a fused tail (bias, GELU, residual).
//!
//! Every value of the product is one chain of fused multiply-adds over the depth, first to last:
//! blocks of the depth go on from the value that the block before left in `Y`. So a value does
//! not depend on the number of rows, on the row's place, or on the instruction set.
//!
//! Blocking: a block of rows of X is copied into tiles that stay in the second-level cache; a
//! panel of W (256 x 32, half of a first-level cache) meets all tiles of the block before the
//! next one is read.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

use crate::gelu::gelu_scalar;
use crate::isa::{Level, vectorized};
use crate::packed::PANEL;
use crate::{Isa, Matrix, MatrixMut, PackedMatrix};

/// Length of one block of the depth.
const DEPTH_BLOCK: usize = 256;
/// Values of X in one block of rows: 1 MiB, half of a second-level cache.
const ROW_BLOCK_VALUES: usize = 256 * 1024;
/// Largest tile height of any instruction set.
const MAX_TILE_ROWS: usize = 14;

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
    x: Vec<f32>,
}

/// One call of a micro-kernel: `rows` x 32 values of Y go on by `depth` steps of their sums.
struct Tile {
    /// `[depth, rows]`.
    x: *const f32,
    /// `[depth, 32]`, aligned to 64 bytes.
    w: *const f32,
    /// `[rows, 32]` with `y_stride`.
    y: *mut f32,
    y_stride: usize,
    depth: usize,
    /// Start from zero instead of the values of `y`.
    first: bool,
}

type Kernel = unsafe fn(&Tile);

/// The micro-kernels of an instruction set by number of rows, from one on.
fn kernels(isa: Isa) -> &'static [Kernel] {
    match isa.level() {
        Level::Portable => &portable::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &avx2::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &avx512::KERNELS,
    }
}

/// `y` `[m, n]` = `x` `[m, k]` · `w` `[n, k]`ᵀ with `epilogue`, all f32.
///
/// # Panics
/// If the shapes do not fit together.
///
/// # Precision
/// One rounding per step of the sum: the error of a value is at most `k · 2⁻²⁴ · Σ|x·w|`
/// (`a_product_stays_within_the_error_bound_of_its_sum`).
pub fn gemm(
    isa: Isa,
    x: Matrix<'_>,
    w: &PackedMatrix,
    epilogue: Epilogue<'_>,
    y: &mut MatrixMut<'_>,
    scratch: &mut GemmScratch,
) {
    let (m, n, k) = (x.rows(), w.outputs(), w.depth());
    assert!(x.columns() == k, "x has {} columns, w a depth of {k}", x.columns());
    assert!(y.rows() == m && y.columns() == n, "y is not {m} x {n}");
    if let Epilogue::Bias(b) | Epilogue::BiasGelu(b) | Epilogue::BiasResidual(b, _) = epilogue {
        assert!(b.len() == n, "the bias has {} values, not {n}", b.len());
    }
    if let Epilogue::BiasResidual(_, r) = epilogue {
        assert!(r.rows() == m && r.columns() == n, "the residual is not {m} x {n}");
    }
    let kernels = kernels(isa);
    let tile_rows = kernels.len();
    let block = (ROW_BLOCK_VALUES / k.max(1) / tile_rows).max(1) * tile_rows;
    for first_row in (0..m).step_by(block) {
        let rows = block.min(m - first_row);
        pack_rows(x, first_row, rows, tile_rows, &mut scratch.x);
        for p in 0..n.div_ceil(PANEL) {
            for from in (0..k.max(1)).step_by(DEPTH_BLOCK) {
                let depth = DEPTH_BLOCK.min(k - from);
                panel_step(kernels, &scratch.x, w, y, Step { first_row, rows, p, from, depth });
            }
            finish(isa, epilogue, y, first_row..first_row + rows, p * PANEL);
        }
    }
}

/// Copies rows `first..first + rows` of `x` into tiles of `tile_rows` rows, each `[k, rows of the tile]`.
fn pack_rows(x: Matrix<'_>, first: usize, rows: usize, tile_rows: usize, packed: &mut Vec<f32>) {
    let k = x.columns();
    if k == 0 {
        return; // sums of nothing: tiles without values
    }
    packed.resize(packed.len().max(rows * k), 0.0);
    for start in (0..rows).step_by(tile_rows) {
        let height = tile_rows.min(rows - start);
        let tile = &mut packed[start * k..][..height * k];
        for i in 0..height {
            for (to, &value) in tile[i..].iter_mut().step_by(height).zip(x.row(first + start + i)) {
                *to = value;
            }
        }
    }
}

/// A block of rows of Y and the part of a panel that it meets.
#[derive(Clone, Copy)]
struct Step {
    first_row: usize,
    rows: usize,
    p: usize,
    from: usize,
    depth: usize,
}

fn panel_step(kernels: &[Kernel], x: &[f32], w: &PackedMatrix, y: &mut MatrixMut<'_>, step: Step) {
    let Step { first_row, rows, p, from, depth } = step;
    let (k, tile_rows) = (w.depth(), kernels.len());
    let width = PANEL.min(y.columns() - p * PANEL);
    for start in (0..rows).step_by(tile_rows) {
        let height = tile_rows.min(rows - start);
        let row = first_row + start;
        let mut tile = Tile {
            x: x[start * k..][from * height..(from + depth) * height].as_ptr(),
            w: w.panel(p, from, depth),
            y: y.tile(row, p * PANEL, height, width),
            y_stride: y.stride(),
            depth,
            first: from == 0,
        };
        if width == PANEL {
            // SAFETY: `x` holds depth x height values, `w` depth x 32 (both checked above), `y` is
            // a height x 32 tile of its view, and the CPU has the kernel's features because an
            // `Isa` of its level exists. Nothing else refers to `y` during the call.
            unsafe { kernels[height - 1](&tile) };
        } else {
            let mut edge = [0.0; MAX_TILE_ROWS * PANEL];
            for i in 0..height {
                edge[i * PANEL..][..width].copy_from_slice(y.part(row + i, p * PANEL, width));
            }
            (tile.y, tile.y_stride) = (edge.as_mut_ptr(), PANEL);
            // SAFETY: as above; `edge` has room for the tallest tile.
            unsafe { kernels[height - 1](&tile) };
            for i in 0..height {
                y.part(row + i, p * PANEL, width).copy_from_slice(&edge[i * PANEL..][..width]);
            }
        }
    }
}

/// Applies `epilogue` to up to 32 columns from `column` of `rows` of `y`.
fn finish(
    isa: Isa,
    epilogue: Epilogue<'_>,
    y: &mut MatrixMut<'_>,
    rows: std::ops::Range<usize>,
    column: usize,
) {
    let width = PANEL.min(y.columns() - column);
    let columns = column..column + width;
    for i in rows {
        let values = y.part(i, column, width);
        match epilogue {
            Epilogue::None => return,
            Epilogue::Bias(bias) => add(isa, values, &bias[columns.clone()]),
            Epilogue::BiasGelu(bias) => add_gelu(isa, values, &bias[columns.clone()]),
            Epilogue::BiasResidual(bias, residual) => {
                add(isa, values, &bias[columns.clone()]);
                add(isa, values, &residual.row(i)[columns.clone()]);
            }
        }
    }
}

vectorized! { fn add(values: &mut [f32], addend: &[f32]) = add_body }

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn add_body(values: &mut [f32], addend: &[f32]) {
    for (value, &a) in values.iter_mut().zip(addend) {
        *value += a;
    }
}

vectorized! { fn add_gelu(values: &mut [f32], addend: &[f32]) = add_gelu_body }

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn add_gelu_body(values: &mut [f32], addend: &[f32]) {
    for (value, &a) in values.iter_mut().zip(addend) {
        *value = gelu_scalar(*value + a);
    }
}
