//! Other operations on rows: dequantisation for loading, mean for pooling, and for scoring the
//! check for finite values, ReLU, the last layer in f64 and the largest value.

use crate::cpu::isa::vectorized;

/// Number of interleaved sums, which do not wait for each other; the order is part of the result.
const LANES: usize = 8;
/// Number of values compared side by side: four vectors of the widest instruction set.
const WIDTH: usize = 64;
/// Number of columns summed at a time.
const COLUMNS: usize = 16;

vectorized! {
    /// Computes the mean over the rows of `rows` (`out.len()` f32 each) into `out`; summed in f64,
    /// from the first row to the last. The mean of no rows is 0.
    pub fn mean_rows(rows: &[f32], out: &mut [f32]) {
        let width = out.len().max(1);
        let count = (rows.len() / width).max(1) as f64;
        for (i, out) in out.chunks_mut(COLUMNS).enumerate() {
            let mut sums = [0.0f64; COLUMNS];
            for row in rows.chunks_exact(width) {
                for (sum, &value) in sums.iter_mut().zip(&row[i * COLUMNS..][..out.len()]) {
                    *sum += f64::from(value);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = (sum / count) as f32;
            }
        }
    }

    /// Sets whether all values of each row of `rows` `[finite.len(), columns]` are finite.
    pub fn finite_rows(rows: &[f32], columns: usize, finite: &mut [bool]) {
        assert!(rows.len() == finite.len() * columns, "{} rows of {columns}", finite.len());
        for (i, finite) in finite.iter_mut().enumerate() {
            let row = &rows[i * columns..][..columns];
            // A loop that ends early is not vectorised.
            *finite = row.iter().fold(true, |all, value| all & value.is_finite());
        }
    }

    /// Sets values below zero to zero; NaN stays NaN.
    pub fn relu(values: &mut [f32]) {
        for value in values {
            *value = if *value < 0.0 { 0.0 } else { *value };
        }
    }

    /// Computes `out` `[m, n]` = `x` `[m, k]` · `weight` `[n, k]`ᵀ + `bias` `[n]` in f64 for few
    /// outputs. Products of f32 are exact in f64; they are added in eight interleaved sums.
    pub fn linear_f64(x: &[f32], weight: &[f32], bias: &[f32], out: &mut [f64]) {
        let n = bias.len().max(1);
        let (m, k) = (out.len() / n, weight.len() / n);
        assert!(out.len() == m * bias.len() && weight.len() == n * k && x.len() == m * k, "lengths");
        for (i, out) in out.chunks_exact_mut(n).enumerate() {
            let row = &x[i * k..][..k];
            for (j, out) in out.iter_mut().enumerate() {
                *out = dot(row, &weight[j * k..][..k]) + f64::from(bias[j]);
            }
        }
    }

    /// Raises each value of `best` to the maximum of its row of `rows`; no value may be NaN.
    pub fn raise_to_row_max(rows: &[f32], columns: usize, best: &mut [f32]) {
        assert!(rows.len() == best.len() * columns, "{} rows of {columns}", best.len());
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        for (i, best) in best.iter_mut().enumerate() {
            let mut lanes = [*best; WIDTH];
            let (blocks, rest) = rows[i * columns..][..columns].as_chunks::<WIDTH>();
            for block in blocks {
                for lane in 0..WIDTH {
                    lanes[lane] = larger(lanes[lane], block[lane]);
                }
            }
            *best = lanes.iter().chain(rest).fold(*best, |a, &b| larger(a, b));
        }
    }
}

/// Returns the dot product in f64, in [`LANES`] interleaved sums and one of the rest.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += f64::from(x[lane]) * f64::from(y[lane]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
    sums.iter().sum::<f64>() + rest
}

