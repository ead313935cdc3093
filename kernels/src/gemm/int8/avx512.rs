//! AVX-512 VNNI: up to 14 x 32 sums in 28 registers, four steps an instruction.

use std::arch::x86_64::{
    _mm512_dpbusd_epi32, _mm512_load_si512, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_store_si512,
};

use crate::gemm::method::{Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const KERNELS: [Kernel; 14] = by_rows!(kernel: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

/// # Safety
/// The CPU has AVX-512 VNNI; the pointers of `tile` cover `ROWS` rows as described there.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    let (mut x, mut w) = (tile.x.cast::<i32>(), tile.w);
    let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
    // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
    unsafe {
        for first in (0..tile.units).step_by(WORDS) {
            for step in 0..WORDS.min(tile.units - first) {
                let w0 = _mm512_load_si512(w.cast());
                let w1 = _mm512_load_si512(w.add(16).cast());
                for (i, sum) in sums.iter_mut().enumerate() {
                    let value = _mm512_set1_epi32(*x.add(i * WORDS + step));
                    sum[0] = _mm512_dpbusd_epi32(sum[0], value, w0);
                    sum[1] = _mm512_dpbusd_epi32(sum[1], value, w1);
                }
                w = w.add(32);
            }
            x = x.add(ROWS * WORDS);
        }
        for (i, sum) in sums.iter().flatten().enumerate() {
            _mm512_store_si512(tile.sums.add(i * 16).cast(), *sum);
        }
    }
}
