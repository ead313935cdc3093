//! The power of two that softmax uses: branch-free, so that the compiler can vectorise it.

/// Exponents below it count as it.
pub(crate) const LOWEST: f32 = -125.0;
/// Adding and subtracting it rounds to an integer, which is then in the low bits of the sum.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// Of `(2^r - 1) / r`, see coefficients.py.
#[expect(clippy::approx_constant, reason = "fitted")]
const POLYNOMIAL: [f32; 6] =
    [0.693_147_2, 0.240_226_48, 0.055_503_324, 0.009_618_437, 0.001_339_887_6, 0.000_153_533_69];

/// `2^(x · scale)` for `LOWEST <= x · scale <= 0`; NaN if `x` is.
///
/// # Precision
/// At most 1.25 ulp off the power of the exact product (`exp2_is_within_a_little_over_one_ulp`).
#[inline(always)]
pub(crate) fn exp2_scalar(x: f32, scale: f32) -> f32 {
    let shifted = x.mul_add(scale, ROUND);
    let r = x.mul_add(scale, -(shifted - ROUND));
    let mut p = POLYNOMIAL[5];
    p = p.mul_add(r, POLYNOMIAL[4]);
    p = p.mul_add(r, POLYNOMIAL[3]);
    p = p.mul_add(r, POLYNOMIAL[2]);
    p = p.mul_add(r, POLYNOMIAL[1]);
    p = p.mul_add(r, POLYNOMIAL[0]);
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    p.mul_add(r, 1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_within_a_little_over_one_ulp() {
        let mut worst = 0.0f64;
        let scale = 0.18;
        for bits in (0..(-LOWEST / scale).to_bits()).step_by(97) {
            let x = -f32::from_bits(bits);
            let exact = (f64::from(x) * f64::from(scale)).exp2();
            let ulp = 2f64.powi(exact.log2().floor() as i32 - 23);
            worst = worst.max((f64::from(exp2_scalar(x, scale)) - exact).abs() / ulp);
        }
        assert!(worst <= 1.25, "{worst} ulp");
    }

    #[test]
    fn the_ends_of_the_range_are_clean() {
        for (x, power) in [(0.0, 1.0), (-6.0, 0.125), (2.0 * LOWEST, 2f32.powi(-125))] {
            assert_eq!(exp2_scalar(x, 0.5).to_bits(), power.to_bits());
        }
        assert!(exp2_scalar(f32::NAN, 0.5).is_nan());
    }
}
