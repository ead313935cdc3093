//! Tests of layer norm, rotation, GELU and pooling against f64.

use half::bf16;
use polysift_kernels::cuda::{
    CudaError, Embedding, Limits, Norm, NormInput, Output, PooledTokens, Staged, glu, layer_norm,
    max_sequences, pool, rotate,
};

use crate::common::{
    BF16, F32, LIMITS, Random, TestResult, check, download, poisoned, staged, starts, stream, wide,
};

/// Widths at the boundaries of a chunk of 8, of a warp's 256, and of the four kernels.
const WIDTHS: [usize; 10] = [8, 16, 248, 256, 264, 512, 520, 768, 776, 1024];

/// Returns values and tolerances of layer norm of `row`: the result is rounded to bf16, and the f32
/// sums, difference to the mean and division may be off by 40 roundings of their size.
pub(crate) fn normalised(row: &[f64], gamma: &[f32], beta: &[f32], eps: f64) -> Vec<(f64, f64)> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + eps).sqrt();
    let size = row.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let weights = gamma.iter().zip(beta).map(|(&g, &b)| (f64::from(g), f64::from(b)));
    row.iter()
        .zip(weights)
        .map(|(x, (g, b))| {
            let value = (x - mean) * scale * g + b;
            let sums = 40.0 * F32 * (size * scale + 1.0) * g.abs();
            (value, BF16 * value.abs() + sums)
        })
        .collect()
}

#[test]
fn layer_norm_is_right_and_a_row_depends_on_itself_alone() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (i, (width, rows)) in WIDTHS.into_iter().zip([1, 7, 8, 9, 16, 17, 5, 3, 8, 13]).enumerate()
    {
        let random = &mut Random(width as u64);
        let (gamma, beta) = (random.values(width, 1.0), random.values(width, 0.5));
        let x = random.bf16_values(rows * width, if i % 2 == 0 { 3.0 } else { 1e4 });
        let norm = Norm::new(&stream, &gamma, &beta, 1e-5)?;
        let run = |x: &[bf16], rows: usize| -> Result<Vec<bf16>, CudaError> {
            let mut out = poisoned(&stream, (rows + 1) * width)?;
            let x = stream.to_device(x, "a test")?;
            layer_norm(&stream, NormInput::Rows(&x), &norm, &mut out, None, rows)?;
            download(&stream, &out)
        };
        let actual = run(&x, rows)?;
        let expected = x.chunks(width).flat_map(|row| {
            let row: Vec<f64> = wide(row).collect();
            normalised(&row, &gamma, &beta, 1e-5)
        });
        check(&format!("{rows} x {width}"), wide(&actual), expected)?;
        assert!(actual[rows * width..].iter().all(|x| x.is_nan()));
        for (row, together) in x.chunks(width).zip(actual.chunks(width)) {
            assert_eq!(run(row, 1)?[..width], *together, "{rows} x {width}");
        }
    }
    Ok(())
}

#[test]
fn a_row_without_numbers_does_not_touch_its_neighbours() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let width = 264;
    let mut x = Random(1).bf16_values(3 * width, 1.0);
    x[width] = bf16::NAN;
    let norm = Norm::new(&stream, &vec![1.0; width], &vec![0.0; width], 1e-5)?;
    let on_gpu = stream.to_device(&x, "a test")?;
    let mut hidden = poisoned(&stream, 3 * width)?;
    layer_norm(&stream, NormInput::Rows(&on_gpu), &norm, &mut hidden, None, 3)?;
    let result = download(&stream, &hidden)?;
    let finite = |row: usize| result[row * width..][..width].iter().all(|x| x.is_finite());
    assert!(finite(0) && finite(2));
    assert!(result[width..2 * width].iter().all(|x| x.is_nan()));
    Ok(())
}

