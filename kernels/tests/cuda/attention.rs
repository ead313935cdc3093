//! Tests of attention against softmax(q kᵀ / √D) v in f64.

use half::bf16;
use polysift_kernels::cuda::{
    Limits, MatrixInstructions, Output, Stream, attention, choose_attention,
};

use crate::common::{
    BF16, F32, LIMITS, Random, TestResult, check, download, is_simulated, poisoned, staged, starts,
    stream, wide,
};
use crate::e4m3::{narrow, scaled};

/// Returns the instructions and head sizes of the kernels that the GPU of `stream` has.
fn kernels(stream: &Stream) -> Vec<(MatrixInstructions, usize)> {
    let warp = MatrixInstructions::Warp;
    let mut all = vec![(warp, 32), (warp, 64), (MatrixInstructions::fastest(stream.device()), 64)];
    all.dedup();
    all
}

/// Lengths around every boundary of 8 keys, 64 keys and 128 queries.
const EDGES: [usize; 24] = [
    1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 95, 97, 127, 128, 129, 191, 193, 256, 257, 511,
    512,
];

/// Runs `kernel` on `qkv` `[N, 3 * heads * D]` and returns `[T, heads * D]`, T >= N.
fn run(
    stream: &Stream,
    (kernel, head_size): (MatrixInstructions, usize),
    heads: usize,
    lengths: &[usize],
    window: Option<usize>,
    qkv: &[bf16],
) -> Result<Vec<bf16>, Box<dyn std::error::Error>> {
    let staged = staged(stream, lengths)?;
    let width = heads * head_size;
    // The tail is poison, as after a larger batch.
    let mut input = poisoned(stream, staged.tokens() * 3 * width)?;
    stream.upload(&mut input, 0, qkv)?;
    let mut context = poisoned(stream, staged.tokens() * width)?;
    let result = Output::Bf16(&mut context);
    attention(stream, &staged, &input, &result, (heads, head_size), window, kernel)?;
    Ok(download(stream, &context)?)
}

/// Returns values and tolerances of the context of one sequence, for all heads.
///
/// The kernel rounds each weight exp(s - max) and the result to bf16. The f32 errors are far
/// smaller (the scores are off by D roundings, which the exponential passes on).
fn oracle(
    qkv: &[bf16],
    (heads, head_size): (usize, usize),
    length: usize,
    window: Option<usize>,
) -> Vec<(f64, f64)> {
    let width = heads * head_size;
    let at = |row: usize, part: usize, i: usize| f64::from(qkv[row * 3 * width + part * width + i]);
    let mut out = vec![(0.0, 0.0); length * width];
    for head in 0..heads {
        for row in 0..length {
            let columns = head * head_size..(head + 1) * head_size;
            let keys = window.map_or(0..length, |w| row.saturating_sub(w)..length.min(row + w + 1));
            let scores: Vec<f64> = keys
                .clone()
                .map(|key| columns.clone().map(|i| at(row, 0, i) * at(key, 1, i)).sum::<f64>())
                .map(|score| score / (head_size as f64).sqrt())
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            // The exponentials of f32 scores of size s are off by s times a few roundings.
            let magnitude = scores.iter().fold(1.0, |m: f64, score| m.max(score.abs()));
            let weight_error = BF16 + 8.0 * head_size as f64 * F32 * magnitude;
            for i in columns {
                let values = || weights.iter().zip(keys.clone()).map(|(w, key)| w * at(key, 2, i));
                let value = values().sum::<f64>() / total;
                let spread = values().map(f64::abs).sum::<f64>() / total;
                out[row * width + i] = (value, BF16 * value.abs() + weight_error * spread + 1e-30);
            }
        }
    }
    out
}

fn check_lengths(stream: &Stream, lengths: &[usize], heads: usize, scale: f32) -> TestResult {
    check_window(stream, lengths, heads, None, scale)
}

