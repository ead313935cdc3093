//! The micro-kernels over one micro-panel of B and a block of rows of A, then the epilogue. B is
//! unpacked to f32 on CPUs that do not multiply bf16 or f16, and rearranged for products by blocks.

use std::ops::Range;

use super::epilogue::{self, EpilogueColumns};
use super::kernel::{Kernel, Variant};
use super::micro_kernel::{CHAIN, CacheLine, MicroKernelArgs, MicroTile, PANEL_LINES, WORDS};
use super::pack_a::PackedRows;
use super::pack_b::PackedMatrix;
use crate::cpu::isa::vectorized;
use crate::cpu::precision::{bf16_value, f16_value};
use crate::{Isa, MatrixMut, Precision};

/// Memory that [`gemm`](crate::gemm) reuses between calls.
#[derive(Debug, Default)]
pub struct GemmScratch {
    pub(super) a: PackedRows,
    /// KC units of a micro-panel of B, if it is stored in a smaller format.
    unpacked: Vec<CacheLine>,
    /// Sums of the micro-panels of a block of rows.
    sums: Vec<MicroTile>,
}

/// Multiplies A in `scratch` with micro-panel `p` of `b` into `columns` of `rows` of `c`.
pub(super) fn multiply(
    isa: Isa,
    kernel: Kernel,
    (b, p): (&PackedMatrix, usize),
    columns: &EpilogueColumns<'_>,
    rows: &Range<usize>,
    c: &mut MatrixMut<'_>,
    scratch: &mut GemmScratch,
) {
    let Kernel { variant, kc, .. } = kernel;
    let (mr, units) = (kernel.mr(), kernel.units(b.k()));
    let GemmScratch { a, unpacked, sums } = scratch;
    let (row_lines, tiles) = (units.div_ceil(WORDS), rows.len().div_ceil(mr));
    sums.resize_with(sums.len().max(tiles), || MicroTile::ZERO);
    // Even without units of k, one block runs: it writes sums of 0.
    for first in (0..units.max(1)).step_by(kc) {
        let k = first..units.min(first + kc);
        let (kept, b) = unpack(isa, kernel, (b, p), k.clone(), unpacked);
        let groups = k.len().div_ceil(WORDS);
        let (first, last) = (k.start == 0, k.end == units);
        let fetches = kept.len().div_ceil((groups * tiles).max(1));
        for (t, tile_rows) in kernel.split(rows.clone(), mr).enumerate() {
            let start = tile_rows.start - rows.start;
            let height = kernel.height(tile_rows.len());
            let from = start * row_lines + k.start / WORDS * height;
            let a_panel = &a.lines[from..][..groups * height];
            // Sums that are complete after one block share one tile, which stays in the cache.
            let sums = &mut sums[if first && last { 0 } else { t }];
            assert!(b.len() == variant.panel_lines(k.len()) && height <= mr);
            let chain = if variant.is_integer() { kc } else { CHAIN / variant.k_per_unit() };
            let args = MicroKernelArgs {
                a: a_panel.as_ptr().cast(),
                b: b.as_ptr(),
                c: (&raw mut *sums).cast(),
                overwrite: first,
                units: k.len(),
                chain,
                target: c.target(tile_rows.start, columns.first),
                target_width: columns.width,
                target_stride: c.stride,
                next: kept.as_ptr_range().end.wrapping_add(t * fetches * groups),
                fetches,
            };
            // SAFETY: `a` and `b` are as long as the arguments say (checked above), `sums` has room
            // for the tallest tile of the widest panel, the CPU has the kernel's features because
            // `kernel` was made from an `Isa` that has them, and `gemm` has prepared it.
            unsafe { kernel.micro_kernel(height)(&args) };
            if last {
                let quantised = a.rows.get(start..).unwrap_or_default();
                epilogue::apply(isa, columns, sums, quantised, c, tile_rows);
            }
        }
    }
}

