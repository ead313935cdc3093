//! Tests of matrix products with residual sum and layer norm against f64.

use half::bf16;
use polysift_kernels::cuda::{
    Bound, Buffer, CudaError, LeftOperand, Linear, Norm, Stream, has_matmul_norm, matmul_norm,
};

use crate::common::{
    BF16, F32, MatmulPrecision, Random, TestResult, check, download, poisoned, stream, wide,
};
use crate::e4m3::{E4M3, E4M3_STEP, decoded, quantised, scaled, stored};
use crate::matmul::Sums;

const WIDTH: usize = 768;
/// Large enough to show in the result.
const EPS: f32 = 0.25;
const PRECISIONS: [MatmulPrecision; 2] = [MatmulPrecision::Bf16, MatmulPrecision::Fp8];

/// Rows and inputs on both sides of a tile (128 rows) and of steps (64 and 128 inputs), with one
/// step and with more than the kernels hold at a time, with one tile and with several per cluster.
const SIZES: [(usize, usize); 7] =
    [(1, 64), (16, 16), (127, 144), (128, 768), (129, 272), (528, 656), (2, 3_072)];

/// A product, its parameters on the GPU and its operands.
struct Case {
    inputs: usize,
    linear: Linear,
    norm: Norm,
    x: X,
    residual: Vec<bf16>,
    /// Weights as the GPU uses them.
    w: Vec<f64>,
    bias: Vec<f64>,
    gamma: Vec<f64>,
    beta: Vec<f64>,
    /// Scale of the copies in e4m3.
    scale: f64,
}

#[derive(Clone)]
enum X {
    Bf16(Vec<bf16>),
    Fp8(Vec<u8>),
}

/// Results with room for one more row: `hidden`, and in fp8 its copy.
type Results = (Vec<bf16>, Option<Vec<u8>>);

impl Case {
    fn new(
        stream: &Stream,
        (rows, inputs): (usize, usize),
        precision: MatmulPrecision,
    ) -> Result<Self, CudaError> {
        let is_fp8 = precision == MatmulPrecision::Fp8;
        let random = &mut Random((rows + inputs) as u64);
        let x = random.bf16_values(rows * inputs, 1.0);
        let w = random.bf16_values(WIDTH * inputs, 0.2);
        let bias = random.bf16_values(WIDTH, 1.0);
        // The means of rows are up to four times their deviation.
        let residual = random.bf16_values(rows * WIDTH, 2.0).into_iter().enumerate();
        let residual =
            residual.map(|(i, r)| bf16::from_f32(r.to_f32() + (i / WIDTH % 5) as f32 * 2.0));
        let (gamma, beta) = (random.values(WIDTH, 1.0), random.values(WIDTH, 0.5));
        let quantised_values = |row: &[bf16]| {
            let (bytes, scale) = quantised(row);
            scaled(&bytes, scale).collect::<Vec<_>>()
        };
        let largest = x.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
        let linear = Linear::new(stream, &w, &bias, is_fp8.then_some(Bound::Within(largest)))?;
        Ok(Self {
            inputs,
            scale: Bound::Normalised { gamma: &gamma, beta: &beta }.scale().into(),
            norm: Norm::new(stream, &gamma, &beta, f64::from(EPS))?,
            residual: residual.collect(),
            w: match precision {
                MatmulPrecision::Bf16 => wide(&w).collect(),
                MatmulPrecision::Fp8 => w.chunks(inputs).flat_map(quantised_values).collect(),
            },
            x: match precision {
                MatmulPrecision::Bf16 => X::Bf16(x),
                MatmulPrecision::Fp8 => X::Fp8(stored(&x, linear.x_scale())),
            },
            linear,
            bias: wide(&bias).collect(),
            gamma: gamma.into_iter().map(f64::from).collect(),
            beta: beta.into_iter().map(f64::from).collect(),
        })
    }

    fn rows(&self) -> usize {
        self.residual.len() / WIDTH
    }

    /// Returns the values of row `i` of x.
    fn x_row(&self, i: usize) -> Vec<f64> {
        let range = i * self.inputs..(i + 1) * self.inputs;
        match &self.x {
            X::Bf16(x) => wide(&x[range]).collect(),
            X::Fp8(x) => scaled(&x[range], self.linear.x_scale()).collect(),
        }
    }