/// Dequantises a row of integers of `bits` (4 or 8) into `out`: the integer minus half its range,
/// times the scale of its group (`scales.len()` groups). With 4 bits the low half is first.
pub fn dequantize(codes: &[u8], bits: usize, scales: &[f32], out: &mut [f32]) {
    let group = (out.len() / scales.len().max(1)).max(1);
    assert!(group * scales.len() == out.len() && codes.len() * 8 == out.len() * bits, "lengths");
    if bits == 4 {
        for (pair, &byte) in out.as_chunks_mut().0.iter_mut().zip(codes) {
            *pair = [byte & 15, byte >> 4].map(|code| f32::from(code) - 8.0);
        }
    } else {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = f32::from(code) - 128.0;
        }
    }
    for (values, scale) in out.chunks_exact_mut(group).zip(scales) {
        for value in values {
            *value *= scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    /// Pseudo-random values in [-1, 1) with a long period.
    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_row_with_one_value_that_is_not_finite_is_found() {
        for isa in Isa::available() {
            for columns in [1, 7, 64, 129] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    for at in [0, columns / 2, columns - 1] {
                        let mut rows = noise(3 * columns, 1);
                        rows[columns + at] = bad;
                        let mut finite = [false; 3];
                        finite_rows(isa, &rows, columns, &mut finite);
                        assert_eq!(finite, [true, false, true], "{bad} at {at} of {columns}");
                    }
                }
            }
        }
    }

    #[test]
    fn relu_keeps_nan() {
        for isa in Isa::available() {
            let mut values = [-1.0, 0.0, 2.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY];
            relu(isa, &mut values);
            assert!(values[3].is_nan());
            values[3] = 0.0;
            let expected = [0.0f32, 0.0, 2.0, 0.0, 0.0, f32::INFINITY];
            assert_eq!(values.map(f32::to_bits), expected.map(f32::to_bits));
        }
    }

    #[test]
    fn a_layer_in_f64_has_the_same_bits_everywhere_and_the_rounding_of_f64_only() {
        for (m, n, k) in [(1, 1, 1), (3, 2, 7), (5, 1, 256), (2, 3, 261)] {
            let (x, weight, bias) = (noise(m * k, 1), noise(n * k, 2), noise(n, 3));
            let layer = |isa| {
                let mut out = vec![f64::NAN; m * n];
                linear_f64(isa, &x, &weight, &bias, &mut out);
                out
            };
            let portable = layer(Isa::available()[0]);
            for isa in Isa::available() {
                assert_eq!(layer(isa), portable, "{}", isa.name());
            }
            for (i, out) in portable.iter().enumerate() {
                let (row, output) = (&x[i / n * k..][..k], &weight[i % n * k..][..k]);
                let terms = || row.iter().zip(output).map(|(&a, &b)| f64::from(a) * f64::from(b));
                let exact = terms().sum::<f64>() + f64::from(bias[i % n]);
                // Both sums round once per step.
                let bound = k as f64 * f64::EPSILON * (terms().map(f64::abs).sum::<f64>() + 1.0);
                assert!((out - exact).abs() <= bound, "{out} is not {exact}");
            }
        }
    }

    #[test]
    fn integers_of_a_row_have_the_scale_of_their_group() {
        let rows: [(&[u8], usize, &[f32]); 4] = [
            (&[0x0f, 0x98], 4, &[3.5, -4.0, 0.0, 2.0]),
            (&[0x0f, 0x98, 0x17], 4, &[3.5, -4.0, 0.0, 2.0, -2.0, -14.0]), // groups of three
            (&[0, 255, 128, 1], 8, &[-64.0, 63.5, 0.0, -254.0]),
            (&[], 8, &[]),
        ];
        for (codes, bits, expected) in rows {
            let mut out = vec![f32::NAN; expected.len()];
            dequantize(codes, bits, if out.is_empty() { &[] } else { &[0.5, 2.0] }, &mut out);
            let same = out.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{out:?} is not {expected:?}");
        }
    }

    #[test]
    fn the_largest_value_of_a_row_is_found_wherever_it_is() {
        for isa in Isa::available() {
            for columns in [1, 63, 64, 65, 200] {
                for at in [0, columns / 2, columns - 1] {
                    let mut rows = noise(2 * columns, 9);
                    rows[columns + at] = 2.0;
                    let mut best = [1.5, 1.5];
                    raise_to_row_max(isa, &rows, columns, &mut best);
                    let bits = best.map(f32::to_bits);
                    assert_eq!(bits, [1.5f32, 2.0].map(f32::to_bits), "{at} of {columns}");
                }
            }
        }
    }

    #[test]
    fn the_mean_is_the_rounded_f64_mean_on_every_instruction_set() {
        let (count, width) = (37, 21);
        let rows: Vec<f32> =
            (0..count * width).map(|i| ((i * 7919) % 1009) as f32 * 0.37).collect();
        let exact: Vec<f32> = (0..width)
            .map(|j| {
                let column = rows[j..].iter().step_by(width);
                (column.map(|&v| f64::from(v)).sum::<f64>() / count as f64) as f32
            })
            .collect();
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; width];
            mean_rows(isa, &rows, &mut out);
            assert_eq!(out, exact);
        }
    }

    #[test]
    fn one_row_is_its_own_mean() {
        let row = vec![0.1, 0.2, 0.3];
        let mut out = vec![0.0; 3];
        mean_rows(Isa::detect(), &row, &mut out);
        assert_eq!(out, row);
    }
}
