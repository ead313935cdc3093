//! Matrix products with bias against f64, for every algorithm that is offered.

use half::bf16;
use polysift_kernels::cuda::{
    Algorithm, Buffer, CudaError, Linear, Matmul, MatmulEpilogue, Operands, Stream, WORKSPACE_BYTES,
};

use crate::common::{BF16, F32, Random, TestResult, check, download, poisoned, stream, wide};

/// A product, its operands on the card, and what it should give.
struct Case {
    matmul: Matmul,
    linear: Linear,
    x: Buffer<bf16>,
    workspace: Buffer<u8>,
    expected: Vec<(f64, f64)>,
}

impl Case {
    fn new(
        stream: &Stream,
        (tokens, outputs, inputs): (usize, usize, usize),
        epilogue: MatmulEpilogue,
    ) -> Result<Self, CudaError> {
        let random = &mut Random((tokens + outputs + inputs) as u64);
        let x = random.bf16_values(tokens * inputs, 1.0);
        let w = random.bf16_values(outputs * inputs, 0.2);
        let b = random.bf16_values(outputs, 1.0);
        let expected = x.chunks(inputs).flat_map(|row| {
            let weights = w.chunks(inputs).zip(&b);
            weights.map(|(w, b)| oracle(row, w, *b, epilogue)).collect::<Vec<_>>()
        });
        Ok(Self {
            matmul: Matmul::new(stream.device(), tokens, outputs, inputs, epilogue)?,
            linear: Linear::new(stream, &w, &b)?,
            expected: expected.collect(),
            x: stream.to_device(&x, "a test")?,
            workspace: stream.device().alloc(WORKSPACE_BYTES, "a test")?,
        })
    }

    fn run(&mut self, stream: &Stream, algorithm: &Algorithm) -> Result<Vec<bf16>, CudaError> {
        let mut y = poisoned(stream, self.expected.len())?;
        let operands = Operands { x: &self.x, y: &mut y, workspace: &mut self.workspace };
        self.matmul.run(stream, algorithm, &self.linear, operands)?;
        download(stream, &y)
    }

    fn check(&mut self, stream: &Stream, algorithm: &Algorithm) -> TestResult {
        let what = format!("{:?}", self.matmul.sizes());
        check(&what, wide(&self.run(stream, algorithm)?), self.expected.iter().copied())
    }
}

/// The result is rounded to bf16; sums of K products in f32 are off by K roundings of their size,
/// in any order. The card may take its own tanh, which is good to 2^-10.
fn oracle(x: &[bf16], w: &[bf16], b: bf16, epilogue: MatmulEpilogue) -> (f64, f64) {
    let products = || wide(x).zip(wide(w)).map(|(x, w)| x * w);
    let sum = products().sum::<f64>() + f64::from(b);
    let size = products().map(f64::abs).sum::<f64>() + f64::from(b).abs();
    let sums = x.len() as f64 * F32 * size;
    match epilogue {
        MatmulEpilogue::Bias => (sum, BF16 * sum.abs() + sums),
        MatmulEpilogue::BiasGeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (sum + 0.044_715 * sum.powi(3));
            let value = 0.5 * sum * (1.0 + inner.tanh());
            // GELU's slope is at most 1.13.
            (value, BF16 * value.abs() + 1.2 * sums + sum.abs() / 1024.0)
        }
    }
}

#[test]
fn every_algorithm_gives_the_product_with_bias_and_epilogue() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    for epilogue in [MatmulEpilogue::Bias, MatmulEpilogue::BiasGeluTanh] {
        for sizes in [(528, 192, 64), (16, 8, 8), (48, 24, 104), (528, 64, 192), (1, 64, 64)] {
            let mut case = Case::new(&stream, sizes, epilogue)?;
            let candidates = case.matmul.candidates(&case.linear, 32)?;
            assert!(!candidates.is_empty());
            for algorithm in candidates {
                // Offered, but refused when it comes to it: the search passes it over as well.
                if let Err(CudaError::Driver { action: "launching a matrix product", .. }) =
                    case.run(&stream, &algorithm)
                {
                    continue;
                }
                case.check(&stream, &algorithm)?;
            }
        }
    }
    Ok(())
}

#[test]
fn the_search_finds_an_algorithm_that_is_right_and_found_again_by_its_words() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut case = Case::new(&stream, (528, 64, 64), MatmulEpilogue::Bias)?;
    let mut x = poisoned(&stream, 528 * 64)?;
    let mut y = poisoned(&stream, 528 * 64)?;
    let Case { matmul, linear, workspace, .. } = &mut case;
    let found = matmul.search(&stream, linear, &mut x, &mut y, workspace)?;
    assert!(download(&stream, &x)?.iter().all(|x| x.is_finite()), "timed on random values");
    case.check(&stream, &found)?;
    let again = case.matmul.restore(found.words()).ok_or("not found again")?;
    assert_eq!(again.words(), found.words());
    case.check(&stream, &again)
}

#[test]
fn words_that_no_library_has_written_are_refused() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let case = Case::new(&stream, (16, 8, 8), MatmulEpilogue::Bias)?;
    assert_eq!(case.matmul.restore([u64::MAX; 8]), None);
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_refused() -> TestResult {
    let Some(stream) = stream()? else { return Ok(()) };
    let mut case = Case::new(&stream, (16, 8, 24), MatmulEpilogue::Bias)?;
    let algorithm = case.matmul.candidates(&case.linear, 1)?[0];
    case.x = stream.device().alloc(16 * 24 - 1, "a test")?;
    assert!(matches!(case.run(&stream, &algorithm), Err(CudaError::Shape { .. })));
    let mut other = Case::new(&stream, (16, 8, 8), MatmulEpilogue::Bias)?;
    assert!(matches!(other.run(&stream, &algorithm), Err(CudaError::Shape { .. })));
    let odd = Matmul::new(stream.device(), 16, 8, 12, MatmulEpilogue::Bias);
    assert!(matches!(odd.err(), Some(CudaError::Unsupported { .. })));
    Ok(())
}