    /// Returns the results of `count` rows from `first` on.
    fn run(&self, stream: &Stream, first: usize, count: usize) -> Result<Results, CudaError> {
        let of = |width: usize| first * width..(first + count) * width;
        let mut hidden = poisoned(stream, (count + 1) * WIDTH)?;
        stream.upload(&mut hidden, 0, &self.residual[of(WIDTH)])?;
        let (linear, norm) = (&self.linear, &self.norm);
        match &self.x {
            X::Bf16(x) => {
                let x = stream.to_device(&x[of(self.inputs)], "a test")?;
                matmul_norm(stream, LeftOperand::Bf16(&x), linear, norm, &mut hidden, None, count)?;
                Ok((download(stream, &hidden)?, None))
            }
            X::Fp8(x) => {
                let x = stream.to_device(&x[of(self.inputs)], "a test")?;
                let mut copy: Buffer<u8> = poisoned(stream, (count + 1) * WIDTH)?;
                let x = LeftOperand::Fp8(&x);
                matmul_norm(stream, x, linear, norm, &mut hidden, Some(&mut copy), count)?;
                Ok((download(stream, &hidden)?, Some(download(stream, &copy)?)))
            }
        }
    }

    /// Returns the values of row `i` and their errors before they are rounded.
    fn oracle(&self, i: usize, sums: Sums) -> Vec<(f64, f64)> {
        let x = self.x_row(i);
        let residual = &self.residual[i * WIDTH..][..WIDTH];
        let (values, errors): (Vec<f64>, Vec<f64>) = (0..WIDTH)
            .map(|output| {
                let w = &self.w[output * self.inputs..][..self.inputs];
                let products = x.iter().zip(w).map(|(x, w)| x * w);
                let (b, r) = (self.bias[output], f64::from(residual[output]));
                let product: f64 = products.clone().sum();
                // The product is scaled, and two sums are rounded.
                let roundings = 3.0 * F32 * (product.abs() + b.abs() + r.abs());
                (product + b + r, sums.error(products) + roundings)
            })
            .unzip();
        let mean_of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / WIDTH as f64;
        let mean = mean_of(&mut values.iter().copied());
        let variance = mean_of(&mut values.iter().map(|v| (v - mean).powi(2)));
        let deviation = (variance + f64::from(EPS)).sqrt();
        let largest = values.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()));
        // A mean comes from at most 32 additions one after the other, and a variance from 60 of
        // positive numbers, whose error the root halves; both follow the means of groups.
        let mean_error = mean_of(&mut errors.iter().copied()) + 32.0 * F32 * largest;
        let of_sums = mean_of(&mut errors.iter().map(|e| e.powi(2))).sqrt() / deviation;
        let columns = self.gamma.iter().zip(&self.beta);
        let results = values.iter().zip(&errors).zip(columns).map(|((value, error), (g, b))| {
            let normed = (value - mean) / deviation;
            let relative = of_sums + 32.0 * F32 + mean_error / deviation;
            let error = (error + mean_error) / deviation + normed.abs() * relative;
            let value = normed * g + b;
            (value, error * g.abs() + 4.0 * F32 * (value.abs() + b.abs()))
        });
        results.collect()
    }
}

/// Returns a stream of a GPU that has the kernels.
fn hopper() -> Result<Option<Stream>, Box<dyn std::error::Error>> {
    Ok(stream()?.filter(|stream| has_matmul_norm(stream, WIDTH)))
}

#[test]
fn rows_are_multiplied_summed_and_normalised() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    for precision in PRECISIONS {
        for sizes in SIZES {
            let case = Case::new(&stream, sizes, precision)?;
            let (hidden, copy) = case.run(&stream, 0, case.rows())?;
            let sums = Sums::of(&stream, precision);
            // Of many rows every ninth is checked, which are in turn all rows of a fragment.
            for row in (0..case.rows()).step_by(if case.rows() > 200 { 9 } else { 1 }) {
                let what = format!("row {row} of {sizes:?} in {precision:?}");
                let own = row * WIDTH..(row + 1) * WIDTH;
                let expected = case.oracle(row, sums);
                let rounded = expected.iter().map(|&(v, e)| (v, e + BF16 * (v.abs() + e)));
                check(&what, wide(&hidden[own.clone()]), rounded)?;
                let Some(copy) = &copy else { continue };
                let scaled = expected.iter().map(|&(value, error)| {
                    let (value, error) = (value / case.scale, error / case.scale);
                    (
                        value,
                        (error + F32 * value.abs()) * (1.0 + E4M3) + E4M3 * value.abs() + E4M3_STEP,
                    )
                });
                check(&what, copy[own].iter().map(|&byte| decoded(byte)), scaled)?;
            }
            let end = case.rows() * WIDTH;
            assert!(hidden[end..].iter().all(|x| x.is_nan()), "{sizes:?} in {precision:?}");
            assert!(copy.iter().all(|copy| copy[end..].iter().all(|&byte| byte == 77)));
        }
    }
    Ok(())
}

