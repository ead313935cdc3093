//! Softmax of attention scores.

use crate::exp::exp_scalar;
use crate::isa::vectorized;

/// Independent partial results of a row: value `i` belongs to lane `i % LANES`, and the lanes are
/// combined first to last. This order is what all instruction sets share.
const LANES: usize = 16;

vectorized! {
    /// Every row of `rows` (`width` f32 each) becomes `softmax(scale · row)`, in place; `scale > 0`.
    /// A `scale` that is a power of two (head sizes 16, 64, 256) is exact, like folding it into
    /// the query weights.
    ///
    /// # Panics
    /// If `width` is zero.
    ///
    /// # Precision
    /// Relative error `(24 + d) · 2⁻²⁴`, where `d` is how far the scaled score lies below the largest
    /// one (`softmax_matches_f64`); results under `1e-38` are zero.
    pub fn softmax(rows: &mut [f32], width: usize, scale: f32) = softmax_body
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn softmax_body(rows: &mut [f32], width: usize, scale: f32) {
    for row in rows.chunks_exact_mut(width) {
        let mut largest = [f32::NEG_INFINITY; LANES];
        let (chunks, tail) = row.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &value) in largest.iter_mut().zip(chunk) {
                *lane = if value > *lane { value } else { *lane };
            }
        }
        for (lane, &value) in largest.iter_mut().zip(tail) {
            *lane = if value > *lane { value } else { *lane };
        }
        let mut max = largest[0];
        for &value in &largest[1..] {
            max = if value > max { value } else { max };
        }
        let max = max * scale;

        let mut sums = [0.0f32; LANES];
        let (chunks, tail) = row.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for (lane, value) in sums.iter_mut().zip(chunk) {
                *value = exp_scalar(*value * scale - max);
                *lane += *value;
            }
        }
        for (lane, value) in sums.iter_mut().zip(tail) {
            *value = exp_scalar(*value * scale - max);
            *lane += *value;
        }
        let mut sum = sums[0];
        for &lane in &sums[1..] {
            sum += lane;
        }
        let inverse = 1.0 / sum;
        for value in row {
            *value *= inverse;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Isa;

    fn run(isa: Isa, rows: &[f32], width: usize, scale: f32) -> Vec<f32> {
        let mut rows = rows.to_vec();
        softmax(isa, &mut rows, width, scale);
        rows
    }

    proptest! {
        #[test]
        fn softmax_matches_f64(row in prop::collection::vec(-40.0f32..40.0, 1..70)) {
            let scale = 0.25;
            let result = run(Isa::detect(), &row, row.len(), scale);
            let max = row.iter().copied().fold(f32::MIN, f32::max);
            let exps = row.iter().map(|&x| (f64::from(x - max) * 0.25).exp()).collect::<Vec<_>>();
            let sum = exps.iter().sum::<f64>();
            // Rounding the argument of exp: d · 2^-24. Exp 1 ulp, twice with its share in the sum,
            // which has at most 20 additions here, all of positive terms; inverse, product: 1 each.
            for ((&value, &exp), &x) in result.iter().zip(&exps).zip(&row) {
                let bound = (24.0 + f64::from(max - x) * 0.25) * 2f64.powi(-24);
                prop_assert!((f64::from(value) - exp / sum).abs() <= bound * exp / sum);
            }
        }

        #[test]
        fn a_row_does_not_see_its_neighbours_or_the_instruction_set(
            row in prop::collection::vec(-9.0f32..9.0, 1..40), other in -50.0f32..50.0,
        ) {
            let width = row.len();
            let alone = run(Isa::detect(), &row, width, 0.3);
            let mut rows = vec![other; width];
            rows.extend(&row);
            for isa in Isa::available() {
                prop_assert_eq!(&run(isa, &rows, width, 0.3)[width..], &alone[..]);
            }
        }
    }

    #[test]
    fn scores_far_apart_give_zeros_and_no_nan() {
        assert_eq!(run(Isa::detect(), &[1e4, 0.0, -1e30], 3, 1.0), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_nan_stays_visible() {
        assert!(run(Isa::detect(), &[f32::NAN, 1.0], 2, 1.0)[1].is_nan());
    }
}
