//! From scores to the weights of softmax, which are not divided by their sum yet.

use super::Softmax;
use crate::exp2::{LOWEST, exp2_scalar};
use crate::isa::{inlined, vectorized};
use crate::packed::{Line, WORDS};
use crate::precision::bf16_bits;

vectorized! {
    /// Raises the largest of each of `rows` rows to those of `scores`; NaN is passed over.
    pub(super) fn raise(scores: &[Line], rows: usize, softmax: &mut Softmax) = raise_body
}

vectorized! {
    /// The powers of `scores` `[rows, panel]` as packed rows in f32; their sums go to `softmax`.
    pub(super) fn weigh_f32(
        scores: &[Line], weights: &mut [Line], rows: usize, softmax: &mut Softmax,
    ) = weigh_f32_body
}

vectorized! {
    /// As [`weigh_f32`], in bf16.
    pub(super) fn weigh_bf16(
        scores: &[Line], weights: &mut [Line], rows: usize, softmax: &mut Softmax,
    ) = weigh_bf16_body
}

inlined! {
    fn raise_body(scores: &[Line], rows: usize, softmax: &mut Softmax) {
        for (scores, lanes) in scores.chunks_exact(scores.len() / rows).zip(&mut softmax.lanes) {
            // In registers, and as floats before they are compared: else it is not vectorised.
            let mut largest = *lanes;
            for line in scores {
                let mut values = [0.0; WORDS];
                for (value, &bits) in values.iter_mut().zip(&line.0) {
                    *value = f32::from_bits(bits);
                }
                for (lane, value) in largest.iter_mut().zip(values) {
                    *lane = if value > *lane { value } else { *lane };
                }
            }
            *lanes = largest;
        }
    }

    fn weigh_f32_body(
        scores: &[Line],
        weights: &mut [Line],
        rows: usize,
        softmax: &mut Softmax,
    ) {
        for (i, scores) in scores.chunks_exact(scores.len() / rows).enumerate() {
            for (weights, line) in weights[i..].iter_mut().step_by(rows).zip(scores) {
                let powers = powers(line, i, softmax);
                for (word, power) in weights.0.iter_mut().zip(powers) {
                    *word = power.to_bits();
                }
            }
        }
    }

    fn weigh_bf16_body(
        scores: &[Line],
        weights: &mut [Line],
        rows: usize,
        softmax: &mut Softmax,
    ) {
        for (i, scores) in scores.chunks_exact(scores.len() / rows).enumerate() {
            let pairs = scores.as_chunks::<2>().0;
            for (weights, [low, high]) in weights[i..].iter_mut().step_by(rows).zip(pairs) {
                let (low, high) = (powers(low, i, softmax), powers(high, i, softmax));
                for (j, word) in weights.0.iter_mut().enumerate() {
                    let values = if j < WORDS / 2 { &low } else { &high };
                    let [even, odd] = [2 * j, 2 * j + 1].map(|j| bf16_bits(values[j % WORDS]));
                    *word = even | odd << 16;
                }
            }
        }
    }

    /// The powers of a line of scores of row `i`, which are added to its sums.
    fn powers(scores: &Line, i: usize, softmax: &mut Softmax) -> [f32; WORDS] {
        let (scale, largest) = (softmax.scale, softmax.largest[i]);
        let lowest = LOWEST / scale;
        let mut powers = [0.0; WORDS];
        for ((power, sum), &bits) in powers.iter_mut().zip(&mut softmax.sums[i]).zip(&scores.0) {
            let below = f32::from_bits(bits) - largest;
            *power = exp2_scalar(if below < lowest { lowest } else { below }, scale);
            *sum += *power;
        }
        powers
    }
}
