//! f16 micro-kernels on AVX-512 FP16: up to 14 x 64 values in 28 registers, chains of a block in f16.

use std::arch::x86_64::{
    __m512h, _mm512_add_ps, _mm512_castph_ps, _mm512_castps_ph, _mm512_castps_si512,
    _mm512_castsi512_si256, _mm512_cvtph_ps, _mm512_extracti64x4_epi64, _mm512_fmadd_ph,
    _mm512_load_ps, _mm512_set1_ps, _mm512_setzero_ph, _mm512_setzero_ps, _mm512_store_ps,
};

use super::method::{BLOCK, Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const KERNELS: [Kernel; 14] = by_rows!(kernel: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

/// # Safety
/// The CPU has AVX-512 FP16; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx512f,avx512fp16")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    let (mut x, mut w): (*const f32, *const f32) = (tile.x.cast(), tile.w.cast());
    let mut done = 0;
    loop {
        let block = BLOCK.min(tile.units - done);
        let mut sums = [[_mm512_setzero_ph(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            for first in (0..block).step_by(WORDS) {
                for step in 0..WORDS.min(block - first) {
                    let w0 = _mm512_castps_ph(_mm512_load_ps(w));
                    let w1 = _mm512_castps_ph(_mm512_load_ps(w.add(16)));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        // A word is the value twice.
                        let value = _mm512_castps_ph(_mm512_set1_ps(*x.add(i * WORDS + step)));
                        sum[0] = _mm512_fmadd_ph(value, w0, sum[0]);
                        sum[1] = _mm512_fmadd_ph(value, w1, sum[1]);
                    }
                    w = w.add(32);
                }
                x = x.add(ROWS * WORDS);
            }
            for (i, &sum) in sums.iter().flatten().enumerate() {
                add(tile.sums.add(i * 32), sum, done == 0);
            }
        }
        done += block;
        if done == tile.units {
            return;
        }
    }
}

/// Adds `sum` to the 32 values at `to`, or to zero.
///
/// # Safety
/// `to` has room for them and is aligned to 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512fp16")]
unsafe fn add(to: *mut f32, sum: __m512h, first: bool) {
    let bits = _mm512_castps_si512(_mm512_castph_ps(sum));
    let halves = [_mm512_castsi512_si256(bits), _mm512_extracti64x4_epi64::<1>(bits)];
    for (i, half) in halves.into_iter().enumerate() {
        // SAFETY: 16 of the 32 values.
        unsafe {
            let to = to.add(i * 16);
            let before = if first { _mm512_setzero_ps() } else { _mm512_load_ps(to) };
            _mm512_store_ps(to, _mm512_add_ps(before, _mm512_cvtph_ps(half)));
        }
    }
}
