//! AVX2 and FMA micro-kernels: a panel in two halves, up to 6 x 16 values in 12 registers.

use std::arch::x86_64::{
    _mm256_fmadd_ps, _mm256_load_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{Kernel, Tile};

pub(super) const KERNELS: [Kernel; 6] =
    [kernel::<1>, kernel::<2>, kernel::<3>, kernel::<4>, kernel::<5>, kernel::<6>];

/// # Safety
/// The CPU has AVX2 and FMA; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx2,fma")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    for half in [0, 16] {
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for: `y` ROWS
        // rows of 32 values, `x` depth x ROWS, `w` depth x 32 aligned to 64 bytes.
        unsafe {
            if !tile.first {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let y = tile.y.add(i * tile.y_stride + half);
                    *sum = [_mm256_loadu_ps(y), _mm256_loadu_ps(y.add(8))];
                }
            }
            let (mut x, mut w) = (tile.x, tile.w.add(half));
            for _ in 0..tile.depth {
                let w0 = _mm256_load_ps(w);
                let w1 = _mm256_load_ps(w.add(8));
                for (i, sum) in sums.iter_mut().enumerate() {
                    let value = _mm256_set1_ps(*x.add(i));
                    sum[0] = _mm256_fmadd_ps(value, w0, sum[0]);
                    sum[1] = _mm256_fmadd_ps(value, w1, sum[1]);
                }
                x = x.add(ROWS);
                w = w.wrapping_add(32);
            }
            for (i, sum) in sums.iter().enumerate() {
                let y = tile.y.add(i * tile.y_stride + half);
                _mm256_storeu_ps(y, sum[0]);
                _mm256_storeu_ps(y.add(8), sum[1]);
            }
        }
    }
}
