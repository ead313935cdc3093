//! AVX2 micro-kernels: a panel in two halves, up to 6 x 16 sums in 12 of 16 registers.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_castsi256_ps,
    _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_load_ps, _mm256_load_si256, _mm256_madd_epi16,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_slli_epi16, _mm256_srai_epi16, _mm256_srli_epi16, _mm256_store_ps, _mm256_store_si256,
};

use super::method::{Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const F32: [Kernel; 6] = by_rows!(f32_kernel: 1 2 3 4 5 6);
/// With AVX-VNNI.
pub(super) const INT8: [Kernel; 6] = by_rows!(int8_kernel: 1 2 3 4 5 6);
/// Without: products of 16 bits.
pub(super) const INT8_BY_PAIRS: [Kernel; 4] = by_rows!(pairs_kernel: 1 2 3 4);

/// # Safety
/// The CPU has AVX2 and FMA; the pointers of `tile` cover `ROWS` rows.
#[target_feature(enable = "avx2,fma")]
unsafe fn f32_kernel<const ROWS: usize>(tile: &Tile) {
    for half in [0, 16] {
        let mut done = 0;
        loop {
            let end = tile.units.min(done + tile.block);
            let first = tile.fresh && done == 0;
            let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
            // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
            unsafe {
                while done < end {
                    let (x, w) = operands::<ROWS>(tile, done, half);
                    let w = w.map(|w| _mm256_castsi256_ps(w));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let value = _mm256_castsi256_ps(_mm256_set1_epi32(*x.add(i * WORDS)));
                        sums[0] = _mm256_fmadd_ps(value, w[0], sums[0]);
                        sums[1] = _mm256_fmadd_ps(value, w[1], sums[1]);
                    }
                    done += 1;
                }
                for (i, sums) in sums.iter().enumerate() {
                    let to = tile.sums.add(i * 2 * WORDS + half);
                    let before = if first {
                        [_mm256_setzero_ps(); 2]
                    } else {
                        [_mm256_load_ps(to), _mm256_load_ps(to.add(8))]
                    };
                    _mm256_store_ps(to, _mm256_add_ps(before[0], sums[0]));
                    _mm256_store_ps(to.add(8), _mm256_add_ps(before[1], sums[1]));
                }
            }
            if done == tile.units {
                break;
            }
        }
    }
}

/// # Safety
/// The CPU has AVX-VNNI; the pointers of `tile` cover `ROWS` rows.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn int8_kernel<const ROWS: usize>(tile: &Tile) {
    for half in [0, 16] {
        let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            for unit in 0..tile.units {
                let (x, w) = operands::<ROWS>(tile, unit, half);
                for (i, sums) in sums.iter_mut().enumerate() {
                    let value = _mm256_set1_epi32(*x.add(i * WORDS));
                    sums[0] = _mm256_dpbusd_avx_epi32(sums[0], value, w[0]);
                    sums[1] = _mm256_dpbusd_avx_epi32(sums[1], value, w[1]);
                }
            }
            add(tile, half, &sums);
        }
    }
}

/// # Safety
/// The CPU has AVX2; the pointers of `tile` cover `ROWS` rows.
#[target_feature(enable = "avx2")]
unsafe fn pairs_kernel<const ROWS: usize>(tile: &Tile) {
    let low = _mm256_set1_epi16(0xff);
    for half in [0, 16] {
        let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            for unit in 0..tile.units {
                let (x, w) = operands::<ROWS>(tile, unit, half);
                // Bytes 0 and 2 of each word, then 1 and 3, as 16-bit numbers.
                let even = w.map(|w| _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w)));
                let odd = w.map(|w| _mm256_srai_epi16::<8>(w));
                for (i, sums) in sums.iter_mut().enumerate() {
                    let value = _mm256_set1_epi32(*x.add(i * WORDS));
                    let x_even = _mm256_and_si256(value, low);
                    let x_odd = _mm256_srli_epi16::<8>(value);
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(x_even, even[j]));
                        *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(x_odd, odd[j]));
                    }
                }
            }
            add(tile, half, &sums);
        }
    }
}

/// Word `unit` of the first row of X, and 16 columns of W at it.
///
/// # Safety
/// `unit` is one of `tile`'s, `half` 0 or 16.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn operands<const ROWS: usize>(
    tile: &Tile,
    unit: usize,
    half: usize,
) -> (*const i32, [__m256i; 2]) {
    // SAFETY: X holds whole groups of 16 words of each row, W 32 words of each unit.
    unsafe {
        let x = tile.x.add(unit / WORDS * ROWS * WORDS + unit % WORDS).cast();
        let w = tile.w.add(unit * 2 * WORDS + half).cast::<__m256i>();
        (x, [_mm256_load_si256(w), _mm256_load_si256(w.add(1))])
    }
}

/// Adds `sums` to 16 columns of those of `tile`.
///
/// # Safety
/// The sums of `tile` have `ROWS` rows, `half` is 0 or 16.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add<const ROWS: usize>(tile: &Tile, half: usize, sums: &[[__m256i; 2]; ROWS]) {
    for (i, sums) in sums.iter().enumerate() {
        // SAFETY: 16 values of row `i`, within its 32.
        unsafe {
            let to = tile.sums.add(i * 2 * WORDS + half).cast::<__m256i>();
            let before = if tile.fresh {
                [_mm256_setzero_si256(); 2]
            } else {
                [_mm256_load_si256(to), _mm256_load_si256(to.add(1))]
            };
            _mm256_store_si256(to, _mm256_add_epi32(before[0], sums[0]));
            _mm256_store_si256(to.add(1), _mm256_add_epi32(before[1], sums[1]));
        }
    }
}