fn check_window(
    stream: &Stream,
    lengths: &[usize],
    heads: usize,
    window: Option<usize>,
    scale: f32,
) -> TestResult {
    for (kernel, head_size) in kernels(stream) {
        let width = heads * head_size;
        let tokens: usize = lengths.iter().sum();
        let qkv = Random(3).bf16_values(tokens * 3 * width, scale);
        let context = run(stream, (kernel, head_size), heads, lengths, window, &qkv)?;
        let starts = starts(lengths);
        let spans = starts.windows(2).map(|span| (span[0] as usize, span[1] as usize));
        // Every sequence has a thread: all lengths up to 513 take minutes on one.
        let check_span = |(start, end): (usize, usize)| {
            let expected =
                oracle(&qkv[start * 3 * width..], (heads, head_size), end - start, window);
            let what =
                format!("{kernel:?} {head_size}, {} tokens, {window:?}, {scale}", end - start);
            check(&what, wide(&context[start * width..end * width]), expected)
                .map_err(|error| error.to_string())
        };
        let check_span = &check_span;
        let checked: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = spans.map(|span| scope.spawn(move || check_span(span))).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        for result in checked {
            result.map_err(|_| "a thread has panicked")??;
        }
        assert!(context[tokens * width..].iter().all(|x| x.is_nan()), "rows of no sequence");
    }
    Ok(())
}

#[test]
fn attention_is_right_for_every_length() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    if is_simulated(stream.device()) {
        check_lengths(&stream, &EDGES, 1, 1.0)
    } else {
        let all: Vec<usize> = (1..=513).collect();
        all.chunks(64).try_for_each(|lengths| check_lengths(&stream, lengths, 1, 1.0))
    }
}

#[test]
fn attention_is_right_for_several_heads_of_many_short_sequences() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let lengths: Vec<usize> = (0..40).map(|i| 1 + i * 7 % 13).collect();
    check_lengths(&stream, &lengths, 3, 1.0)
}

#[test]
fn attention_is_right_where_one_key_takes_nearly_all() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    // Scores are some hundreds: without subtracting the maximum, exponentials would overflow.
    check_lengths(&stream, &[130, 65], 1, 8.0)
}

#[test]
fn attention_is_right_where_later_keys_score_higher() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    // Between steps the largest score grows by more and by less than the sums are scaled for.
    check_lengths(&stream, &[320, 200], 1, 2.5)?;
    check_lengths(&stream, &[320, 200], 1, 1.6)
}

#[test]
fn a_query_meets_the_keys_of_its_window() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    // The windows are below, at and above a step of keys, the lengths around their edges.
    for (window, lengths) in [
        (0, &[1, 2, 65, 130][..]),
        (1, &[1, 2, 3, 129]),
        (8, &[8, 9, 10, 17, 18, 64, 136, 137, 200]),
        (62, &[130, 200]),
        (63, &[62, 63, 64, 65, 190, 191, 192]),
        (64, &[63, 64, 65, 66, 128, 129, 130, 192, 193, 257, 400]),
        (65, &[64, 65, 66, 67, 193, 194, 321]),
        (126, &[130, 300]),
        (200, &[199, 200, 201, 202, 329, 457]),
    ] {
        check_window(&stream, lengths, 1, Some(window), 1.0)?;
    }
    check_window(&stream, &[40, 131, 7, 90], 3, Some(8), 1.0)?;
    // Scores are some hundreds, and most are masked.
    check_window(&stream, &[130, 65], 1, Some(3), 8.0)
}

#[test]
fn a_window_that_holds_all_keys_gives_the_bits_of_none() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let lengths = [3, 64, 200, 129];
    for (kernel, head_size) in kernels(&stream) {
        let qkv = Random(8).bf16_values(396 * 3 * head_size, 1.0);
        let of = |window| run(&stream, (kernel, head_size), 1, &lengths, window, &qkv);
        let bits = |x: Vec<bf16>| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let all = bits(of(None)?);
        assert_eq!(all, bits(of(Some(200))?));
        assert_eq!(all, bits(of(Some(usize::MAX))?));
        assert_ne!(all, bits(of(Some(100))?));
    }
    Ok(())
}

