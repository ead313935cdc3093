//! Tests of matrix products against f64, with every kernel.

use half::bf16;
use polysift_kernels::cuda::{
    Bound, Buffer, CudaError, LeftOperand, Linear, MatmulEpilogue, MatrixInstructions, Operands,
    Output, Stream, ends, matmul, randomize, rows_to_compare,
};

use crate::common::{
    BF16, F32, MatmulPrecision, Random, TestResult, check, download, is_simulated, poisoned,
    stream, wide,
};
use crate::e4m3::{narrow, quantised, scaled, stored};
use crate::rows::exact_gelu;

/// A [`MatmulEpilogue`] of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Epilogue {
    Bias,
    Gelu,
    Residual,
}

const EPILOGUES: [Epilogue; 3] = [Epilogue::Bias, Epilogue::Gelu, Epilogue::Residual];

/// Rows, outputs and inputs on both sides of the kernels' tiles (128 x 128 and 128 x 192) and steps
/// (32, 64 and 128 inputs), with one step and with more than the kernels hold at a time.
const SIZES: [(usize, usize, usize); 8] = [
    (528, 192, 64),
    (16, 16, 16),
    (48, 32, 112),
    (129, 208, 144),
    (1, 64, 64),
    (300, 400, 336),
    (127, 128, 656),
    (260, 592, 32),
];

enum X {
    Bf16(Buffer<bf16>),
    Fp8(Buffer<u8>),
}

/// A product, its operands on the GPU, and the expected result.
struct Case {
    sizes: (usize, usize, usize),
    epilogue: Epilogue,
    linear: Linear,
    x: X,
    residual: Buffer<bf16>,
    expected: Vec<(f64, f64)>,
}

impl Case {
    fn new(
        stream: &Stream,
        sizes: (usize, usize, usize),
        epilogue: Epilogue,
        precision: MatmulPrecision,
    ) -> Result<Self, CudaError> {
        let (tokens, outputs, inputs) = sizes;
        let random = &mut Random((tokens + outputs + inputs) as u64);
        let x = random.bf16_values(tokens * inputs, 1.0);
        let w = random.bf16_values(outputs * inputs, 0.2);
        let b = random.bf16_values(outputs, 1.0);
        let residual = random.bf16_values(tokens * outputs, 1.0);
        let sums = Sums::of(stream, precision);
        let largest = x.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
        let input = (precision == MatmulPrecision::Fp8).then_some(Bound::Within(largest));
        let linear = Linear::new(stream, &w, &b, input)?;
        // Operands as the GPU uses them.
        let (x_values, w_values, x) = if input.is_some() {
            let bytes = stored(&x, linear.x_scale());
            let row = |row| {
                let (bytes, scale) = quantised(row);
                scaled(&bytes, scale).collect::<Vec<_>>()
            };
            let x_values = scaled(&bytes, linear.x_scale()).collect::<Vec<_>>();
            (
                x_values,
                w.chunks(inputs).flat_map(row).collect(),
                X::Fp8(stream.to_device(&bytes, "a test")?),
            )
        } else {
            (
                wide(&x).collect(),
                wide(&w).collect::<Vec<_>>(),
                X::Bf16(stream.to_device(&x, "a test")?),
            )
        };
        let expected = (0..tokens * outputs).map(|i| {
            let (row, output) = (i / outputs, i % outputs);
            let x = &x_values[row * inputs..][..inputs];
            let w = &w_values[output * inputs..][..inputs];
            oracle((x, w), (b[output], residual[i]), (epilogue, precision), sums)
        });
        let residual = stream.to_device(&residual, "a test")?;
        Ok(Self { sizes, epilogue, expected: expected.collect(), linear, x, residual })
    }

    fn bias(stream: &Stream, sizes: (usize, usize, usize)) -> Result<Self, CudaError> {
        Self::new(stream, sizes, Epilogue::Bias, MatmulPrecision::Bf16)
    }

