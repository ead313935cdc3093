//! AVX-512 micro-kernels: up to 14 x 32 values in 28 registers, two loads and one broadcast per row and step.

use std::arch::x86_64::{
    _mm512_fmadd_ps, _mm512_load_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use super::{Kernel, Tile};

pub(super) const KERNELS: [Kernel; 14] = [
    kernel::<1>,
    kernel::<2>,
    kernel::<3>,
    kernel::<4>,
    kernel::<5>,
    kernel::<6>,
    kernel::<7>,
    kernel::<8>,
    kernel::<9>,
    kernel::<10>,
    kernel::<11>,
    kernel::<12>,
    kernel::<13>,
    kernel::<14>,
];

/// # Safety
/// The CPU has AVX-512F; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx512f")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    // SAFETY: all reads and writes lie within the arrays that the caller vouches for: `y` ROWS
    // rows of 32 values, `x` depth x ROWS, `w` depth x 32 aligned to 64 bytes.
    unsafe {
        if !tile.first {
            for (i, sum) in sums.iter_mut().enumerate() {
                let y = tile.y.add(i * tile.y_stride);
                *sum = [_mm512_loadu_ps(y), _mm512_loadu_ps(y.add(16))];
            }
        }
        let (mut x, mut w) = (tile.x, tile.w);
        for _ in 0..tile.depth {
            let w0 = _mm512_load_ps(w);
            let w1 = _mm512_load_ps(w.add(16));
            for (i, sum) in sums.iter_mut().enumerate() {
                let value = _mm512_set1_ps(*x.add(i));
                sum[0] = _mm512_fmadd_ps(value, w0, sum[0]);
                sum[1] = _mm512_fmadd_ps(value, w1, sum[1]);
            }
            x = x.add(ROWS);
            w = w.add(32);
        }
        for (i, sum) in sums.iter().enumerate() {
            let y = tile.y.add(i * tile.y_stride);
            _mm512_storeu_ps(y, sum[0]);
            _mm512_storeu_ps(y.add(16), sum[1]);
        }
    }
}
