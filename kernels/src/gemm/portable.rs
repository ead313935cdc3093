//! Micro-kernels that every CPU can run; also the definition of what the others compute.

use super::method::{Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const F32: [Kernel; 4] = by_rows!(f32_kernel: 1 2 3 4);
pub(super) const INT8: [Kernel; 4] = by_rows!(int8_kernel: 1 2 3 4);

/// Columns whose sums stay in registers: 4 x 16 values fill half of NEON's.
const COLUMNS: usize = 16;

/// # Safety
/// The pointers of `tile` cover `ROWS` rows.
unsafe fn f32_kernel<const ROWS: usize>(tile: &Tile) {
    // SAFETY: the caller vouches for `units` x 32 words of W and for ROWS x 32 sums.
    let (w, sums) = unsafe {
        (
            std::slice::from_raw_parts(tile.w.cast::<f32>(), tile.units * 32),
            std::slice::from_raw_parts_mut(tile.sums, ROWS * 32),
        )
    };
    // SAFETY: and for whole groups of 16 words for each row of X.
    let x = unsafe {
        std::slice::from_raw_parts(tile.x.cast::<f32>(), tile.units.div_ceil(WORDS) * ROWS * WORDS)
    };
    if tile.fresh {
        sums.fill(0.0);
    }
    for first in (0..32).step_by(COLUMNS) {
        for (block, w) in w.chunks(tile.block * 32).enumerate() {
            let mut chains = [[0.0; COLUMNS]; ROWS];
            for (step, w) in w.chunks_exact(32).enumerate() {
                let step = block * tile.block + step;
                let x = &x[step / WORDS * ROWS * WORDS + step % WORDS..];
                for (i, chain) in chains.iter_mut().enumerate() {
                    for (sum, &w) in chain.iter_mut().zip(&w[first..first + COLUMNS]) {
                        *sum = x[i * WORDS].mul_add(w, *sum);
                    }
                }
            }
            for (chain, row) in chains.iter().zip(sums.chunks_exact_mut(32)) {
                for (value, sum) in row[first..].iter_mut().zip(chain) {
                    *value += sum;
                }
            }
        }
    }
}

/// # Safety
/// The pointers of `tile` cover `ROWS` rows.
unsafe fn int8_kernel<const ROWS: usize>(tile: &Tile) {
    // SAFETY: the caller vouches for `units` x 32 words of W and for ROWS x 32 sums.
    let (w, sums) = unsafe {
        (
            std::slice::from_raw_parts(tile.w, tile.units * 32),
            std::slice::from_raw_parts_mut(tile.sums.cast::<i32>(), ROWS * 32),
        )
    };
    // SAFETY: and for whole groups of 16 words for each row of X.
    let x =
        unsafe { std::slice::from_raw_parts(tile.x, tile.units.div_ceil(WORDS) * ROWS * WORDS) };
    for (i, sums) in sums.chunks_exact_mut(32).enumerate() {
        let mut totals = [0; 32];
        for (unit, w) in w.chunks_exact(32).enumerate() {
            let x = x[(unit / WORDS * ROWS + i) * WORDS + unit % WORDS].to_le_bytes();
            for (total, &w) in totals.iter_mut().zip(w) {
                let w = w.to_le_bytes().map(u8::cast_signed);
                for (x, w) in x.into_iter().zip(w) {
                    *total += i32::from(x) * i32::from(w);
                }
            }
        }
        if tile.fresh {
            sums.fill(0);
        }
        for (sum, total) in sums.iter_mut().zip(totals) {
            *sum += total;
        }
    }
}
