//! Micro-panels of B in bf16 and f16 unpacked to f32, for CPUs that do not multiply these formats.

use std::ops::Range;

use super::kernel::Variant;
use super::micro_kernel::{CacheLine, PANEL_LINES, WORDS};
use super::pack_b::PackedMatrix;
use crate::cpu::isa::vectorized;
use crate::cpu::precision::{bf16_value, f16_value};
use crate::{Isa, Precision};

/// The units `k` of micro-panel `p` of `b` as `b` keeps them and, unpacked into `scratch` if need be, as
/// the micro-kernels of `variant` read them.
pub(super) fn unpack<'a>(
    isa: Isa,
    variant: Variant,
    (b, p): (&'a PackedMatrix, usize),
    k: Range<usize>,
    scratch: &'a mut Vec<CacheLine>,
) -> (&'a [CacheLine], &'a [CacheLine]) {
    let Variant::F32(precision @ (Precision::Bf16 | Precision::F16)) = variant else {
        let kept = &b.panel(p)[k.start * PANEL_LINES..k.end * PANEL_LINES];
        return (kept, kept);
    };
    let lines = k.len() * PANEL_LINES;
    if scratch.len() < lines {
        scratch.resize(lines, CacheLine::ZERO);
    }
    let unpacked = &mut scratch[..lines];
    if precision == Precision::Bf16 {
        // A line holds two values of k.
        let kept = &b.panel(p)[k.start * PANEL_LINES / 2..k.end * PANEL_LINES / 2];
        unpack_bf16(isa, kept, unpacked);
        (kept, unpacked)
    } else {
        // A panel of f16 is two of f32: the columns of one of its lines.
        let kept = &b.panel(p / 2)[k.start * PANEL_LINES..k.end * PANEL_LINES];
        unpack_f16(isa, kept.get(p % 2..).unwrap_or_default(), unpacked);
        (kept, unpacked)
    }
}

vectorized! {
    fn unpack_bf16(panel: &[CacheLine], unpacked: &mut [CacheLine]) {
        // A secret from the compiler, which would unroll the loops below and not vectorise them.
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
}

vectorized! {
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
