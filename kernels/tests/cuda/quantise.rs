//! Tests of rows in e4m3 against an f64 oracle with the same roundings.

use half::bf16;
use polysift_kernels::cuda::{
    CudaError, Embedding, Norm, Quantised, Staged, Stream, add_norm, embed_layer_norm, layer_norm,
    quantise_rows,
};

use crate::common::{F32, LIMITS, Random, TestResult, download, poisoned, stream, wide};
use crate::rows::normalised;

/// Relative error of rounding to e4m3, which has 4 significant bits, and half its smallest step.
pub(crate) const E4M3: f64 = 1.0 / 16.0;
pub(crate) const E4M3_STEP: f64 = 1.0 / 1024.0;
const NAN: u8 = 0x7f;

/// Returns a stream of a GPU that has e4m3.
fn hopper() -> Result<Option<Stream>, Box<dyn std::error::Error>> {
    let stream = stream()?;
    Ok(stream.filter(|stream| stream.device().info().compute_capability == (9, 0)))
}

/// Returns the value of a byte: a sign, 4 bits of exponent (bias 7), 3 of mantissa.
pub(crate) fn decoded(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let size = match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa * 2f64.powi(-9),
        _ => (8.0 + mantissa) * 2f64.powi(exponent - 10),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// Returns the byte nearest to `value`, the even one of two; values beyond 448 become 448.
fn nearest(value: f64) -> u8 {
    if value.is_nan() {
        return NAN;
    }
    let distance = |byte: &u8| (decoded(*byte) - value.abs().min(448.0)).abs();
    let nearest =
        (0..NAN).min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2))));
    nearest.unwrap_or(NAN) | u8::from(value.is_sign_negative()) << 7
}

/// Quantises a row as `quantise_rows` does: each operation is rounded to f32, then to e4m3.
pub(crate) fn quantised(row: &[bf16]) -> (Vec<u8>, f32) {
    let largest = row.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
    let (scale, inverse) =
        if largest <= 2f32.powi(-100) { (1.0, 1.0) } else { (largest / 448.0, 448.0 / largest) };
    (row.iter().map(|x| nearest(f64::from(x.to_f32() * inverse))).collect(), scale)
}

/// Returns bytes and scales of the rows of `x`, with room for one more row.
fn run(stream: &Stream, x: &[bf16], width: usize) -> Result<(Vec<u8>, Vec<f32>), CudaError> {
    let rows = x.len() / width;
    let mut out = Quantised {
        values: poisoned(stream, (rows + 1) * width)?,
        scales: poisoned(stream, rows + 1)?,
    };
    quantise_rows(stream, &stream.to_device(x, "a test")?, &mut out, (rows, width))?;
    Ok((download(stream, &out.values)?, download(stream, &out.scales)?))
}

#[test]
fn the_oracle_itself_knows_the_numbers_of_e4m3() {
    for (byte, value) in [(0x7e, 448f64), (0x38, 1.0), (0x08, 0.015_625), (0x01, 0.001_953_125)] {
        assert!(
            decoded(byte).to_bits() == value.to_bits()
                && nearest(value) == byte
                && nearest(-value) == byte | 0x80
        );
    }
    assert!(decoded(NAN).is_nan());
    assert!((1..NAN).all(|byte| decoded(byte) > decoded(byte - 1)));
}

#[test]
fn bytes_are_rounded_to_nearest_even_and_stop_at_the_largest() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    // The row has every e4m3 number and every midpoint, which are exact in bf16, and the bf16 on
    // either side. The largest is 448, so the scale is 1.
    let middle = |byte: u8| decoded(byte).midpoint(decoded(byte + 1));
    let exact = (0..NAN).map(decoded).chain((0..NAN - 1).map(middle)).map(bf16::from_f64);
    let mut row: Vec<bf16> = exact
        .flat_map(|x| [-1, 0, 1].map(|step| x.to_bits().saturating_add_signed(step)))
        .filter(|&bits| bits <= bf16::from_f64(448.0).to_bits())
        .flat_map(|bits| [bf16::from_bits(bits), -bf16::from_bits(bits)])
        .collect();
    row.resize(row.len().next_multiple_of(16), bf16::ZERO);
    let (bytes, scales) = run(&stream, &row, row.len())?;
    for (x, &byte) in row.iter().zip(&bytes) {
        assert_eq!(byte, nearest(f64::from(*x)), "{x}");
    }
    assert_eq!(scales[0].to_bits(), 1f32.to_bits());
    Ok(())
}

