//! Tensors in e4m3, the 8-bit floating-point format of Hopper's matrix units, with constant scales.
//!
//! A value is stored as value / scale, rounded to nearest even; the largest number is 448. The scale
//! of a tensor of states follows from the weights alone: a layer norm's rows lie on a sphere, which
//! bounds them and their products ([`Bound`]). Kernels measure nothing, and no value is cut to 448.

use half::bf16;

use super::device::Device;
use super::error::Result;
use super::memory::Buffer;
use super::stream::Argument;

/// Largest number of e4m3.
const LARGEST: f32 = 448.0;
/// Rows of weights with nothing larger become zeros, because 448 / largest could overflow.
const SMALLEST_ROW: f32 = 1.0 / (1u128 << 100) as f32;
/// Allows for what is rounded to bf16 between a bounded sum and e4m3, at most two factors (257/256
/// each: values and probabilities of attention), and for roundings to f32 (far below 2^-10).
const MARGIN: f64 = 65.0 / 64.0;

/// A bound on the rows `[T, K]` that enter a linear map; it holds for every text.
#[derive(Debug, Clone, Copy)]
pub enum Bound<'a> {
    /// The rows leave a layer norm: γ∘u + β with |u| at most √K (mean square at most 1).
    Normalised {
        /// `[K]`.
        gamma: &'a [f32],
        /// `[K]`.
        beta: &'a [f32],
    },
    /// No magnitude of a value is larger.
    Within(f32),
}

impl Bound<'_> {
    /// Returns the scale in e4m3 of the rows: no value reaches 448 times it.
    pub fn scale(self) -> f32 {
        let largest = match self {
            Self::Within(largest) => f64::from(largest),
            Self::Normalised { gamma, beta } => {
                let radius = (gamma.len() as f64).sqrt();
                let reach = |(g, b): (&f32, &f32)| radius * f64::from(g.abs()) + f64::from(b.abs());
                gamma.iter().zip(beta).map(reach).fold(0.0, f64::max) * MARGIN
            }
        };
        // Kernels multiply by the inverse, so it has to be finite.
        (largest.max(1e-30) / f64::from(LARGEST)) as f32
    }

    /// Bounds the products of the rows, stored in e4m3, with a row of weights W = `scale` · `numbers`
    /// plus `bias`, as the matrix units compute them, and GELU of them, which is no larger.
    ///
    /// Σ xW + b is at most |βW + b| + √K‖γ∘W‖ (Cauchy-Schwarz), and Σ|xW| at most Σ|βW| + √K‖γ∘W‖,
    /// the `reach`. A stored value is off by at most 1/16 of x, or half of e4m3's smallest step,
    /// 2^-10 times the scale. The matrix units cut each product, and the sum after every 32, to 13
    /// bits below the largest (arXiv 2412.19437, 3.3.2), which Σ of the stored |xW| bounds.
    fn bound_product(self, numbers: &[f32], scale: f32, bias: bf16) -> f32 {
        let weights = || numbers.iter().map(|w| f64::from(*w) * f64::from(scale));
        let (count, bias) = (numbers.len() as f64, f64::from(bias));
        let total: f64 = weights().map(f64::abs).sum();
        let (centre, spread, reach) = match self {
            Self::Within(largest) => (bias, f64::from(largest) * total, f64::from(largest) * total),
            Self::Normalised { gamma, beta } => {
                let squares = gamma.iter().zip(weights()).map(|(g, w)| (f64::from(*g) * w).powi(2));
                let spread = (count * squares.sum::<f64>()).sqrt();
                let products = || beta.iter().zip(weights()).map(|(b, w)| f64::from(*b) * w);
                let sizes: f64 = products().map(f64::abs).sum();
                (products().sum::<f64>() + bias, spread, sizes + spread)
            }
        };
        let stored = 17.0 / 16.0 * reach + f64::from(self.scale()) / 1024.0 * total;
        let cut = (count + (count / 32.0).ceil()) / 8192.0 * stored;
        ((centre.abs() + spread + (stored - reach) + cut) * MARGIN) as f32
    }
}

