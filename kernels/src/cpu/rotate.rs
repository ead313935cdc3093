//! Rotary position embedding (`RoPE`) of GPT-NeoX: value `i` rotates with `i + head_size / 2`.

use crate::cpu::isa::vectorized;

vectorized! {
    /// Rotates the first `heads` heads of each row of `rows` (`stride` f32 each) in place. Row `i`
    /// of `angles` `[length, head_size]` holds the cosines of row `i`, then its sines. A result has
    /// three roundings (`rotation_matches_f64`).
    pub fn rotate(
        rows: &mut [f32], stride: usize, heads: usize, angles: &[f32], head_size: usize,
    ) {
        let half = head_size / 2;
        assert!(head_size == 2 * half && half > 0, "a head has {head_size} values");
        assert!(heads * head_size <= stride && rows.len().is_multiple_of(stride), "rows do not fit");
        assert!(angles.len() / head_size >= rows.len() / stride, "angles end early");
        for (row, angles) in rows.chunks_exact_mut(stride).zip(angles.chunks_exact(head_size)) {
            let (cosines, sines) = angles.split_at(half);
            for head in row[..heads * head_size].chunks_exact_mut(head_size) {
                let (first, second) = head.split_at_mut(half);
                let pairs = first.iter_mut().zip(second).zip(cosines.iter().zip(sines));
                for ((x, y), (&cosine, &sine)) in pairs {
                    (*x, *y) = (*x * cosine - *y * sine, *y * cosine + *x * sine);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Isa;

    proptest! {
        #[test]
        fn rotation_matches_f64(
            length in 1usize..5, heads in 1usize..4, half in 1usize..40, angle in -9.0f64..9.0,
        ) {
            let (head_size, stride) = (2 * half, 2 * half * heads + 3);
            let x: Vec<f32> = (0..length * stride).map(|i| (i * 37 % 101) as f32 * 0.1 - 5.0).collect();
            let turn = |row: usize, i: usize| angle * (row + 1) as f64 / (i + 1) as f64;
            let angles: Vec<f32> = (0..length)
                .flat_map(|row| {
                    let of = move |i| turn(row, i);
                    (0..half).map(move |i| of(i).cos() as f32).chain((0..half).map(move |i| of(i).sin() as f32))
                })
                .collect();
            let results: Vec<_> = Isa::available().into_iter().map(|isa| {
                let mut rows = x.clone();
                rotate(isa, &mut rows, stride, heads, &angles, head_size);
                rows
            }).collect();
            prop_assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
            for (i, &value) in results[0].iter().enumerate() {
                let (row, column) = (i / stride, i % stride);
                let (head, c) = (column / head_size, column % head_size);
                if head >= heads {
                    prop_assert_eq!(value.to_bits(), x[i].to_bits());
                    continue;
                }
                let at = |c: usize| f64::from(x[row * stride + head * head_size + c]);
                let (sine, cosine) = turn(row, c % half).sin_cos();
                let (own, other) = (at(c), at((c + half) % head_size));
                let exact = own * cosine + if c < half { -other * sine } else { other * sine };
                // Both angles, both products and their sum are rounded.
                let bound = 3.0 * 2f64.powi(-24) * (own.abs() + other.abs());
                prop_assert!((f64::from(value) - exact).abs() <= bound, "{value} {exact}");
            }
        }
    }
}
