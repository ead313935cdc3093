//! The exponential that softmax uses: branch-free, so that the compiler can vectorise it.

/// Results below the smallest normal number are zero.
const LOWEST: f32 = -87.336_54;
/// Adding and subtracting it rounds to an integer, which is then in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; the upper one has 15 bits, so its product with any exponent is exact.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
/// Of `(exp(r) - 1 - r) / r²`, see coefficients.py.
const POLYNOMIAL: [f32; 5] =
    [0.499_999_88, 0.166_665_18, 0.041_669_533, 0.008_368_916, 0.001_375_140_7];

/// `exp(x)` for `x <= 0`; 0 where the result would be below the normal numbers, NaN for NaN.
///
/// # Precision
/// At most 1 ulp off (`exp_is_within_one_ulp`).
#[inline(always)]
#[expect(clippy::inline_always, reason = "must land in the function with the CPU features")]
pub(crate) fn exp_scalar(x: f32) -> f32 {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let mut p = POLYNOMIAL[4];
    p = p.mul_add(r, POLYNOMIAL[3]);
    p = p.mul_add(r, POLYNOMIAL[2]);
    p = p.mul_add(r, POLYNOMIAL[1]);
    p = p.mul_add(r, POLYNOMIAL[0]);
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    let value = ((r * r).mul_add(p, r) + 1.0) * power;
    if x < LOWEST { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_one_ulp() {
        let mut worst = 0.0f64;
        for bits in (0..(-LOWEST).to_bits()).step_by(97) {
            let x = -f32::from_bits(bits);
            let exact = f64::from(x).exp();
            let ulp = 2f64.powi(exact.log2().floor() as i32 - 23);
            worst = worst.max((f64::from(exp_scalar(x)) - exact).abs() / ulp);
        }
        assert!(worst <= 1.0, "{worst} ulp");
    }

    #[test]
    fn the_ends_of_the_range_are_clean() {
        assert_eq!(exp_scalar(0.0).to_bits(), 1f32.to_bits());
        assert_eq!(exp_scalar(-88.0).to_bits(), 0);
        assert_eq!(exp_scalar(f32::NEG_INFINITY).to_bits(), 0);
        assert!(exp_scalar(f32::NAN).is_nan());
    }
}