/// Weights in e4m3: rows with a scale each.
pub(super) struct Weights {
    /// Bytes `[N, K]`.
    pub(super) values: Vec<u8>,
    /// `[N]`: the scale of each row times the scale of the input.
    pub(super) scales: Vec<f32>,
    /// `[N]`: the largest magnitude that each output, or its GELU, can have.
    pub(super) bounds: Vec<f32>,
}

impl Weights {
    /// Rounds `weight` `[N, K]`; its rows' largest magnitudes become 448. `bias` is `[N]`.
    pub(super) fn new(weight: &[bf16], bias: &[bf16], input: Bound<'_>) -> Self {
        let mut own = Self { values: Vec::new(), scales: Vec::new(), bounds: Vec::new() };
        for (row, &bias) in weight.chunks_exact(weight.len() / bias.len()).zip(bias) {
            let largest = row.iter().map(|w| w.to_f32().abs()).fold(0.0, f32::max);
            let scale = if largest > SMALLEST_ROW { largest / LARGEST } else { 1.0 };
            let numbers: Vec<f32> = row.iter().map(|w| round_to_e4m3(w.to_f32() / scale)).collect();
            own.values.extend(numbers.iter().map(|&number| encode_byte(number)));
            own.scales.push(scale * input.scale());
            own.bounds.push(input.bound_product(&numbers, scale, bias));
        }
        own
    }
}

/// Rounds to the nearest number of e4m3, the even one of two; `x` is at most 448.
fn round_to_e4m3(x: f32) -> f32 {
    // The numbers have steps of an eighth of their power of two, and below 2^-6 of 2^-9. The sum
    // with 1.5 · 2^23 steps has no bits below a step.
    let power = f32::from_bits(x.to_bits() & 0x7f80_0000).max(1.0 / 64.0);
    let shift = power * (3 << 19) as f32;
    (x + shift) - shift
}

/// Returns the byte of a number of e4m3: a sign, 4 bits of exponent (bias 7), 3 of fraction.
fn encode_byte(number: f32) -> u8 {
    let (sign, size) = ((number.to_bits() >> 24 & 0x80) as u8, number.abs());
    let is_subnormal = size < 1.0 / 64.0;
    sign | if is_subnormal {
        (size * 512.0) as u8
    } else {
        ((size.to_bits() >> 20) - (120 << 3)) as u8
    }
}

