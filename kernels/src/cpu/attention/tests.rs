//! Tests of attention against its definition in f64.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Sample {
    length: usize,
    head_size: usize,
    /// `[length, 3, head_size]`.
    values: Vec<f32>,
}

impl Sample {
    fn matrices(&self) -> [Matrix<'_>; 3] {
        let stride = 3 * self.head_size;
        [0, 1, 2].map(|part| {
            Matrix::new(&self.values[part * self.head_size..], self.length, self.head_size, stride)
        })
    }

    fn attention(&self, isa: Isa, precision: Precision) -> Vec<f32> {
        self.windowed(isa, precision, None)
    }

    fn windowed(&self, isa: Isa, precision: Precision, window: Option<usize>) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.length * self.head_size];
        let mut view = MatrixMut::new(&mut out, self.length, self.head_size, self.head_size);
        let scratch = &mut AttentionScratch::default();
        attention(isa, precision, self.matrices(), window, &mut view, scratch);
        out
    }

    /// Returns the result in f64, the largest absolute score of each row and the largest value.
    fn exact(&self, window: Option<usize>) -> (Vec<f64>, Vec<f64>, f64) {
        let [q, k, v] = self.matrices();
        let (mut out, mut largest) = (Vec::new(), Vec::new());
        for i in 0..self.length {
            let dot = |j: usize| {
                let products =
                    q.row(i).iter().zip(k.row(j)).map(|(&a, &b)| f64::from(a) * f64::from(b));
                products.sum::<f64>() / (self.head_size as f64).sqrt()
            };
            let keys =
                window.map_or(0..self.length, |w| i.saturating_sub(w)..self.length.min(i + w + 1));
            let scores: Vec<f64> = keys.clone().map(dot).collect();
            let max = scores.iter().copied().fold(f64::MIN, f64::max);
            largest.push(scores.iter().fold(0.0, |a: f64, s| a.max(s.abs())));
            let powers: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = powers.iter().sum();
            for c in 0..self.head_size {
                let products =
                    powers.iter().zip(keys.clone()).map(|(p, j)| p * f64::from(v.row(j)[c]));
                out.push(products.sum::<f64>() / sum);
            }
        }
        let value = self.values.iter().fold(0.0, |a: f64, &v| a.max(f64::from(v).abs()));
        (out, largest, value)
    }
}

