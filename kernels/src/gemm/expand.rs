//! Panels of bf16 and f16 in f32, for CPUs that do not multiply these formats.

use super::method::{Form, Method};
use crate::arithmetic::{bf16_value, f16_value};
use crate::isa::{inlined, vectorized};
use crate::packed::{Line, PANEL_LINES, WORDS};
use crate::{Arithmetic, Isa, PackedMatrix};

/// Panel `p` of `w` as the kernels of `method` read it, in `scratch` if it is not kept so.
pub(super) fn panel<'a>(
    isa: Isa,
    w: &'a PackedMatrix,
    p: usize,
    method: Method,
    scratch: &'a mut Vec<Line>,
) -> &'a [Line] {
    let Form::F32(arithmetic @ (Arithmetic::Bf16 | Arithmetic::F16)) = method.form else {
        return w.panel(p);
    };
    scratch.clear();
    scratch.resize(2 * w.units() * PANEL_LINES, Line::ZERO);
    if arithmetic == Arithmetic::Bf16 {
        expand_bf16(isa, w.panel(p), scratch);
    } else {
        scratch.truncate(w.units() * PANEL_LINES);
        // A panel of f16 is two of f32: the columns of one of its lines.
        expand_f16(isa, w.panel(p / 2).get(p % 2..).unwrap_or_default(), scratch);
    }
    scratch
}

vectorized! { fn expand_bf16(panel: &[Line], expanded: &mut [Line]) = expand_bf16_body }
vectorized! { fn expand_f16(panel: &[Line], expanded: &mut [Line]) = expand_f16_body }

inlined! {
    fn expand_bf16_body(panel: &[Line], expanded: &mut [Line]) {
        let (pairs, _) = panel.as_chunks::<PANEL_LINES>();
        let (steps, _) = expanded.as_chunks_mut::<{ 2 * PANEL_LINES }>();
        for (pair, steps) in pairs.iter().zip(steps) {
            for (i, line) in pair.iter().enumerate() {
                steps[i] = Line(line.0.map(|word| bf16_value(word & 0xffff).to_bits()));
                steps[PANEL_LINES + i] = Line(line.0.map(|word| bf16_value(word >> 16).to_bits()));
            }
        }
    }

    fn expand_f16_body(panel: &[Line], expanded: &mut [Line]) {
        let (steps, _) = expanded.as_chunks_mut::<PANEL_LINES>();
        for (line, step) in panel.iter().step_by(PANEL_LINES).zip(steps) {
            for (half, to) in step.iter_mut().enumerate() {
                let value = |i: usize| line.0[half * WORDS / 2 + i / 2] >> (i % 2 * 16) & 0xffff;
                *to = Line(std::array::from_fn(|i| f16_value(value(i)).to_bits()));
            }
        }
    }
}
