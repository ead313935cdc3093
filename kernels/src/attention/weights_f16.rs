//! The weights of softmax in f16, for the products of AVX512-FP16.

use std::arch::x86_64::{
    _mm512_add_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_load_ps, _mm512_loadu_ps,
    _mm512_max_ps, _mm512_scalef_ps, _mm512_set1_ps, _mm512_storeu_ps, _mm512_sub_ps,
};

use super::Softmax;
use super::pack_f16::store_twice;
use crate::Isa;
use crate::exp2::{LOWEST, ROUND};
use crate::packed::Line;

/// Of `(2^r - 1) / r`, a tenth of f16's rounding off; see coefficients.py.
const POLYNOMIAL: [f32; 4] = [0.693_124_1, 0.240_240_99, 0.055_906_44, 0.009_582_845];

/// The powers of `scores` `[rows, panel]` as packed rows, each twice in a word; their sums go to
/// `softmax`.
pub(super) fn weigh(
    isa: Isa,
    scores: &[Line],
    weights: &mut [Line],
    rows: usize,
    softmax: &mut Softmax,
) {
    assert!(isa.units().fp16, "the CPU multiplies f16");
    // SAFETY: it has AVX512-FP16, which includes AVX-512F.
    unsafe { weigh_avx512(scores, weights, rows, softmax) };
}

#[target_feature(enable = "avx512f")]
fn weigh_avx512(scores: &[Line], weights: &mut [Line], rows: usize, softmax: &mut Softmax) {
    let (scale, lowest) = (_mm512_set1_ps(softmax.scale), _mm512_set1_ps(LOWEST / softmax.scale));
    let round = _mm512_set1_ps(ROUND);
    for (i, scores) in scores.chunks_exact(scores.len() / rows).enumerate() {
        let largest = _mm512_set1_ps(softmax.largest[i]);
        let lanes = &mut softmax.sums[i];
        // SAFETY: 16 values.
        let mut sum = unsafe { _mm512_loadu_ps(lanes.as_ptr()) };
        for (weights, line) in weights[i..].iter_mut().step_by(rows).zip(scores) {
            // SAFETY: a line holds 16 values and is aligned to 64 bytes.
            let score = unsafe { _mm512_load_ps(line.0.as_ptr().cast()) };
            // Of a number and NaN, `max` takes the second operand.
            let x = _mm512_max_ps(lowest, _mm512_sub_ps(score, largest));
            let n = _mm512_sub_ps(_mm512_fmadd_ps(x, scale, round), round);
            let r = _mm512_fmsub_ps(x, scale, n);
            let mut p = _mm512_set1_ps(POLYNOMIAL[3]);
            for coefficient in [POLYNOMIAL[2], POLYNOMIAL[1], POLYNOMIAL[0], 1.0] {
                p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(coefficient));
            }
            let power = _mm512_scalef_ps(p, n);
            sum = _mm512_add_ps(sum, power);
            store_twice(power, weights);
        }
        // SAFETY: 16 values.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sum) };
    }
}