#[test]
fn a_sequence_without_numbers_does_not_touch_its_neighbours() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let lengths = [70, 65, 130];
    for (kernel, head_size) in kernels(&stream) {
        let mut qkv = Random(5).bf16_values(265 * 3 * head_size, 1.0);
        let before = run(&stream, (kernel, head_size), 1, &lengths, None, &qkv)?;
        qkv[70 * 3 * head_size..135 * 3 * head_size].fill(bf16::NAN);
        let after = run(&stream, (kernel, head_size), 1, &lengths, None, &qkv)?;
        let bits = |x: &[bf16]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for range in [0..70, 135..265] {
            let range = range.start * head_size..range.end * head_size;
            assert_eq!(bits(&before[range.clone()]), bits(&after[range]));
        }
        assert!(after[70 * head_size..135 * head_size].iter().all(|x| x.is_nan()));
    }
    Ok(())
}

#[test]
fn the_context_in_e4m3_is_that_in_bf16_rounded_further() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    if stream.device().info().compute_capability != (9, 0) {
        return Ok(());
    }
    let lengths = [1, 130, 65, 200, 17];
    for (kernel, head_size) in kernels(&stream) {
        for (heads, window) in [(3, None), (2, Some(20))] {
            let width = heads * head_size;
            let qkv = Random(4).bf16_values(413 * 3 * width, 1.0);
            let wide_rows = run(&stream, (kernel, head_size), heads, &lengths, window, &qkv)?;
            let staged = staged(&stream, &lengths)?;
            let mut input = poisoned(&stream, staged.tokens() * 3 * width)?;
            stream.upload(&mut input, 0, &qkv)?;
            let (mut context, scale) = (poisoned(&stream, staged.tokens() * width)?, 0.03);
            let result = Output::Fp8(&mut context, scale);
            attention(&stream, &staged, &input, &result, (heads, head_size), window, kernel)?;
            let bytes: Vec<u8> = download(&stream, &context)?;
            let expected = wide(&wide_rows[..413 * width])
                .map(|value| narrow((value, BF16 * value.abs()), scale));
            let what = format!("{kernel:?} {head_size}, {heads} heads, {window:?}");
            check(&what, scaled(&bytes, scale), expected)?;
            assert!(bytes[413 * width..].iter().all(|&byte| byte == 77), "rows of no sequence");
        }
    }
    Ok(())
}

#[test]
fn a_sequence_alone_gives_the_same_bits_as_in_company() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for (kernel, head_size) in kernels(&stream) {
        let qkv = Random(7).bf16_values(200 * 3 * head_size, 1.0);
        let company = run(&stream, (kernel, head_size), 1, &[9, 129, 62], None, &qkv)?;
        let own = &qkv[9 * 3 * head_size..138 * 3 * head_size];
        let alone = run(&stream, (kernel, head_size), 1, &[129], None, own)?;
        let own = &company[9 * head_size..138 * head_size];
        assert!(own.iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    Ok(())
}

#[test]
fn the_kernel_for_warpgroups_is_taken_where_there_is_one() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let limits = Limits { vocab_size: 10, num_positions: 600, ..LIMITS };
    for head_size in [32, 64] {
        let (tokens, width) = (1_056, 2 * head_size);
        let mut qkv = poisoned(&stream, tokens * 3 * width)?;
        let mut context = poisoned(&stream, tokens * width)?;
        let (heads, sizes) = ((2, head_size), (limits, 200));
        for window in [None, Some(20)] {
            let chosen = choose_attention(&stream, &mut qkv, &mut context, heads, window, sizes)?;
            let fastest = MatrixInstructions::fastest(stream.device());
            assert_eq!(chosen, if head_size == 64 { fastest } else { MatrixInstructions::Warp });
        }
    }
    Ok(())
}
