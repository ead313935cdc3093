//! Panels of bf16 and f16 in f32, for CPUs that do not multiply these formats.

use std::ops::Range;

use super::method::Form;
use super::panel::Panel;
use crate::Precision;
use crate::isa::{inlined, vectorized};
use crate::packed::{Line, PANEL_LINES, WORDS};
use crate::precision::{bf16_value, f16_value};

/// The units `depth` of `panel` as W keeps them and, expanded into `scratch` if need be, as the
/// kernels read them.
pub(super) fn stretch<'a>(
    panel: &Panel<'a>,
    depth: Range<usize>,
    scratch: &'a mut Vec<Line>,
) -> (&'a [Line], &'a [Line]) {
    let Panel { isa, w, p, .. } = *panel;
    let Form::F32(precision @ (Precision::Bf16 | Precision::F16)) = panel.method.form else {
        let kept = &w.panel(p)[depth.start * PANEL_LINES..depth.end * PANEL_LINES];
        return (kept, kept);
    };
    let lines = depth.len() * PANEL_LINES;
    if scratch.len() < lines {
        scratch.resize(lines, Line::ZERO);
    }
    let expanded = &mut scratch[..lines];
    if precision == Precision::Bf16 {
        // A line holds two steps.
        let kept = &w.panel(p)[depth.start * PANEL_LINES / 2..depth.end * PANEL_LINES / 2];
        expand_bf16(isa, kept, expanded);
        (kept, expanded)
    } else {
        // A panel of f16 is two of f32: the columns of one of its lines.
        let kept = &w.panel(p / 2)[depth.start * PANEL_LINES..depth.end * PANEL_LINES];
        expand_f16(isa, kept.get(p % 2..).unwrap_or_default(), expanded);
        (kept, expanded)
    }
}

vectorized! { fn expand_bf16(panel: &[Line], expanded: &mut [Line]) = expand_bf16_body }
vectorized! { fn expand_f16(panel: &[Line], expanded: &mut [Line]) = expand_f16_body }

inlined! {
    fn expand_bf16_body(panel: &[Line], expanded: &mut [Line]) {
        // A secret from the compiler, which would unroll the loops below and not vectorise them.
        let width = std::hint::black_box(WORDS);
        let (steps, _) = expanded.as_chunks_mut::<{ 2 * PANEL_LINES }>();
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

    fn expand_f16_body(panel: &[Line], expanded: &mut [Line]) {
        let (steps, _) = expanded.as_chunks_mut::<PANEL_LINES>();
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
