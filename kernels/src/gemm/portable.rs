//! The micro-kernel that every CPU can run; also the definition of what the others compute.

use super::{Kernel, Tile};
use crate::packed::PANEL;

pub(super) const KERNELS: [Kernel; 4] = [kernel::<1>, kernel::<2>, kernel::<3>, kernel::<4>];

/// # Safety
/// The pointers of `tile` cover `ROWS` rows as described there.
unsafe fn kernel<const ROWS: usize>(tile: &Tile) {
    // SAFETY: the caller vouches for depth x ROWS values of `x` and depth x 32 of `w`.
    let (x, w) = unsafe {
        (
            std::slice::from_raw_parts(tile.x, tile.depth * ROWS),
            std::slice::from_raw_parts(tile.w, tile.depth * PANEL),
        )
    };
    for i in 0..ROWS {
        // SAFETY: row `i` of `y` has 32 values that nothing else refers to.
        let y = unsafe { std::slice::from_raw_parts_mut(tile.y.add(i * tile.y_stride), PANEL) };
        if tile.first {
            y.fill(0.0);
        }
        for (x, w) in x.chunks_exact(ROWS).zip(w.chunks_exact(PANEL)) {
            for (sum, &w) in y.iter_mut().zip(w) {
                *sum = x[i].mul_add(w, *sum);
            }
        }
    }
}
