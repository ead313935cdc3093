//! bf16 micro-kernels on AVX-512 BF16: two steps an instruction, sums in f32.

use std::arch::x86_64::{
    __m512bh, __m512i, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_load_ps, _mm512_load_si512,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_store_ps,
};
use std::mem::transmute;

use super::method::{BLOCK, Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const KERNELS: [Kernel; 14] = by_rows!(kernel: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

/// # Safety
/// The CPU has AVX-512 BF16; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    let (mut x, mut w) = (tile.x.cast::<i32>(), tile.w);
    let mut done = 0;
    loop {
        let block = (BLOCK / 2).min(tile.units - done);
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            for first in (0..block).step_by(WORDS) {
                for step in 0..WORDS.min(block - first) {
                    let w0 = pairs(_mm512_load_si512(w.cast()));
                    let w1 = pairs(_mm512_load_si512(w.add(16).cast()));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let value = pairs(_mm512_set1_epi32(*x.add(i * WORDS + step)));
                        sum[0] = _mm512_dpbf16_ps(sum[0], value, w0);
                        sum[1] = _mm512_dpbf16_ps(sum[1], value, w1);
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

#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn pairs(words: __m512i) -> __m512bh {
    // SAFETY: two names of 512 bits.
    unsafe { transmute(words) }
}