#[test]
fn rows_are_quantised_at_every_width() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    for (width, rows) in [16, 48, 256, 768, 1024, 1040, 1536, 3072, 4096]
        .into_iter()
        .zip([5, 1, 3].into_iter().cycle())
    {
        let random = &mut Random(width as u64);
        let x: Vec<bf16> =
            (0..rows).flat_map(|i| random.bf16_values(width, 10f32.powi(8 * i - 16))).collect();
        let (bytes, scales) = run(&stream, &x, width)?;
        for (i, row) in x.chunks(width).enumerate() {
            let (expected, scale) = quantised(row);
            assert_eq!(bytes[i * width..][..width], expected, "row {i} of {width}");
            assert_eq!(scales[i].to_bits(), scale.to_bits(), "row {i} of {width}");
        }
        assert!(bytes[x.len()..].iter().all(|&byte| byte == 77));
        assert!(scales[x.len() / width].is_nan());
    }
    Ok(())
}

#[test]
fn rows_without_a_scale_touch_nobody() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    let width = 1040;
    let mut x = Random(3).bf16_values(10 * width, 1.0);
    let mut set = |row: usize, values: [f32; 2]| {
        let row = &mut x[row * width..][..width];
        row.fill(bf16::from_f32(values[0]));
        row[width - 1] = bf16::from_f32(values[1]);
    };
    set(1, [0.0, -0.0]);
    set(3, [0.0, 2f32.powi(-100)]);
    set(4, [2f32.powi(-99), 2f32.powi(-102)]);
    set(5, [1e-40, 1e-39]);
    set(6, [f32::MAX / 2.0, -1.0]);
    set(7, [1.0, f32::NEG_INFINITY]);
    set(8, [f32::NAN, f32::NAN]);
    x[2 * width + 7] = bf16::NAN;
    let (bytes, scales) = run(&stream, &x, width)?;
    let row = |i: usize| &bytes[i * width..][..width];
    assert!(row(1).iter().all(|byte| [0, 0x80].contains(byte)));
    assert_eq!(scales[1].to_bits(), 1f32.to_bits());
    // A NaN affects only its own value.
    let nans = row(2).iter().enumerate().filter(|(_, byte)| **byte & 0x7f == NAN);
    assert!(nans.map(|(i, _)| i).eq([7]) && scales[2].is_finite());
    // With an infinity the whole row is NaN when it is scaled back.
    let lost =
        |i: usize| row(i).iter().filter(|b| (decoded(**b) * f64::from(scales[i])).is_nan()).count();
    assert!([7, 8].into_iter().all(|i| lost(i) == width));
    assert!([0, 1, 3, 4, 5, 6, 9].into_iter().all(|i| lost(i) == 0));
    for i in [0, 1, 2, 3, 4, 5, 6, 9] {
        let (expected, scale) = quantised(&x[i * width..][..width]);
        assert_eq!((row(i), scales[i]), (&expected[..], scale), "row {i}");
    }
    Ok(())
}

/// Fails unless each byte times its scale is the expected value, within its error.
fn check_rows(
    what: &str,
    bytes: &[u8],
    scales: &[f32],
    expected: &[Vec<(f64, f64)>],
) -> TestResult {
    for (i, row) in expected.iter().enumerate() {
        let largest =
            row.iter().fold((0.0, 0.0), |(v, e): (f64, f64), x| (v.max(x.0.abs()), e.max(x.1)));
        let scale = f64::from(scales[i]);
        // The division is rounded.
        let error = largest.1 / 448.0 + 2.0 * F32 * scale;
        if (scale - largest.0 / 448.0).abs() > error {
            return Err(format!("{what}: scale {i} is {scale:e}, largest {largest:?}").into());
        }
        for (j, (&byte, &(value, error))) in bytes[i * row.len()..].iter().zip(row).enumerate() {
            let actual = decoded(byte) * scale;
            // Two divisions and the product are rounded, and the rounded value is off by `error`.
            let rounding = f64::max(E4M3 * value.abs(), E4M3_STEP * scale);
            let tolerance = (rounding + error) * (1.0 + E4M3) + 4.0 * F32 * value.abs();
            if (actual - value).abs() > tolerance {
                return Err(format!(
                    "{what}: {actual:e} at {i}, {j}, not {value:e} within {tolerance:e}"
                )
                .into());
            }
        }
    }
    Ok(())
}

