//! `Y = X · Wᵀ` with a fused epilogue (bias, GELU, residual), built as in BLIS: A = X, B = Wᵀ.
//!
//! A value of the product is the sum, first to last, of chains over values of k; each chain starts
//! from zero (AMX has chains of its own: tests/amx_portable.rs). So a value does not depend on the
//! number of rows or on the row's place, and in f32 and int8 not on the instruction set.
//!
//! Blocking: a block of rows of A is packed (and rounded or quantised) into micro-panels that stay
//! in a cache. Each micro-panel of B is multiplied with all of them, KC units of k at a time, while
//! its next units are prefetched. Unfinished sums stay in registers and the first-level cache.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod epilogue;
pub(crate) mod kernel;
mod macro_kernel;
pub(crate) mod micro_kernel;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod pack_a;
pub(crate) mod pack_b;
mod portable;
#[cfg(test)]
mod tests;

pub use self::epilogue::Epilogue;
use self::epilogue::EpilogueColumns;
use self::kernel::{Kernel, Variant};
pub use self::macro_kernel::GemmScratch;
use self::macro_kernel::multiply;
use self::micro_kernel::{CacheLine, WORDS};
use crate::{Isa, Matrix, MatrixMut, PackedMatrix};

/// Computes `y` `[m, n]` = `x` `[m, k]` · `w` `[n, k]`ᵀ with `epilogue`, in the precision of `w`.
///
/// A row of `x` that is not finite makes the same row of `y` not finite, and no other. `w` was
/// packed for `isa`.
///
/// # Precision
/// With `u = 2⁻²⁴` and chains of `b = 128` values, the maximum error of a value is
/// - f32: `(b + k / b) · u · Σ|x·w|`;
/// - bf16: as f32, plus `2⁻⁷ · Σ|x·w|` for the rounded factors; with AMX `b = 32`, and values below
///   2⁻¹²⁶ count as 0;
/// - f16: as f32, plus `2⁻¹⁰ · Σ|x·w|`; if sums are in f16, plus `b · 2⁻¹¹ · Σ|x·w|`;
/// - int8: half a unit of each factor, after the mean is subtracted.
pub fn gemm(
    isa: Isa,
    x: Matrix<'_>,
    w: &PackedMatrix,
    epilogue: Epilogue<'_>,
    y: &mut MatrixMut<'_>,
    scratch: &mut GemmScratch,
) {
    check_shapes(x, w, epilogue, y);
    let kernel = Kernel::new(isa, w.precision);
    assert!(w.in_fours == (kernel.variant == Variant::Int8Sums), "w was packed for another CPU");
    #[cfg(target_arch = "x86_64")]
    let _prepared = kernel.prepare(isa);
    let units = kernel.units(x.columns());
    let row_lines = units.div_ceil(WORDS);
    let lines = kernel.block_bytes(isa) / size_of::<CacheLine>();
    let mc = (lines / row_lines.max(1) / kernel.mr()).max(1) * kernel.mr();
    for rows in kernel.split(0..x.rows(), mc) {
        scratch.a.pack(isa, kernel, (x, &w.channels), kernel.split(rows.clone(), kernel.mr()));
        for p in 0..w.outputs().div_ceil(kernel.nr) {
            let columns = EpilogueColumns::new(epilogue, (w, p), kernel);
            multiply(isa, kernel, (w, p), &columns, &rows, y, scratch);
        }
    }
}

/// Panics unless the shapes of all operands fit.
fn check_shapes(x: Matrix<'_>, w: &PackedMatrix, epilogue: Epilogue<'_>, y: &MatrixMut<'_>) {
    let (m, n, k) = (x.rows(), w.outputs(), w.k());
    assert!(x.columns() == k, "x has {} columns, w {k}", x.columns());
    assert!(y.rows == m && y.columns == n, "y is not {m} x {n}");
    if let Epilogue::Bias(b) | Epilogue::BiasGelu(b) | Epilogue::BiasResidual(b, _) = epilogue {
        assert!(b.len() == n, "the bias has {} values, not {n}", b.len());
    }
    if let Epilogue::BiasResidual(_, r) = epilogue {
        assert!(r.rows() == m && r.columns() == n, "the residual is not {m} x {n}");
    }
}