#[test]
fn embedding_adds_the_row_of_the_token_and_of_its_position() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for width in WIDTHS {
        let random = &mut Random(9);
        let words = random.bf16_values(LIMITS.vocab_size * width, 1.0);
        let positions = random.values(LIMITS.num_positions * width, 1.0);
        let (gamma, beta) = (random.values(width, 1.0), random.values(width, 0.5));
        let embedding = Embedding::new(&stream, &words, &positions, width)?;
        let norm = Norm::new(&stream, &gamma, &beta, 1e-5)?;
        let mut staged = Staged::new(&stream, 48, LIMITS)?;
        let (ids, places) = ([0, 49, 1, 7, 2, 0, 2], [2, 3, 1, 4, 5, 2, 3]);
        staged.put(&stream, &ids, places, &[0, 5, 7])?;
        let mut hidden = poisoned(&stream, 48 * width)?;
        let tokens = NormInput::Tokens(&staged, &embedding);
        layer_norm(&stream, tokens, &norm, &mut hidden, None, 48)?;
        // The tail is zeros.
        let rows = ids.into_iter().zip(places).chain([(0, 0); 41]);
        let expected = rows.flat_map(|(id, position): (u32, usize)| {
            let word = wide(&words[id as usize * width..][..width]);
            let position = positions[position * width..][..width].iter();
            let row: Vec<f64> = word.zip(position).map(|(w, &p)| w + f64::from(p)).collect();
            normalised(&row, &gamma, &beta, 1e-5)
        });
        check(&format!("width {width}"), wide(&download(&stream, &hidden)?), expected)?;
    }
    Ok(())
}

#[test]
fn the_states_are_added_up_in_f32_and_normalised() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (width, rows) in WIDTHS.into_iter().zip([1, 7, 8, 9, 16, 17, 5, 3, 8, 13]) {
        let random = &mut Random(width as u64);
        let (gamma, beta) = (random.values(width, 1.0), random.values(width, 0.5));
        let embedded = random.bf16_values(rows * width, 1.0);
        let norm = Norm::new(&stream, &gamma, &beta, 1e-5)?;
        let mut states = poisoned(&stream, (rows + 1) * width)?;
        let mut hidden = poisoned(&stream, (rows + 1) * width)?;
        stream.upload(&mut hidden, 0, &embedded)?;
        let mut sums: Vec<f32> = embedded.iter().map(|x| x.to_f32()).collect();
        for is_first in [true, false, false] {
            let update = random.bf16_values(rows * width, 3.0);
            let on_gpu = stream.to_device(&update, "a test")?;
            let input = NormInput::Sums { update: &on_gpu, states: &mut states, is_first };
            layer_norm(&stream, input, &norm, &mut hidden, None, rows)?;
            for (sum, update) in sums.iter_mut().zip(&update) {
                *sum += update.to_f32();
            }
            let what = format!("width {width}, first {is_first}");
            let actual = download(&stream, &states)?;
            // A single addition in f32 is the same everywhere.
            assert_eq!(actual[..rows * width], sums, "{what}");
            assert!(actual[rows * width..].iter().all(|x| x.is_nan()), "{what}");
            let expected = sums.chunks(width).flat_map(|row| {
                let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
                normalised(&row, &gamma, &beta, 1e-5)
            });
            let actual = download(&stream, &hidden)?;
            check(&what, wide(&actual), expected)?;
            assert!(actual[rows * width..].iter().all(|x| x.is_nan()), "{what}");
        }
    }
    Ok(())
}

