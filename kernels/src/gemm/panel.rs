//! One panel of W and a block of rows of X.

use std::ops::Range;

use super::finish::{Columns, finish};
use super::method::{BLOCK, Form, Method, Sums, Tile};
use super::{GemmScratch, expand, parts};
use crate::packed::{PANEL_LINES, WORDS};
use crate::{Isa, MatrixMut, PackedMatrix};

/// Units of the depth that meet all tiles before the next ones: with those that are fetched
/// meanwhile a quarter of a megabyte.
const STRETCH: usize = 1024;

/// Panel `p` of `w`.
pub(super) struct Panel<'a> {
    pub(super) isa: Isa,
    pub(super) method: Method,
    pub(super) w: &'a PackedMatrix,
    pub(super) p: usize,
    /// Length of the sums as the kernels count it.
    pub(super) units: usize,
    pub(super) columns: Columns<'a>,
}

impl Panel<'_> {
    /// Its columns of `rows` of `y`; the rows of X are packed in `scratch`.
    pub(super) fn multiply(
        &self,
        rows: Range<usize>,
        y: &mut MatrixMut<'_>,
        scratch: &mut GemmScratch,
    ) {
        let tiles = rows.len().div_ceil(self.method.kernels.len());
        if scratch.sums.len() < tiles {
            scratch.sums.resize(tiles, Sums::ZERO);
        }
        let mut first = 0;
        loop {
            let depth = first..self.units.min(first + STRETCH);
            self.multiply_stretch(depth.clone(), rows.clone(), y, scratch);
            first = depth.end;
            if first == self.units {
                return;
            }
        }
    }

    fn multiply_stretch(
        &self,
        depth: Range<usize>,
        rows: Range<usize>,
        y: &mut MatrixMut<'_>,
        scratch: &mut GemmScratch,
    ) {
        let GemmScratch { x, scales, panel, sums } = scratch;
        let Method { form, kernels, .. } = self.method;
        let (kept, w) = expand::stretch(self, depth.clone(), panel);
        let (row_lines, groups) = (self.units.div_ceil(WORDS), depth.len().div_ceil(WORDS));
        let (fresh, last) = (depth.start == 0, depth.end == self.units);
        let tiles = rows.len().div_ceil(kernels.len());
        let fetches = kept.len().div_ceil((groups * tiles).max(1));
        for (t, tile_rows) in parts(rows.clone(), kernels.len()).enumerate() {
            let (start, height) = (tile_rows.start - rows.start, tile_rows.len());
            let from = start * row_lines + depth.start / WORDS * height;
            let x = &x[from..][..groups * height];
            // Sums that are final at once share their place, so that it stays in the cache.
            let sums = &mut sums[if fresh && last { 0 } else { t }];
            assert!(w.len() == depth.len() * PANEL_LINES && height <= kernels.len());
            let tile = Tile {
                x: x.as_ptr().cast(),
                w: w.as_ptr().cast(),
                sums: sums.0.as_mut_ptr().cast(),
                fresh,
                units: depth.len(),
                block: if form == Form::Int8 { STRETCH } else { BLOCK / form.steps() },
                to: y.target(tile_rows.start, self.columns.first, self.columns.width),
                next: kept.as_ptr_range().end.wrapping_add(t * fetches * groups).cast(),
                fetches,
            };
            // SAFETY: `x` and `w` are as long as `Tile` says (checked above), `sums` has room for
            // the tallest tile of the widest panel, and the CPU has the kernel's features because
            // `method` was made from an `Isa` that has them.
            unsafe { kernels[height - 1](&tile) };
            if last {
                let scales = scales.get(start..).unwrap_or_default();
                finish(self.isa, &self.columns, sums, scales, y, tile_rows);
            }
        }
    }
}
