//! Tests of results in e4m3 against an f64 oracle with the same roundings.

use half::bf16;
use polysift_kernels::cuda::{
    Bound, Embedding, Norm, NormInput, Output, Staged, Stream, glu, layer_norm,
};

use crate::common::{
    BF16, F32, LIMITS, Random, TestResult, check, download, poisoned, stream, wide,
};
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

/// Returns the e4m3 bytes of a row of weights and the row's scale. The scale maps the largest
/// magnitude of the row to 448.
pub(crate) fn quantised(row: &[bf16]) -> (Vec<u8>, f32) {
    let scale = row.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max) / 448.0;
    (stored(row, scale), scale)
}

/// Returns the bytes of values, divided by `scale` in f32.
pub(crate) fn stored(values: &[bf16], scale: f32) -> Vec<u8> {
    values.iter().map(|x| nearest(f64::from(x.to_f32() / scale))).collect()
}

/// Returns the values of bytes with `scale`.
pub(crate) fn scaled(bytes: &[u8], scale: f32) -> impl Iterator<Item = f64> {
    bytes.iter().map(move |&byte| decoded(byte) * f64::from(scale))
}

/// Adds to a tolerance before rounding that of a value in e4m3. The inverse of the scale and the
/// product with it are rounded to f32.
pub(crate) fn narrow((value, error): (f64, f64), scale: f32) -> (f64, f64) {
    let rounding = f64::max(E4M3 * value.abs(), E4M3_STEP * f64::from(scale));
    (value, (rounding + error) * (1.0 + E4M3) + 4.0 * F32 * value.abs())
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
    // GELU of 64 is 64, so that the gate gives 64 times every bf16 number: all e4m3 numbers, their
    // midpoints and what is on either side are among them.
    let x: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).filter(|x| x.is_finite()).collect();
    let gated = [vec![bf16::from_f32(64.0); x.len()], x.clone()].concat();
    let mut out = poisoned(&stream, x.len())?;
    let result = Output::Fp8(&mut out, 64.0);
    glu(&stream, &stream.to_device(&gated, "a test")?, &result, (1, x.len()))?;
    for (x, byte) in x.iter().zip(download::<u8>(&stream, &out)?) {
        // A product beyond f32 is an infinity, and its magnitude stops at 448 as well.
        assert_eq!(byte, nearest(f64::from(*x)), "{x:e}");
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
        let scale = Bound::Normalised { gamma: &gamma, beta: &beta }.scale();
        let x = random.bf16_values(rows * width, 1.0);
        let on_gpu = stream.to_device(&x, "a test")?;
        let (mut plain, mut both) = (poisoned(&stream, x.len())?, poisoned(&stream, x.len())?);
        let mut copy = poisoned(&stream, (rows + 1) * width)?;
        layer_norm(&stream, NormInput::Rows(&on_gpu), &norm, &mut plain, None, rows)?;
        layer_norm(&stream, NormInput::Rows(&on_gpu), &norm, &mut both, Some(&mut copy), rows)?;
        assert_eq!(download(&stream, &both)?, download(&stream, &plain)?);
        let bytes: Vec<u8> = download(&stream, &copy)?;
        let exact = |row: Vec<f64>| {
            let values = normalised(&row, &gamma, &beta, 1e-5).into_iter();
            // The bytes are not rounded to bf16, so the tolerance leaves that rounding out.
            values.map(move |(v, e)| narrow((v, e - BF16 * v.abs() + 4.0 * F32 * v.abs()), scale))
        };
        let expected = x.chunks(width).flat_map(|row| exact(wide(row).collect()));
        check(&format!("{rows} x {width}"), scaled(&bytes, scale), expected)?;
        assert!(bytes[rows * width..].iter().all(|&byte| byte == 77));

        // The rows of `x` added to zeros in f32 are the rows of `x`.
        let mut zeros = stream.to_device(&vec![0.0f32; x.len()], "a test")?;
        let mut sums = poisoned(&stream, (rows + 1) * width)?;
        let input = NormInput::Sums { update: &on_gpu, states: &mut zeros, is_first: false };
        layer_norm(&stream, input, &norm, &mut both, Some(&mut sums), rows)?;
        assert_eq!(download(&stream, &both)?, download(&stream, &plain)?);
        assert_eq!(download::<u8>(&stream, &sums)?, bytes);

        let words = random.bf16_values(LIMITS.vocab_size * width, 1.0);
        let positions = random.values(LIMITS.num_positions * width, 1.0);
        let embedding = Embedding::new(&stream, &words, &positions, width)?;
        let mut staged = Staged::new(&stream, 48, LIMITS)?;
        staged.put(&stream, &[0, 49, 7, 2], [2, 3, 4, 2], &[0, 3, 4])?;
        let (mut plain, mut both) =
            (poisoned(&stream, 48 * width)?, poisoned(&stream, 48 * width)?);
        let mut copy = poisoned(&stream, 48 * width)?;
        let tokens = || NormInput::Tokens(&staged, &embedding);
        layer_norm(&stream, tokens(), &norm, &mut plain, None, 48)?;
        layer_norm(&stream, tokens(), &norm, &mut both, Some(&mut copy), 48)?;
        assert_eq!(download(&stream, &both)?, download(&stream, &plain)?);
        let bytes: Vec<u8> = download(&stream, &copy)?;
        let places = [(0, 2), (49, 3), (7, 4), (2, 2)].into_iter().chain([(0, 0); 44]);
        let expected = places.flat_map(|(id, position): (usize, usize)| {
            let position = positions[position * width..][..width].iter();
            let word = wide(&words[id * width..][..width]);
            exact(word.zip(position).map(|(w, &p)| w + f64::from(p)).collect())
        });
        check(&format!("embedding, width {width}"), scaled(&bytes, scale), expected)?;
        let mut short = poisoned(&stream, rows * width - 1)?;
        let input = NormInput::Rows(&on_gpu);
        let refused = layer_norm(&stream, input, &norm, &mut both, Some(&mut short), rows);
        assert!(refused.is_err());
    }
    Ok(())
}