/// Rows that an operation writes.
pub enum Output<'a> {
    /// Rows in bf16.
    Bf16(&'a mut Buffer<bf16>),
    /// Rows in e4m3, and their scale, which should be that of [`super::Linear::x_scale`].
    Fp8(&'a mut Buffer<u8>, f32),
}

impl Output<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bf16(values) => values.len(),
            Self::Fp8(values, _) => values.len(),
        }
    }

    /// Returns a kernel's arguments: the address, and the scale's inverse, which is 0 for bf16.
    pub(super) fn arguments(&self, device: &Device) -> Result<(&dyn Argument, f32)> {
        match self {
            Self::Bf16(values) => Ok((*values, 0.0)),
            Self::Fp8(values, scale) => {
                device.kernels().check_hopper()?;
                // The inverse of an infinite scale would be 0, and mean bf16.
                Ok((*values, scale.recip().max(f32::MIN_POSITIVE)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of e4m3 from 0 to 448, in the order of their bytes.
    fn numbers() -> Vec<f32> {
        let number = |byte: u8| match byte {
            0..8 => f32::from(byte) / 512.0,
            _ => f32::from(8 + byte % 8) * 2f32.powi(i32::from(byte / 8) - 10),
        };
        (0..0x7f).map(number).collect()
    }

    #[test]
    fn values_are_rounded_to_the_nearest_number_and_then_to_the_even_one() {
        let numbers = numbers();
        let nearest = |x: f32| {
            let distance = |byte: &u8| (numbers[usize::from(*byte)] - x).abs();
            let order =
                |a: &u8, b: &u8| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)));
            (0..0x7f).min_by(order).unwrap_or(0x7f)
        };
        for bits in 0..=bf16::from_f32(448.0).to_bits() {
            let x = bf16::from_bits(bits).to_f32();
            let expected = nearest(x);
            assert_eq!(encode_byte(round_to_e4m3(x)), expected, "{x}");
            let below = if expected == 0 { 0 } else { expected | 0x80 };
            assert_eq!(encode_byte(round_to_e4m3(-x)), below, "-{x}");
        }
    }

    #[test]
    fn rows_of_weights_reach_the_largest_number_or_are_zeros() {
        let row = |largest: f32| [0.5, -1.0, 0.0].map(|x| bf16::from_f32(x * largest));
        let rows = [row(3.0), row(2f32.powi(-101)), row(0.0), row(2f32.powi(100))].concat();
        let weights = Weights::new(&rows, &[bf16::ZERO; 4], Bound::Within(448.0));
        assert_eq!(weights.values[..3], [0x76, 0xfe, 0]);
        assert_eq!(weights.values[3..9], [0; 6]);
        assert_eq!(weights.values[9..], [0x76, 0xfe, 0]);
        let scales = [3.0 / 448.0, 1.0, 1.0, 2f32.powi(100) / 448.0];
        assert_eq!(weights.scales, scales.map(|scale| scale * Bound::Within(448.0).scale()));
    }

    /// Returns values between -1 and 1 that look random.
    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 12.9898).sin()).collect()
    }

    #[test]
    fn no_row_of_a_norm_and_no_product_of_one_exceeds_its_bound() {
        for (width, beta_size) in [(16, 0.1), (48, 3.0), (768, 0.5)] {
            let gamma: Vec<f32> = values(width, 0.5).iter().map(|g| g + 1.5).collect();
            let beta: Vec<f32> = values(width, 7.0).iter().map(|b| b * beta_size).collect();
            let input = Bound::Normalised { gamma: &gamma, beta: &beta };
            let weight: Vec<_> = values(8 * width, 3.0).into_iter().map(bf16::from_f32).collect();
            let bias: Vec<_> = values(8, 4.0).into_iter().map(bf16::from_f32).collect();
            let weights = Weights::new(&weight, &bias, input);
            let numbers = numbers();
            for (i, row) in weights.values.chunks(width).enumerate() {
                let number = |byte: &u8| {
                    let size = numbers[usize::from(byte & 0x7f)];
                    if *byte & 0x80 == 0 { size } else { -size }
                };
                let row: Vec<f32> = row.iter().map(number).collect();
                // The row of x on the sphere that gives the largest product, as it is stored.
                let direction: Vec<f32> = row.iter().zip(&gamma).map(|(w, g)| w * g).collect();
                let length = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
                let product = |sign: f32| {
                    let radius = sign * (width as f32).sqrt() / length;
                    let of = |((d, w), (g, b)): ((&f32, &f32), (&f32, &f32))| {
                        let x = (g * d * radius + b) / input.scale();
                        assert!(x.abs() < LARGEST, "{x}");
                        f64::from(w * round_to_e4m3(x)) * f64::from(weights.scales[i])
                    };
                    let sum: f64 =
                        direction.iter().zip(&row).zip(gamma.iter().zip(&beta)).map(of).sum();
                    (sum + f64::from(bias[i])).abs()
                };
                let (largest, bound) =
                    (product(1.0).max(product(-1.0)), f64::from(weights.bounds[i]));
                assert!((1.0..1.5).contains(&(bound / largest)), "{width}: {largest} {bound}");
            }
        }
    }
}