fn heads(lengths: std::ops::Range<usize>) -> impl Strategy<Value = Sample> {
    (lengths, 1usize..70, 0.1f32..2.0).prop_flat_map(|(length, head_size, size)| {
        prop::collection::vec(-size..size, length * head_size * 3).prop_map(move |values| Sample {
            length,
            head_size,
            values,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn attention_matches_f64(
        head in heads(1..300), window in prop::option::of(prop_oneof![0usize..20, 20usize..300]),
    ) {
        let (exact, largest, value) = head.exact(window);
        let result = head.windowed(Isa::detect(), Precision::F32, window);
        for (i, (&actual, exact)) in result.iter().zip(&exact).enumerate() {
            // A score is a sum of up to 70 products of at most 2 x 2, rounded at each step. Its
            // error is the error of the exponent, so the relative error of the weight; 8 more
            // roundings for each weight. Sums over keys: 128 steps and two more blocks.
            let head_size = head.head_size as f64;
            let score = head_size * value * value / head_size.sqrt() * head_size;
            let bound = 2f64.powi(-24) * value * (2.0 * score + 2.0 * largest[i / head.head_size] + 150.0);
            prop_assert!((f64::from(actual) - exact).abs() <= bound, "{actual} {exact} {bound:e}");
        }
    }

    #[test]
    fn attention_in_two_bytes_is_near_f64(
        head in heads(1..300), window in prop::option::of(0usize..150),
    ) {
        let (exact, _, value) = head.exact(window);
        for isa in Isa::available() {
            for (precision, unit) in [(Precision::Bf16, 2f64.powi(-9)), (Precision::F16, 2f64.powi(-12))] {
                let result = head.windowed(isa, precision, window);
                for (&actual, exact) in result.iter().zip(&exact) {
                    // Both factors of a score are rounded, and in f16 its sum at each of up to 70
                    // steps: relative to the sum of magnitudes, at most head_size · value². Then
                    // weights and values are rounded, and in f16 the sums over up to 128 keys. The
                    // worst case is far off: errors of so many roundings cancel.
                    let head_size = head.head_size as f64;
                    let score = head_size.sqrt() * value * value * (2.0 + head_size.sqrt());
                    let bound = unit * value * (2.0 * score + 30.0);
                    prop_assert!((f64::from(actual) - exact).abs() <= bound, "{actual} {exact} {bound:e}");
                }
            }
        }
    }

    #[test]
    fn the_instruction_sets_agree_in_f32(
        head in heads(1..300), window in prop::option::of(0usize..150),
    ) {
        let results = Isa::available().into_iter().map(|isa| {
            head.windowed(isa, Precision::F32, window).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        let results: Vec<_> = results.collect();
        prop_assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

/// A head with repeating rows: in a tile of any height, the same query is in several places.
fn repeating(length: usize) -> Sample {
    let head_size = 24;
    let values = (0..length)
        .flat_map(|row| {
            (0..3 * head_size).map(move |c| ((row % 5 * 31 + c * 7) % 23) as f32 * 0.1 - 1.1)
        })
        .collect();
    Sample { length, head_size, values }
}

#[test]
fn a_row_does_not_depend_on_its_place() {
    let head = repeating(97);
    for isa in Isa::available() {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let result = head.attention(isa, precision);
            for (row, values) in result.chunks_exact(head.head_size).enumerate() {
                let first = &result[row % 5 * head.head_size..][..head.head_size];
                assert_eq!(values, first, "row {row}");
            }
        }
    }
}

#[test]
fn a_window_of_all_keys_is_none() {
    let head = repeating(97);
    for isa in Isa::available() {
        let all = head.attention(isa, Precision::F32);
        assert_eq!(head.windowed(isa, Precision::F32, Some(96)), all);
        assert_ne!(head.windowed(isa, Precision::F32, Some(95)), all);
    }
}

#[test]
fn scores_far_apart_select_one_value() {
    let values = vec![50.0, 50.0, 1.0, 50.0, -50.0, 2.0];
    let head = Sample { length: 2, head_size: 1, values };
    for precision in [Precision::F32, Precision::F16] {
        assert_eq!(head.attention(Isa::detect(), precision), [1.0, 1.0]);
    }
}

#[test]
fn what_is_not_finite_stays_visible() {
    for (bad, precision) in
        [(f32::NAN, Precision::F32), (f32::INFINITY, Precision::F32), (1e9, Precision::F16)]
    {
        // A query and a value; a key may be infinitely far off, which is a weight of 0.
        for part in [0, 2] {
            let mut head = repeating(40);
            head.values[part * head.head_size] = bad;
            for isa in Isa::available() {
                let native = product_precision(isa, precision) == precision;
                let result = head.attention(isa, precision);
                let affected = &result[..head.head_size];
                assert!(!native || !affected.iter().all(|v| v.is_finite()), "{bad} in {part}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_first_queries_alone_give_the_same_bits(
        head in heads(1..300), window in prop::option::of(0usize..90), share in 0.0f64..1.0,
    ) {
        let count = 1 + (share * (head.length - 1) as f64) as usize;
        let [q, k, v] = head.matrices();
        let stride = 3 * head.head_size;
        let q = Matrix::new(&head.values, count, q.columns(), stride);
        for isa in Isa::available() {
            for precision in [Precision::F32, Precision::Bf16, Precision::F16, Precision::Int8] {
                let mut out = vec![f32::NAN; count * head.head_size];
                let mut view = MatrixMut::new(&mut out, count, head.head_size, head.head_size);
                let scratch = &mut AttentionScratch::default();
                attention(isa, precision, [q, k, v], window, &mut view, scratch);
                let all = head.windowed(isa, precision, window);
                prop_assert!(out.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
        }
    }
}

#[test]
fn a_sequence_without_tokens_is_no_work() {
    let head = Sample { length: 0, head_size: 8, values: vec![0.0; 24] };
    assert!(head.attention(Isa::detect(), Precision::F32).is_empty());
}
