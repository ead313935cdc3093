//! Layer norm of rows.

use crate::cpu::isa::vectorized;

/// Number of partial sums of a row: value `i` belongs to lane `i % LANES`.
const LANES: usize = 64;

vectorized! {
    /// Normalises rows of `x` (`gamma.len()` f32 each) to mean 0 and variance 1 (biased, plus
    /// `eps`), times `gamma`, plus `beta`, into `out`, which is as long as `x`: a few f32 roundings
    /// off the f64 result (`layer_norm_matches_f64`).
    pub fn layer_norm(x: &[f32], gamma: &[f32], beta: &[f32], eps: f64, out: &mut [f32]) {
        assert!(x.len() == out.len() && gamma.len() == beta.len(), "lengths differ");
        let width = gamma.len().max(1);
        for (row, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            let [center, inverse, shift] = scaling(row, eps);
            for (((out, &value), &g), &b) in out.iter_mut().zip(row).zip(gamma).zip(beta) {
                *out = (value - center).mul_add(inverse, shift).mul_add(g, b);
            }
        }
    }
}

/// Returns `[center, inverse, shift]`: `(value - center) · inverse + shift` has mean 0, variance 1.
#[inline(always)]
fn scaling(row: &[f32], eps: f64) -> [f32; 3] {
    let width = row.len() as f64;
    let (chunks, tail) = row.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    sums[..tail.len()].copy_from_slice(tail);
    for chunk in chunks {
        for i in 0..LANES {
            sums[i] += chunk[i];
        }
    }
    // Sums of differences from an approximate mean lose no precision, whatever the mean is.
    let center = (total(&sums) / width) as f32;
    let (mut sums, mut squares) = ([0.0; LANES], [0.0; LANES]);
    for (i, value) in tail.iter().enumerate() {
        sums[i] = value - center;
        squares[i] = sums[i] * sums[i];
    }
    for chunk in chunks {
        for i in 0..LANES {
            let difference = chunk[i] - center;
            sums[i] += difference;
            squares[i] = difference.mul_add(difference, squares[i]);
        }
    }
    let rest = total(&sums) / width;
    let variance = (total(&squares) / width - rest * rest).max(0.0);
    let inverse = 1.0 / (variance + eps).sqrt();
    [center, inverse as f32, (-rest * inverse) as f32]
}

/// Returns the sum of all lanes: added in fours twice, then in order in f64.
#[inline(always)]
fn total(lanes: &[f32; LANES]) -> f64 {
    let mut sums = [0.0; LANES / 4];
    for i in 0..LANES / 4 {
        sums[i] =
            (lanes[i] + lanes[i + LANES / 2]) + (lanes[i + LANES / 4] + lanes[i + LANES * 3 / 4]);
    }
    let mut last = [0.0; LANES / 16];
    for i in 0..LANES / 16 {
        last[i] =
            (sums[i] + sums[i + LANES / 8]) + (sums[i + LANES / 16] + sums[i + LANES * 3 / 16]);
    }
    last.into_iter().map(f64::from).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Isa;

    const EPS: f64 = 1e-5;

    fn run(isa: Isa, x: &[f32], gamma: &[f32], beta: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len()];
        layer_norm(isa, x, gamma, beta, EPS, &mut out);
        out
    }

    proptest! {
        #[test]
        fn layer_norm_matches_f64(
            cells in prop::collection::vec((-3.0f32..3.0, -2.0f32..2.0, -1.0f32..1.0), 2..130),
            shift in -100.0f32..100.0,
        ) {
            let x: Vec<f32> = cells.iter().map(|c| c.0 + shift).collect();
            let gamma: Vec<f32> = cells.iter().map(|c| c.1).collect();
            let beta: Vec<f32> = cells.iter().map(|c| c.2).collect();
            let n = x.len() as f64;
            let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            let variance = x.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
            let inverse = 1.0 / (variance + EPS).sqrt();
            let spread = x.iter().map(|&v| (f64::from(v) - mean).abs()).sum::<f64>() / n * inverse;
            // In units of u = 2^-24. A value passes through `depth` additions of its lane and of
            // `total`. The mean is off by the mean absolute difference times 1 + depth. A square is
            // off by 3, their sum by the depth, its root by half of both. Each value is rounded as
            // a difference, with `inverse`, and as a sum. The centre is not the mean: 8 u of 103
            // over the root of `EPS` is below 0.02.
            let depth = n.div_euclid(LANES as f64) + 4.0;
            let (of_mean, of_value) = (depth + 1.0, f64::midpoint(depth, 3.0) + 3.0);
            for (i, &value) in run(Isa::detect(), &x, &gamma, &beta).iter().enumerate() {
                let normal = (f64::from(x[i]) - mean) * inverse;
                let exact = normal * f64::from(gamma[i]) + f64::from(beta[i]);
                let units = (of_mean * (spread + 0.02) + of_value * (normal.abs() + 0.02))
                    * f64::from(gamma[i]).abs()
                    + exact.abs();
                let bound = 2f64.powi(-24) * units;
                prop_assert!((f64::from(value) - exact).abs() <= bound);
            }
        }

        #[test]
        fn a_row_does_not_see_its_neighbours_or_the_instruction_set(
            row in prop::collection::vec(-9.0f32..9.0, 1..70), other in -50.0f32..50.0,
        ) {
            let width = row.len();
            let gamma: Vec<f32> = (0..width).map(|i| 1.0 + i as f32 * 0.01).collect();
            let beta: Vec<f32> = (0..width).map(|i| i as f32 * 0.1 - 1.0).collect();
            let alone = run(Isa::detect(), &row, &gamma, &beta);
            let mut rows = vec![other; width];
            rows.extend(&row);
            for isa in Isa::available() {
                prop_assert_eq!(&run(isa, &rows, &gamma, &beta)[width..], &alone[..]);
            }
        }
    }
}