#[test]
fn layer_norms_write_the_same_rows_in_bf16_and_e4m3() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    for (width, rows) in [8, 384, 512, 768, 776, 1024].into_iter().zip([1, 5, 8, 9, 3, 2]) {
        let random = &mut Random(width as u64);
        let (gamma, beta) = (random.values(width, 1.0), random.values(width, 0.5));
        let norm = Norm::new(&stream, &gamma, &beta, 1e-5)?;
        let x = random.bf16_values(rows * width, 1.0);
        let on_gpu = stream.to_device(&x, "a test")?;
        let (mut plain, mut both) = (poisoned(&stream, x.len())?, poisoned(&stream, x.len())?);
        let mut out = Quantised {
            values: poisoned(&stream, (rows + 1) * width)?,
            scales: poisoned(&stream, rows + 1)?,
        };
        layer_norm(&stream, &on_gpu, &norm, &mut plain, None, rows)?;
        layer_norm(&stream, &on_gpu, &norm, &mut both, Some(&mut out), rows)?;
        assert_eq!(download(&stream, &both)?, download(&stream, &plain)?);
        let (bytes, scales) = (download(&stream, &out.values)?, download(&stream, &out.scales)?);
        let exact = |row: Vec<f64>| -> Vec<(f64, f64)> {
            let values = normalised(&row, &gamma, &beta, 1e-5).into_iter();
            // The bytes are not rounded to bf16, so the tolerance leaves that rounding out.
            values
                .map(|(v, e)| (v, e - crate::common::BF16 * v.abs() + 4.0 * F32 * v.abs()))
                .collect()
        };
        let expected: Vec<_> = x.chunks(width).map(|row| exact(wide(row).collect())).collect();
        check_rows(&format!("{rows} x {width}"), &bytes, &scales, &expected)?;
        assert!(bytes[rows * width..].iter().all(|&byte| byte == 77) && scales[rows].is_nan());

        // The rows of `x` added to zeros in f32 are the rows of `x`.
        let mut zeros = stream.to_device(&vec![0.0f32; x.len()], "a test")?;
        let mut sums = Quantised::new(stream.device(), rows + 1, width, "a test")?;
        let states = (&mut zeros, false);
        add_norm(&stream, &on_gpu, states, &norm, &mut both, Some(&mut sums), rows)?;
        assert_eq!(download(&stream, &both)?, download(&stream, &plain)?);
        assert_eq!(download(&stream, &sums.values)?[..x.len()], bytes[..x.len()]);
        assert_eq!(download(&stream, &sums.scales)?[..rows], scales[..rows]);

        let words = random.bf16_values(LIMITS.vocab_size * width, 1.0);
        let positions = random.values(LIMITS.num_positions * width, 1.0);
        let embedding = Embedding::new(&stream, &words, &positions, width)?;
        let mut staged = Staged::new(&stream, 48, LIMITS)?;
        staged.put(&stream, &[0, 49, 7, 2], &[0, 3, 4])?;
        let (mut plain, mut both) =
            (poisoned(&stream, 48 * width)?, poisoned(&stream, 48 * width)?);
        let mut out = Quantised::new(stream.device(), 48, width, "a test")?;
        embed_layer_norm(&stream, &staged, &embedding, &norm, &mut plain, None)?;
        embed_layer_norm(&stream, &staged, &embedding, &norm, &mut both, Some(&mut out))?;
        assert_eq!(download(&stream, &both)?, download(&stream, &plain)?);
        let (bytes, scales) = (download(&stream, &out.values)?, download(&stream, &out.scales)?);
        let places = [(0, 2), (49, 3), (7, 4), (2, 2)].into_iter().chain([(0, 0); 44]);
        let expected: Vec<_> = places
            .map(|(id, position): (usize, usize)| {
                let position = positions[position * width..][..width].iter();
                let word = wide(&words[id * width..][..width]);
                exact(word.zip(position).map(|(w, &p)| w + f64::from(p)).collect())
            })
            .collect();
        check_rows(&format!("embedding, width {width}"), &bytes, &scales, &expected)?;
    }
    Ok(())
}

#[test]
fn sizes_that_do_not_fit_are_refused() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    let x = stream.to_device(&[bf16::ONE; 64], "a test")?;
    let mut out = Quantised::new(stream.device(), 2, 32, "a test")?;
    for (rows, width, unsupported) in
        [(3, 32, false), (2, 64, false), (2, 24, true), (0, 16, false)]
    {
        let refused = quantise_rows(&stream, &x, &mut out, (rows, width));
        let right = match refused {
            Err(CudaError::Shape { .. }) => !unsupported,
            Err(CudaError::Unsupported { .. }) => unsupported,
            _ => false,
        };
        assert!(right, "{rows} x {width}");
    }
    Ok(())
}