#[test]
fn queries_and_keys_are_turned_by_their_place_in_the_sequence() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let lengths = [1, 130, 16, 17, 300, 15, 3];
    let limits = Limits { vocab_size: 10, num_positions: 1, max_tokens: Some(300) };
    let (tokens, spans) = (lengths.iter().sum::<usize>(), starts(&lengths));
    let mut staged = Staged::new(&stream, 496, limits)?;
    staged.put(&stream, &vec![5; tokens], [], &spans)?;
    for (heads, head_size) in [(1, 32), (3, 32), (2, 64), (5, 64)] {
        let (width, half) = (heads * head_size, head_size / 2);
        let angles = Random(9).values(300 * head_size, 1.0);
        let x = Random(10).bf16_values(496 * 3 * width, 1.0);
        let mut qkv = stream.to_device(&x, "a test")?;
        let on_gpu = stream.to_device(&angles, "a test")?;
        rotate(&stream, &staged, &on_gpu, &mut qkv, (heads, head_size))?;
        let actual = download(&stream, &qkv)?;
        for span in spans.windows(2) {
            let (start, end) = (span[0] as usize, span[1] as usize);
            let expected = (start..end).flat_map(|row| {
                let (x, angles) = (&x[row * 3 * width..], &angles[(row - start) * head_size..]);
                (0..2 * width).map(move |column| {
                    let (i, at) = (column % head_size, |i: usize| f64::from(x[i]));
                    let angle = |i: usize| f64::from(angles[i]);
                    let (own, other) = if i < half {
                        (at(column) * angle(i), -at(column + half) * angle(i + half))
                    } else {
                        (at(column) * angle(i - half), at(column - half) * angle(i))
                    };
                    let value = own + other;
                    (value, BF16 * value.abs() + 3.0 * F32 * (own.abs() + other.abs()))
                })
            });
            let rows = actual[start * 3 * width..end * 3 * width].chunks(3 * width);
            let turned = rows.flat_map(|row| wide(&row[..2 * width]));
            check(&format!("{heads} heads of {head_size}, from {start}"), turned, expected)?;
        }
        // Values, and rows outside the sequences, do not change.
        for (row, (actual, x)) in actual.chunks(3 * width).zip(x.chunks(3 * width)).enumerate() {
            let kept = if row < tokens { 2 * width } else { 0 };
            assert_eq!(actual[kept..], x[kept..], "row {row}");
        }
        let short = stream.to_device(&angles[head_size..], "a test")?;
        assert!(rotate(&stream, &staged, &short, &mut qkv, (heads, head_size)).is_err());
    }
    assert!(staged.put(&stream, &[5; 301], [], &[0, 301]).is_err());
    let learned = self::staged(&stream, &[3])?;
    let mut qkv = stream.to_device(&vec![bf16::ONE; learned.tokens() * 96], "a test")?;
    let angles = stream.to_device(&[1.0f32; 320], "a test")?;
    assert!(rotate(&stream, &learned, &angles, &mut qkv, (1, 32)).is_err());
    Ok(())
}

#[test]
fn gated_units_are_right() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (rows, width) in [(1, 8), (3, 40), (17, 1_152), (5, 3_072)] {
        let x = Random(width as u64).bf16_values(rows * 2 * width, 2.0);
        let on_gpu = stream.to_device(&x, "a test")?;
        let mut out = poisoned(&stream, (rows + 1) * width)?;
        glu(&stream, &on_gpu, &Output::Bf16(&mut out), (rows, width))?;
        let actual = download(&stream, &out)?;
        let expected = x.chunks(2 * width).flat_map(|row| {
            let (activated, other) = row.split_at(width);
            activated.iter().zip(other).map(|(&a, &b)| {
                let ((value, error), b) = (exact_gelu(f64::from(a)), f64::from(b));
                (value * b, BF16 * (value * b).abs() + error * b.abs())
            })
        });
        check(&format!("{rows} rows of {width}"), wide(&actual), expected)?;
        assert!(actual[rows * width..].iter().all(|x| x.is_nan()));
        let out = Output::Bf16(&mut out);
        assert!(glu(&stream, &on_gpu, &out, (rows + 1, width)).is_err());
        assert!(glu(&stream, &on_gpu, &out, (rows, width - 4)).is_err());
    }
    Ok(())
}

/// Returns exact GELU, and the error of the GPU's GELU before it is rounded.
pub(crate) fn exact_gelu(x: f64) -> (f64, f64) {
    let value = x * 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    (value, f64::max(value.abs() * 2f64.powi(-15), 2f64.powi(-23)))
}

#[test]
fn gelu_is_right_for_every_bf16_number() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let x: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let gated: Vec<bf16> = x.iter().copied().chain(vec![bf16::ONE; x.len()]).collect();
    let mut out = poisoned(&stream, x.len())?;
    let result = Output::Bf16(&mut out);
    glu(&stream, &stream.to_device(&gated, "a test")?, &result, (1, x.len()))?;
    let actual = download(&stream, &out)?;
    let mut rounded_right = 0;
    for (&x, &y) in x.iter().zip(&actual).filter(|(x, _)| x.is_finite()) {
        let (exact, error) = exact_gelu(f64::from(x));
        // `half` is half the step of bf16 from y away from zero.
        let next = f64::from(bf16::from_bits(y.to_bits() + 1));
        let half = (next - f64::from(y)).abs() / 2.0;
        let distance = (f64::from(y) - exact).abs();
        assert!(distance <= half + error, "gelu({x:e}) is {y:e}, not {exact:e}");
        assert!(y.is_sign_negative() == x.is_sign_negative(), "gelu({x:e}) is {y:e}");
        rounded_right += usize::from(distance <= half);
    }
    assert!(rounded_right > 65_280 * 99 / 100, "{rounded_right}");
    // For values that are not finite, the result is x Phi(x).
    for (&x, &y) in x.iter().zip(&actual).filter(|(x, _)| !x.is_finite()) {
        assert!(if x == bf16::INFINITY { y == x } else { y.is_nan() }, "gelu({x}) is {y}");
    }
    Ok(())
}