    fn epilogue(&self) -> MatmulEpilogue<'_> {
        match self.epilogue {
            Epilogue::Bias => MatmulEpilogue::Bias,
            Epilogue::Gelu => MatmulEpilogue::Gelu,
            Epilogue::Residual => MatmulEpilogue::Residual(&self.residual),
        }
    }

    fn multiply(
        &self,
        stream: &Stream,
        y: Output<'_>,
        by: MatrixInstructions,
    ) -> Result<(), CudaError> {
        let x = match &self.x {
            X::Bf16(values) => LeftOperand::Bf16(values),
            X::Fp8(bytes) => LeftOperand::Fp8(bytes),
        };
        let operands = Operands { rows: self.sizes.0, x, epilogue: self.epilogue(), y };
        matmul(stream, &self.linear, &operands, by)
    }

    fn run(&self, stream: &Stream, by: MatrixInstructions) -> Result<Vec<bf16>, CudaError> {
        let mut y = poisoned(stream, self.expected.len())?;
        self.multiply(stream, Output::Bf16(&mut y), by)?;
        download(stream, &y)
    }

    fn check(&self, stream: &Stream, by: MatrixInstructions) -> TestResult {
        let what = format!("{:?} {:?} by {by:?}", self.sizes, self.epilogue);
        if !self.linear.writes_fp8(self.epilogue()) {
            let actual = self.run(stream, by)?;
            return check(&what, wide(&actual), self.expected.iter().copied());
        }
        let bounds = self.linear.bounds();
        let scale = bounds.iter().copied().fold(0.0, f32::max) / 448.0;
        let mut y = poisoned(stream, self.expected.len())?;
        self.multiply(stream, Output::Fp8(&mut y, scale), by)?;
        for (i, &(value, _)) in self.expected.iter().enumerate() {
            assert!(value.abs() <= f64::from(bounds[i % bounds.len()]), "{what}: {i} is {value}");
        }
        let expected = self.expected.iter().map(|&expected| narrow(expected, scale));
        check(&what, scaled(&download::<u8>(stream, &y)?, scale), expected)
    }
}

/// Precision in which the products of a sum are added.
#[derive(Clone, Copy)]
pub(crate) enum Sums {
    /// In f32, a sum of K products is off by K roundings of its size, in any order.
    F32,
    /// Hopper's matrix units cut e4m3 products, and the sum so far, to 14 bits of the largest term
    /// that an instruction adds; it adds 32 products (DeepSeek-V3, arXiv 2412.19437, 3.3.2).
    Fourteen,
}

impl Sums {
    pub(crate) fn of(stream: &Stream, precision: MatmulPrecision) -> Self {
        match precision {
            MatmulPrecision::Fp8 if !is_simulated(stream.device()) => Self::Fourteen,
            _ => Self::F32,
        }
    }

    /// Returns the maximum error of the sum of `products`.
    pub(crate) fn error(self, products: impl Iterator<Item = f64> + Clone) -> f64 {
        let count = products.clone().count() as f64;
        match self {
            Self::F32 => count * F32 * products.map(f64::abs).sum::<f64>(),
            Self::Fourteen => {
                let largest = |(sum, largest): (f64, f64), product: f64| {
                    let sum = sum + product;
                    (sum, largest.max(sum.abs()).max(product.abs()))
                };
                let (_, largest) = products.fold((0.0, 0.0), largest);
                (count + (count / 32.0).ceil()) * largest / 8_192.0
            }
        }
    }
}

/// Returns the result and its tolerance, which includes rounding to bf16 but not to e4m3.
fn oracle(
    (x, w): (&[f64], &[f64]),
    (b, residual): (bf16, bf16),
    (epilogue, precision): (Epilogue, MatmulPrecision),
    sums: Sums,
) -> (f64, f64) {
    let is_fp8 = precision == MatmulPrecision::Fp8;
    let products = || x.iter().zip(w).map(|(x, w)| x * w);
    let (b, residual) = (f64::from(b), f64::from(residual));
    let sum = products().sum::<f64>() + b;
    let sums = sums.error(products()) + x.len() as f64 * F32 * b.abs();
    // GELU's slope is at most 1.13.
    match epilogue {
        Epilogue::Bias => (sum, BF16 * sum.abs() + sums),
        Epilogue::Residual => {
            let value = sum + residual;
            (value, BF16 * value.abs() + sums + F32 * residual.abs())
        }
        Epilogue::Gelu if is_fp8 => {
            let (value, _) = exact_gelu(sum);
            let error = f64::max(value.abs(), 2f64.powi(-8)) * 2f64.powf(-8.7);
            (value, 1.2 * sums + error)
        }
        Epilogue::Gelu => {
            let (value, error) = exact_gelu(sum);
            (value, BF16 * value.abs() + 1.2 * sums + error)
        }
    }
}

