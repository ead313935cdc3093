//! A panel in two halves, up to 6 x 16 values in 12 registers.

use std::arch::x86_64::{
    _mm256_add_ps, _mm256_fmadd_ps, _mm256_load_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_store_ps,
};

use crate::gemm::method::{BLOCK, Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const KERNELS: [Kernel; 6] = by_rows!(kernel: 1 2 3 4 5 6);

/// # Safety
/// The CPU has AVX2 and FMA; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx2,fma")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    for half in [0, 16] {
        let mut done = 0;
        loop {
            let block = BLOCK.min(tile.units - done);
            let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
            // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
            unsafe {
                for step in done..done + block {
                    let x = tile.x.add(step / WORDS * ROWS * WORDS + step % WORDS).cast::<f32>();
                    let w = tile.w.add(step * 32 + half).cast();
                    let w0 = _mm256_load_ps(w);
                    let w1 = _mm256_load_ps(w.add(8));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let value = _mm256_set1_ps(*x.add(i * WORDS));
                        sum[0] = _mm256_fmadd_ps(value, w0, sum[0]);
                        sum[1] = _mm256_fmadd_ps(value, w1, sum[1]);
                    }
                }
                for (i, sum) in sums.iter().enumerate() {
                    for (j, sum) in sum.iter().enumerate() {
                        let to = tile.sums.add(i * 32 + half + j * 8);
                        let before =
                            if done == 0 { _mm256_setzero_ps() } else { _mm256_load_ps(to) };
                        _mm256_store_ps(to, _mm256_add_ps(before, *sum));
                    }
                }
            }
            done += block;
            if done == tile.units {
                break;
            }
        }
    }
}
