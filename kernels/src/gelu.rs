//! GELU with the error function itself (`hidden_act = "gelu"`), not the tanh form.

use crate::isa::vectorized;

/// Beyond it erf rounds to 1.
const BOUND: f32 = 4.0;
/// `erf(z) = z · N(z²) / D(z²)`, see coefficients.py.
#[expect(clippy::approx_constant, reason = "fitted: one bit off 2/√π")]
const NUMERATOR: [f32; 7] = [
    1.128_379_1,
    0.207_196_41,
    0.051_533_174,
    0.003_991_428_8,
    0.000_147_142_01,
    -1.938_317_2e-6,
    1.905_150_2e-8,
];
const DENOMINATOR: [f32; 5] = [1.0, 0.516_954_36, 0.117_998_83, 0.014_962_328, 0.001_020_751_7];

vectorized! {
    /// `x · (1 + erf(x / √2)) / 2` in place.
    ///
    /// # Precision
    /// Absolute error at most `2.5e-7 · max(1, |x|)` (`gelu_matches_its_definition`).
    pub fn gelu(values: &mut [f32]) = gelu_body
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
fn gelu_body(values: &mut [f32]) {
    for value in values {
        *value = gelu_scalar(*value);
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
pub(crate) fn gelu_scalar(x: f32) -> f32 {
    let z = (x * std::f32::consts::FRAC_1_SQRT_2).clamp(-BOUND, BOUND);
    let t = z * z;
    let mut numerator = NUMERATOR[6];
    numerator = numerator.mul_add(t, NUMERATOR[5]);
    numerator = numerator.mul_add(t, NUMERATOR[4]);
    numerator = numerator.mul_add(t, NUMERATOR[3]);
    numerator = numerator.mul_add(t, NUMERATOR[2]);
    numerator = numerator.mul_add(t, NUMERATOR[1]);
    numerator = numerator.mul_add(t, NUMERATOR[0]);
    let mut denominator = DENOMINATOR[4];
    denominator = denominator.mul_add(t, DENOMINATOR[3]);
    denominator = denominator.mul_add(t, DENOMINATOR[2]);
    denominator = denominator.mul_add(t, DENOMINATOR[1]);
    denominator = denominator.mul_add(t, DENOMINATOR[0]);
    let erf = (z * numerator / denominator).clamp(-1.0, 1.0);
    0.5 * x * (1.0 + erf)
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
            assert!(error <= 2.5e-7 * f64::from(x.abs().max(1.0)), "gelu({x}) is {error:e} off");
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
    fn a_nan_stays_visible() {
        assert!(gelu_scalar(f32::NAN).is_nan());
    }
}