#[test]
fn a_row_has_the_same_bits_alone_and_in_company() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    for precision in PRECISIONS {
        let case = Case::new(&stream, (528, 144), precision)?;
        let (hidden, copy) = case.run(&stream, 0, 528)?;
        for row in [0, 9, 63, 64, 127, 128, 300, 511, 512, 527] {
            let (alone, alone_copy) = case.run(&stream, row, 1)?;
            assert_eq!(hidden[row * WIDTH..][..WIDTH], alone[..WIDTH], "{row} in {precision:?}");
            let of_copy = copy.as_ref().map(|copy| &copy[row * WIDTH..][..WIDTH]);
            assert_eq!(of_copy, alone_copy.as_ref().map(|copy| &copy[..WIDTH]), "{row}");
        }
    }
    Ok(())
}

#[test]
fn a_row_without_numbers_does_not_touch_its_neighbours() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    for precision in PRECISIONS {
        let mut case = Case::new(&stream, (300, 64), precision)?;
        let before = case.run(&stream, 0, 300)?;
        match &mut case.x {
            X::Bf16(x) => x[130 * 64] = bf16::NAN,
            X::Fp8(x) => x[130 * 64] = 0x7f,
        }
        case.residual[40 * WIDTH] = bf16::NAN;
        case.residual[299 * WIDTH + 767] = bf16::INFINITY;
        let after = case.run(&stream, 0, 300)?;
        for i in 0..300 * WIDTH {
            let copies = [&before, &after].map(|(_, copy)| copy.as_ref().map_or(0, |copy| copy[i]));
            if [40, 130, 299].contains(&(i / WIDTH)) {
                assert!(after.0[i].is_nan(), "{i} in {precision:?}");
                assert!(after.1.is_none() || copies[1] & 0x7f == 0x7f, "{i}");
            } else {
                assert_eq!(before.0[i], after.0[i], "{i} in {precision:?}");
                assert_eq!(copies[0], copies[1], "{i}");
            }
        }
    }
    Ok(())
}

#[test]
fn sizes_and_kinds_that_do_not_fit_are_refused() -> TestResult {
    let Some(stream) = hopper()? else { return Ok(()) };
    assert!(!has_matmul_norm(&stream, 1_024));
    let case = Case::new(&stream, (2, 64), MatmulPrecision::Bf16)?;
    let X::Bf16(x) = &case.x else { return Err("x is bf16".into()) };
    let x = stream.to_device(x, "a test")?;
    let narrow_w = stream_weights(&stream, 512, 64)?;
    let odd = stream_weights(&stream, WIDTH, 20);
    assert!(matches!(odd, Err(CudaError::Unsupported { .. })));
    let narrow = Norm::new(&stream, &[1.0; 512], &[0.0; 512], 1e-5)?;
    let run = |linear: &Linear, norm: &Norm, hidden: usize, rows: usize| {
        let mut hidden = stream.to_device(&vec![bf16::ONE; hidden], "a test")?;
        matmul_norm(&stream, LeftOperand::Bf16(&x), linear, norm, &mut hidden, None, rows)
    };
    let (linear, norm) = (&case.linear, &case.norm);
    assert!(run(linear, norm, 2 * WIDTH, 2).is_ok());
    for (refused, unsupported) in [
        (run(linear, norm, 2 * WIDTH - 1, 2), false),
        (run(linear, norm, 3 * WIDTH, 3), false),
        (run(linear, norm, 2 * WIDTH, 0), false),
        (run(linear, &narrow, 2 * WIDTH, 2), true),
        (run(&narrow_w, norm, 2 * WIDTH, 2), true),
        (
            run(&Case::new(&stream, (2, 64), MatmulPrecision::Fp8)?.linear, norm, 2 * WIDTH, 2),
            false,
        ),
    ] {
        let right = match refused {
            Err(CudaError::Shape { .. }) => !unsupported,
            Err(CudaError::Unsupported { .. }) => unsupported,
            _ => false,
        };
        assert!(right, "{refused:?}");
    }
    Ok(())
}

fn stream_weights(stream: &Stream, outputs: usize, inputs: usize) -> Result<Linear, CudaError> {
    let (w, bias) = (vec![bf16::ONE; outputs * inputs], vec![bf16::ONE; outputs]);
    Linear::new(stream, &w, &bias, None)
}