/// Returns the instructions that the GPU has kernels for.
fn instructions(stream: &Stream) -> Vec<MatrixInstructions> {
    let mut all = vec![MatrixInstructions::Warp, MatrixInstructions::fastest(stream.device())];
    all.dedup();
    all
}

#[test]
fn every_kernel_gives_the_product_with_what_comes_after_it() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for epilogue in EPILOGUES {
        for sizes in SIZES {
            let case = Case::new(&stream, sizes, epilogue, MatmulPrecision::Bf16)?;
            for by in instructions(&stream) {
                case.check(&stream, by)?;
            }
        }
    }
    Ok(())
}

#[test]
fn products_of_e4m3_count_with_the_scales_of_both_rows() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for epilogue in EPILOGUES {
        for sizes in SIZES {
            let case = match Case::new(&stream, sizes, epilogue, MatmulPrecision::Fp8) {
                Err(CudaError::Unsupported { .. }) => return Ok(()),
                case => case?,
            };
            case.check(&stream, MatrixInstructions::Warpgroup)?;
            let refused = case.check(&stream, MatrixInstructions::Warp);
            assert!(refused.is_err(), "the kernel for warps has no fp8");
        }
    }
    Ok(())
}

#[test]
fn a_row_without_numbers_does_not_touch_its_neighbours() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut case = Case::bias(&stream, (200, 64, 64))?;
    for by in instructions(&stream) {
        let X::Bf16(x) = &case.x else { return Err("x is bf16".into()) };
        let mut values = download(&stream, x)?;
        let before = case.run(&stream, by)?;
        values[130 * 64..131 * 64].fill(bf16::NAN);
        let clean = std::mem::replace(&mut case.x, X::Bf16(stream.to_device(&values, "a test")?));
        let after = case.run(&stream, by)?;
        case.x = clean;
        for (i, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(if i / 64 == 130 { after.is_nan() } else { before == after }, "{i}");
        }
    }
    Ok(())
}

#[test]
fn the_kernel_for_warpgroups_is_taken_where_it_agrees_with_that_for_warps() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let fastest = MatrixInstructions::fastest(stream.device());
    if fastest == MatrixInstructions::Warp {
        return Ok(());
    }
    let case = Case::bias(&stream, (528, 64, 64))?;
    let mut y = poisoned(&stream, 528 * 64)?;
    for (is_broken, expected) in
        [(false, MatrixInstructions::Warpgroup), (true, MatrixInstructions::Warp)]
    {
        let run = |by| {
            case.multiply(&stream, Output::Bf16(&mut y), by)?;
            if is_broken && by == MatrixInstructions::Warpgroup {
                stream.upload(&mut y, 500 * 64, &[bf16::from_f32(100.0)])?;
            }
            ends(&stream, &y, 528 * 64)
        };
        let chosen = MatrixInstructions::agreeing("a test", run)?;
        assert_eq!(chosen, expected);
    }
    let rows = rows_to_compare(&stream, 528, 64);
    assert!((1..=528).contains(&rows), "{rows}");
    Ok(())
}

#[test]
fn random_values_fill_what_they_are_asked_to() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut x = poisoned(&stream, 100)?;
    randomize(&stream, &mut x, 90)?;
    let values: Vec<bf16> = download(&stream, &x)?;
    assert!(values[..90].iter().all(|x| x.is_finite()));
    assert!(values[90..].iter().all(|x| x.is_nan()));
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_refused() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut case = Case::bias(&stream, (16, 8, 24))?;
    let by = MatrixInstructions::Warp;
    case.x = X::Bf16(stream.device().alloc(16 * 24 - 1, "a test")?);
    assert!(matches!(case.run(&stream, by), Err(CudaError::Shape { .. })));
    let mut other = Case::bias(&stream, (16, 8, 8))?;
    other.sizes.0 = 17;
    assert!(matches!(other.run(&stream, by), Err(CudaError::Shape { .. })));
    let odd = Case::bias(&stream, (16, 8, 12));
    assert!(matches!(odd, Err(CudaError::Unsupported { .. })));
    Ok(())
}