#[test]
fn pooling_takes_the_mean_or_one_state_of_each_sequence() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    // The lengths are around the 32 tokens added at a time, four times that, and a few.
    let lengths = [1, 7, 31, 9, 32, 33, 300, 128, 129, 2];
    let spans = starts(&lengths);
    for width in WIDTHS {
        let staged = staged(&stream, &lengths)?;
        let mut states = Random(6).bf16_values(staged.tokens() * width, 1.0);
        // One sequence and the tail are NaN.
        states[spans[3] as usize * width..spans[4] as usize * width].fill(bf16::NAN);
        states[spans[lengths.len()] as usize * width..].fill(bf16::NAN);
        let hidden = stream.to_device(&states, "a test")?;
        for tokens in [PooledTokens::All, PooledTokens::First, PooledTokens::Last] {
            let rows = max_sequences(staged.tokens());
            let mut embeddings = poisoned(&stream, rows * width)?;
            pool(&stream, &staged, &hidden, &mut embeddings, width, tokens)?;
            let actual = download(&stream, &embeddings)?;
            let expected = spans.windows(2).flat_map(|span| {
                let own = &states[span[0] as usize * width..span[1] as usize * width];
                let own = match tokens {
                    PooledTokens::All => own,
                    PooledTokens::First => &own[..width],
                    PooledTokens::Last => &own[own.len() - width..],
                };
                mean(own, width)
            });
            let what = format!("width {width}, {tokens:?}");
            check(&what, actual.iter().map(|&x| f64::from(x)), expected)?;
            assert!(actual[lengths.len() * width..].iter().all(|x| x.is_nan()));
        }
    }
    Ok(())
}

#[test]
fn the_mean_of_a_sequence_depends_on_it_alone() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let width = 72;
    let pooled = |lengths: &[usize], states: &[bf16]| -> Result<Vec<f32>, CudaError> {
        let staged = staged(&stream, lengths)?;
        let mut hidden = poisoned(&stream, staged.tokens() * width)?;
        stream.upload(&mut hidden, 0, states)?;
        let rows = max_sequences(staged.tokens());
        let mut embeddings = poisoned(&stream, rows * width)?;
        pool(&stream, &staged, &hidden, &mut embeddings, width, PooledTokens::All)?;
        download(&stream, &embeddings)
    };
    // There are more sequences than blocks that run at a time.
    let lengths: Vec<usize> =
        (0..8 * stream.device().info().multiprocessors as usize).map(|i| 1 + i * 7 % 150).collect();
    let lengths = &lengths[..lengths.len().min(700)];
    let spans = starts(lengths);
    let states = Random(7).bf16_values(lengths.iter().sum::<usize>() * width, 1.0);
    let together = pooled(lengths, &states)?;
    for (i, &length) in lengths.iter().enumerate().step_by(9) {
        let alone = pooled(&[length], &states[spans[i] as usize * width..][..length * width])?;
        assert_eq!(alone[..width], together[i * width..][..width], "sequence {i}");
    }
    Ok(())
}

/// Returns the mean of the rows, with the error of one f32 addition per row.
fn mean(rows: &[bf16], width: usize) -> Vec<(f64, f64)> {
    let count = (rows.len() / width) as f64;
    let column = |i: usize| wide(rows).skip(i).step_by(width);
    (0..width)
        .map(|i| {
            let size = column(i).map(f64::abs).sum::<f64>() / count;
            (column(i).sum::<f64>() / count, (count + 2.0) * F32 * size)
        })
        .collect()
}
