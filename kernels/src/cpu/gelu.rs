//! GELU with the error function (`hidden_act = "gelu"`), not tanh; also in a gated linear unit.

use crate::cpu::isa::{horner, vectorized};

/// Beyond this magnitude the result is 0 or the argument.
const BOUND: f32 = 5.656_25;
/// Polynomial for `erf(x / √2) / 2x` in `2 (x / BOUND)² - 1`, see coefficients.py.
const POLYNOMIAL: [f32; 17] = [
    0.125_005_42,
    -0.062_435_634,
    0.046_558_756,
    -0.038_086_49,
    0.031_894_41,
    -0.026_387_855,
    0.021_162_506,
    -0.016_367_001,
    0.011_762_983,
    -0.007_345_371_4,
    0.004_771_689_4,
    -0.004_051_310_5,
    0.002_262_485,
    6.537_821_3e-6,
    -4.968_823_5e-5,
    -0.000_605_355_66,
    0.000_301_707_4,
];
vectorized! {
    /// Computes `x · (1 + erf(x / √2)) / 2` in place, with an absolute error of at most
    /// `2e-7 · max(1, |x|)` (`gelu_matches_its_definition`).
    pub fn gelu(values: &mut [f32]) {
        for value in values {
            *value = gelu_scalar(*value);
        }
    }

    /// Computes `gelu(activated) · gate` for rows `[activated | gate]` of `x`, each of `width` f32,
    /// into the rows of `out`. The error is that of [`gelu`] times the gate, and one rounding
    /// (`a_gated_unit_is_its_definition`).
    pub fn geglu(x: &[f32], width: usize, out: &mut [f32]) {
        assert!(x.len() == 2 * out.len() && out.len().is_multiple_of(width), "the lengths do not fit");
        for (row, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
            let (activated, gate) = row.split_at(width);
            for ((out, &a), &b) in out.iter_mut().zip(activated).zip(gate) {
                *out = gelu_scalar(a) * b;
            }
        }
    }
}

#[inline(always)]
pub(crate) fn gelu_scalar(x: f32) -> f32 {
    let bounded = x.clamp(-BOUND, BOUND);
    let u = (bounded * bounded).mul_add(2.0 / (BOUND * BOUND), -1.0);
    let p = horner!(POLYNOMIAL, u, 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0);
    x * p.mul_add(bounded, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// erf in f64: Taylor series near zero, continued fraction of erfc beyond.
    fn erf(z: f64) -> f64 {
        let a = z.abs();
        let value = if a < 2.5 {
            let (mut term, mut sum) = (a, a);
            for n in 1..60 {
                let n = f64::from(n);
                term *= -a * a / n;
                sum += term / (2.0 * n + 1.0);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let fraction = (1..=80).rev().fold(a, |f, n| a + f64::from(n) / 2.0 / f);
            1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())
        };
        value.copysign(z)
    }

    #[test]
    fn gelu_matches_its_definition() {
        for i in -120_000..=120_000 {
            let x = i as f32 / 10_000.0;
            let exact =
                f64::from(x) * 0.5 * (1.0 + erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2));
            let error = (f64::from(gelu_scalar(x)) - exact).abs();
            assert!(error <= 2e-7 * f64::from(x.abs().max(1.0)), "gelu({x}) is {error:e} off");
        }
    }

    #[test]
    fn the_oracle_itself_knows_published_values() {
        // Abramowitz & Stegun, table 7.1.
        for (z, value) in [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (3.0, 0.999_977_909_5)] {
            assert!((erf(z) - value).abs() < 1e-10);
        }
        assert!((erf(2.499_999) - erf(2.5)).abs() < 1e-8, "the two forms meet");
    }

    #[test]
    fn all_instruction_sets_agree_bit_for_bit() {
        let input: Vec<f32> = (-999..1000).map(|i| i as f32 * 0.013).collect();
        let results = Isa::available().into_iter().map(|isa| {
            let mut values = input.clone();
            gelu(isa, &mut values);
            values.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        let results: Vec<_> = results.collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!gelu_scalar(x).is_finite());
        }
    }

    #[test]
    fn a_gated_unit_is_its_definition() {
        let (rows, width) = (5, 37);
        let x: Vec<f32> =
            (0..rows * width * 2).map(|i| (i * 7919 % 1009) as f32 * 0.01 - 5.0).collect();
        for isa in Isa::available() {
            let mut out = vec![0.0; rows * width];
            geglu(isa, &x, width, &mut out);
            for (i, &value) in out.iter().enumerate() {
                let row = &x[i / width * 2 * width..];
                let mut activated = [row[i % width]];
                gelu(isa, &mut activated);
                let exact = activated[0] * row[width + i % width];
                assert_eq!(value.to_bits(), exact.to_bits());
            }
        }
    }
}
