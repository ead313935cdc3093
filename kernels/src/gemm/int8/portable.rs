//! What every CPU can run; also the definition of what the others compute.

use crate::gemm::method::{Kernel, Tile, by_rows};
use crate::packed::WORDS;

pub(super) const KERNELS: [Kernel; 4] = by_rows!(kernel: 1 2 3 4);

/// # Safety
/// The pointers of `tile` cover `ROWS` rows as described there.
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
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
        sums.copy_from_slice(&totals);
    }
}
