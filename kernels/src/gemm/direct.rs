//! One call of a micro-kernel on operands that are packed already, for attention.

use super::method::{BLOCK, Method, Tile};
use crate::matrix::Target;
use crate::packed::{Line, PANEL_LINES, WORDS};

/// The product of the `rows` packed rows of a tile and a panel, over `units` of the depth: `sums`
/// `[rows, columns of the panel]` f32. Not for int8.
///
/// # Panics
/// If an operand is too short.
pub(crate) fn multiply(
    method: Method,
    x: &[Line],
    panel: &[Line],
    units: usize,
    rows: usize,
    sums: &mut [Line],
) {
    assert!(x.len() >= units.div_ceil(WORDS) * rows, "X ends early");
    assert!(panel.len() >= units * PANEL_LINES, "W ends early");
    assert!(sums.len() * WORDS >= rows * method.panel, "no room for the sums");
    let tile = Tile {
        x: x.as_ptr().cast(),
        w: panel.as_ptr().cast(),
        sums: sums.as_mut_ptr().cast(),
        fresh: true,
        units,
        block: BLOCK / method.form.steps(),
        to: Target { start: std::ptr::null(), stride: 0, width: 0 },
        next: std::ptr::null(),
        fetches: 0,
    };
    // SAFETY: the operands are as long as `Tile` says (checked above), `sums` has room and is aligned
    // as lines are, and the CPU has the kernel's features because `method` was made from an `Isa`
    // that has them.
    unsafe { method.kernels[rows - 1](&tile) };
}
