use proptest::prelude::*;

use super::*;

/// Values in [-1, 1] with all bits of the mantissa in use.
fn values(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

struct Case {
    m: usize,
    n: usize,
    k: usize,
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
}

impl Case {
    fn new(m: usize, n: usize, k: usize) -> Self {
        let x = values(1, m * k);
        Self { m, n, k, x, w: values(2, n * k), bias: values(3, n), residual: values(4, m * n) }
    }

    fn run(&self, isa: Isa, epilogue: Epilogue<'_>) -> Vec<f32> {
        let w = PackedMatrix::new(Matrix::new(&self.w, self.n, self.k, self.k));
        self.run_packed(isa, &w, epilogue)
    }

    fn run_packed(&self, isa: Isa, w: &PackedMatrix, epilogue: Epilogue<'_>) -> Vec<f32> {
        let mut y = vec![f32::NAN; self.m * self.n];
        let x = Matrix::new(&self.x, self.m, self.k, self.k);
        let mut view = MatrixMut::new(&mut y, self.m, self.n, self.n);
        gemm(isa, x, w, epilogue, &mut view, &mut GemmScratch::default());
        y
    }

    fn residual(&self) -> Matrix<'_> {
        Matrix::new(&self.residual, self.m, self.n, self.n)
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// One value as its definition says: a chain of fused multiply-adds.
fn chain(x: &[f32], w: &[f32]) -> f32 {
    x.iter().zip(w).fold(0.0, |sum, (&x, &w)| x.mul_add(w, sum))
}

#[test]
fn every_value_is_the_chain_of_its_row_on_every_instruction_set() {
    for m in 1..=40 {
        for (n, k) in [(1, 1), (33, 7), (64, 300), (31, 513)] {
            let case = Case::new(m, n, k);
            let expected: Vec<f32> = (0..m * n)
                .map(|i| chain(&case.x[i / n * k..][..k], &case.w[i % n * k..][..k]))
                .collect();
            for isa in Isa::available() {
                let y = case.run(isa, Epilogue::None);
                assert_eq!(bits(&y), bits(&expected), "{} {m}x{n}x{k}", isa.name());
            }
        }
    }
}

proptest! {
    #[test]
    fn a_product_stays_within_the_error_bound_of_its_sum(
        m in 1usize..30, n in 1usize..70, k in 0usize..600,
    ) {
        let case = Case::new(m, n, k);
        let y = case.run(Isa::detect(), Epilogue::Bias(&case.bias));
        for i in 0..m {
            for j in 0..n {
                let terms = (0..k).map(|l| f64::from(case.x[i * k + l]) * f64::from(case.w[j * k + l]));
                let bias = f64::from(case.bias[j]);
                let exact = terms.clone().sum::<f64>() + bias;
                let bound = (k + 1) as f64 * 2f64.powi(-24)
                    * (terms.map(f64::abs).sum::<f64>() + bias.abs());
                prop_assert!((f64::from(y[i * n + j]) - exact).abs() <= bound);
            }
        }
    }
}

#[test]
fn the_epilogues_are_what_they_say() {
    let case = Case::new(17, 45, 80);
    let plain = case.run(Isa::detect(), Epilogue::None);
    let biased: Vec<f32> =
        plain.iter().enumerate().map(|(i, v)| v + case.bias[i % case.n]).collect();
    for isa in Isa::available() {
        assert_eq!(bits(&case.run(isa, Epilogue::Bias(&case.bias))), bits(&biased));
        let gelu: Vec<f32> = biased.iter().map(|&v| gelu_scalar(v)).collect();
        assert_eq!(bits(&case.run(isa, Epilogue::BiasGelu(&case.bias))), bits(&gelu));
        let added: Vec<f32> = biased.iter().zip(&case.residual).map(|(v, r)| v + r).collect();
        let epilogue = Epilogue::BiasResidual(&case.bias, case.residual());
        assert_eq!(bits(&case.run(isa, epilogue)), bits(&added));
    }
}

#[test]
fn a_transposed_pack_gives_the_same_product() {
    let case = Case::new(9, 37, 50);
    let mut transposed = vec![0.0; case.w.len()];
    for j in 0..case.n {
        for l in 0..case.k {
            transposed[l * case.n + j] = case.w[j * case.k + l];
        }
    }
    let mut w = PackedMatrix::new(Matrix::new(&[1.0; 6], 2, 3, 3));
    w.pack_transposed(Matrix::new(&transposed, case.k, case.n, case.n));
    assert_eq!(
        case.run_packed(Isa::detect(), &w, Epilogue::None),
        case.run(Isa::detect(), Epilogue::None)
    );
}

#[test]
fn strided_views_read_and_write_only_their_columns() {
    let case = Case::new(5, 34, 6);
    let expected = case.run(Isa::detect(), Epilogue::None);
    let (x_stride, y_stride) = (11, 40);
    let mut x = vec![f32::NAN; 5 * x_stride];
    for i in 0..5 {
        x[i * x_stride..][..6].copy_from_slice(&case.x[i * 6..][..6]);
    }
    let w = PackedMatrix::new(Matrix::new(&case.w, 34, 6, 6));
    let mut y = vec![7.0; 5 * y_stride];
    gemm(
        Isa::detect(),
        Matrix::new(&x, 5, 6, x_stride),
        &w,
        Epilogue::None,
        &mut MatrixMut::new(&mut y, 5, 34, y_stride),
        &mut GemmScratch::default(),
    );
    for (row, expected) in y.chunks(y_stride).zip(expected.chunks(34)) {
        assert_eq!(&row[..34], expected);
        assert!(row[34..].iter().all(|v| v.to_bits() == 7f32.to_bits()));
    }
}

#[test]
#[should_panic(expected = "the bias has 2 values")]
fn a_bias_of_another_length_is_refused() {
    let case = Case::new(1, 3, 2);
    case.run(Isa::detect(), Epilogue::Bias(&case.bias[..2]));
}
