//! Up to 14 x 32 values in 28 registers: two loads and one broadcast per row and step.

use std::arch::x86_64::{
    _mm512_add_ps, _mm512_fmadd_ps, _mm512_load_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_store_ps,
};

use crate::gemm::method::{BLOCK, Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const KERNELS: [Kernel; 14] = by_rows!(kernel: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

/// # Safety
/// The CPU has AVX-512F; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx512f")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    let (mut x, mut w): (*const f32, *const f32) = (tile.x.cast(), tile.w.cast());
    let mut done = 0;
    loop {
        let block = BLOCK.min(tile.units - done);
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            for first in (0..block).step_by(WORDS) {
                for step in 0..WORDS.min(block - first) {
                    let w0 = _mm512_load_ps(w);
                    let w1 = _mm512_load_ps(w.add(16));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let value = _mm512_set1_ps(*x.add(i * WORDS + step));
                        sum[0] = _mm512_fmadd_ps(value, w0, sum[0]);
                        sum[1] = _mm512_fmadd_ps(value, w1, sum[1]);
                    }
                    w = w.add(32);
                }
                x = x.add(ROWS * WORDS);
            }
            for (i, sum) in sums.iter().flatten().enumerate() {
                let to = tile.sums.add(i * 16);
                let before = if done == 0 { _mm512_setzero_ps() } else { _mm512_load_ps(to) };
                _mm512_store_ps(to, _mm512_add_ps(before, *sum));
            }
        }
        done += block;
        if done == tile.units {
            return;
        }
    }
}