/// Returns the units `k` of micro-panel `p` of `b` twice: as `b` stores them, and as the
/// micro-kernels read them, unpacked into `scratch` if necessary.
fn unpack<'a>(
    isa: Isa,
    Kernel { variant, kc, .. }: Kernel,
    (b, p): (&'a PackedMatrix, usize),
    k: Range<usize>,
    scratch: &'a mut Vec<CacheLine>,
) -> (&'a [CacheLine], &'a [CacheLine]) {
    let lines = k.start * PANEL_LINES..k.end * PANEL_LINES;
    // A line of bf16 holds as many values of k as two lines that are unpacked. A panel of f16 is
    // two panels of f32; each of its lines has the columns of one.
    let kept = match variant {
        Variant::F32(Precision::Bf16) => &b.panel(p)[lines.start / 2..lines.end / 2],
        Variant::F32(Precision::F16) => &b.panel(p / 2)[lines.clone()],
        Variant::Int8Blocks | Variant::Bf16Blocks => &b.panel(p)[lines.clone()],
        _ => {
            let headers = k.start / kc * variant.header_lines();
            let kept = &b.panel(p)[lines.start + headers..][..variant.panel_lines(k.len())];
            return (kept, kept);
        }
    };
    let length = variant.panel_lines(k.len());
    scratch.resize(scratch.len().max(length), CacheLine::ZERO);
    let unpacked = &mut scratch[..length];
    match variant {
        Variant::Int8Blocks | Variant::Bf16Blocks => rearrange(isa, kept, unpacked),
        Variant::F32(Precision::Bf16) => unpack_bf16(isa, kept, unpacked),
        _ => unpack_f16(isa, kept.get(p % 2..).unwrap_or_default(), unpacked),
    }
    (kept, unpacked)
}

vectorized! {
    /// Writes each word's halves into one line and the next one of the same columns, as f32.
    fn unpack_bf16(panel: &[CacheLine], unpacked: &mut [CacheLine]) {
        // Hidden from the compiler, which would unroll the loops below instead of vectorising them.
        let width = std::hint::black_box(WORDS);
        let (steps, _) = unpacked.as_chunks_mut::<{ 2 * PANEL_LINES }>();
        for (pairs, steps) in panel.as_chunks::<PANEL_LINES>().0.iter().zip(steps) {
            let (even, odd) = steps.split_at_mut(PANEL_LINES);
            for ((pairs, even), odd) in pairs.iter().zip(even).zip(odd) {
                for (pair, even) in pairs.0[..width].iter().zip(&mut even.0) {
                    *even = bf16_value(*pair).to_bits();
                }
                for (pair, odd) in pairs.0[..width].iter().zip(&mut odd.0) {
                    *odd = bf16_value(pair >> 16).to_bits();
                }
            }
        }
    }

    /// Rearranges `[units / 2, 2, 32]` words to `[units / 2, 32, 2]`.
    fn rearrange(panel: &[CacheLine], blocks: &mut [CacheLine]) {
        let blocks = blocks.as_chunks_mut::<{ 2 * PANEL_LINES }>().0;
        for (units, blocks) in panel.as_chunks::<{ 2 * PANEL_LINES }>().0.iter().zip(blocks) {
            for (i, block) in blocks.iter_mut().enumerate() {
                let columns = i % 2 * WORDS / 2..;
                let (even, odd) = (&units[i / 2].0[columns.clone()], &units[i / 2 + 2].0[columns]);
                for ((pair, even), odd) in block.0.as_chunks_mut().0.iter_mut().zip(even).zip(odd) {
                    *pair = [*even, *odd];
                }
            }
        }
    }

    /// Writes the halves of the words of every second line as f32: the columns of two lines.
    fn unpack_f16(panel: &[CacheLine], unpacked: &mut [CacheLine]) {
        let (steps, _) = unpacked.as_chunks_mut::<PANEL_LINES>();
        for (line, step) in panel.iter().step_by(PANEL_LINES).zip(steps) {
            let mut halves = [0; 2 * WORDS];
            for (pair, word) in halves.as_chunks_mut().0.iter_mut().zip(line.0) {
                *pair = [word as u16, (word >> 16) as u16];
            }
            for (to, halves) in step.iter_mut().zip(halves.as_chunks::<WORDS>().0) {
                for (to, &half) in to.0.iter_mut().zip(halves) {
                    *to = f16_value(u32::from(half)).to_bits();
                }
            }
        }
    }
}
