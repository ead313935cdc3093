pub(super) mod amx_portable;

use proptest::prelude::*;

use super::micro_kernel::MicroKernelArgs;
use super::*;
use crate::Precision;
use crate::cpu::gelu::gelu_scalar;
use crate::cpu::precision::{bf16_bits, bf16_value, f16_bits, f16_value};

const ALL: [Precision; 4] = [Precision::F32, Precision::Bf16, Precision::F16, Precision::Int8];

/// Pseudo-random values in [-1, 1] that use all bits of the mantissa.
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

    fn run(&self, isa: Isa, precision: Precision, epilogue: Epilogue<'_>) -> Vec<f32> {
        let w = PackedMatrix::new(isa, precision, Matrix::new(&self.w, self.n, self.k, self.k));
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

/// Computes one f32 value by definition: chains of 128 fused multiply-adds, then added.
fn chains(x: &[f32], w: &[f32]) -> f32 {
    let chain = |x: &[f32], w: &[f32]| x.iter().zip(w).fold(0.0, |sum, (&x, &w)| x.mul_add(w, sum));
    x.chunks(128).zip(w.chunks(128)).map(|(x, w)| chain(x, w)).fold(0.0, |sum, part| sum + part)
}

fn largest_magnitude(row: &[f32]) -> f64 {
    f64::from(row.iter().fold(0.0, |largest: f32, value| largest.max(value.abs())))
}

#[test]
fn every_f32_value_is_the_sum_of_its_chains_on_every_instruction_set() {
    let shapes = (1..=40).flat_map(|m| [(1, 1), (33, 7), (64, 300), (31, 513)].map(|nk| (m, nk)));
    // The last shapes are deeper than a panel takes at a time.
    for (m, (n, k)) in shapes.chain([(3, (35, 2500)), (29, (5, 1030))]) {
        let case = Case::new(m, n, k);
        let expected: Vec<f32> = (0..m * n)
            .map(|i| chains(&case.x[i / n * k..][..k], &case.w[i % n * k..][..k]))
            .collect();
        for isa in Isa::available() {
            let y = case.run(isa, Precision::F32, Epilogue::None);
            assert_eq!(bits(&y), bits(&expected), "{isa:?} {m}x{n}x{k}");
        }
    }
}

#[test]
fn int8_has_the_same_bits_on_every_instruction_set() {
    let shapes =
        [(1, 1, 1), (5, 33, 3), (13, 64, 67), (40, 31, 515), (17, 70, 1024), (5, 33, 4500)];
    for (case, extreme) in shapes.iter().flat_map(|shape| [(shape, false), (shape, true)]) {
        let &(m, n, k) = case;
        let mut case = Case::new(m, n, k);
        if extreme {
            // Sums of two and four products are as large as they get.
            for value in case.x.iter_mut().chain(&mut case.w) {
                *value = value.signum();
            }
        }
        let all = Isa::available();
        let run = |isa| bits(&case.run(isa, Precision::Int8, Epilogue::BiasGelu(&case.bias)));
        let first = run(all[0]);
        for isa in all {
            assert_eq!(run(isa), first, "{isa:?} {m}x{n}x{k}");
        }
    }
}

/// Numbers of every size, compared with exact fractions (kernels/tests/golden/amx.py).
#[test]
fn amx_rounds_as_its_specification_says() {
    let golden = include_str!("../../../tests/golden/amx.txt");
    let kinds =
        [[124, 6, 124, 6], [62, 4, 1, 8], [0, 70, 0, 70], [180, 12, 240, 14], [40, 140, 40, 140]];
    assert_eq!(golden.lines().count(), kinds.len());
    for isa in Isa::available().into_iter().filter(|isa| isa.units.amx) {
        let kernel = Kernel::new(isa, Precision::Bf16);
        #[cfg(target_arch = "x86_64")]
        let _prepared = kernel.prepare(isa);
        for (state, (kind, line)) in kinds.into_iter().zip(golden.lines()).enumerate() {
            let mut z = state as u64;
            let mut number = |low: u32, count: u32| {
                z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mixed = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
                let bits = ((mixed ^ mixed >> 31) >> 32) as u32;
                bits & 0x807f_ffff | (low + (bits >> 23 & 0xff) % count) << 23
            };
            let mut pairs = |lines: usize| {
                let mut pair =
                    || number(kind[0], kind[1]) >> 16 | number(kind[0], kind[1]) & 0xffff_0000;
                (0..lines).map(|_| CacheLine([(); WORDS].map(|()| pair()))).collect::<Vec<_>>()
            };
            let (mut a, mut b) = (pairs(2 * 16), pairs(2 * 16 * 2));
            let mut c = vec![CacheLine::ZERO; 16 * 2];
            c.iter_mut().flat_map(|line| &mut line.0).for_each(|c| *c = number(kind[2], kind[3]));
            if state == 1 {
                // 2⁻¹²⁶ - 3 · 2⁻¹⁵² is below 2⁻¹²⁶ with 24 bits, and 2⁻¹²⁶ as a subnormal number.
                (a[0], a[16], c[0].0[0]) = (CacheLine::ZERO, CacheLine::ZERO, 0);
                (a[0].0[0], a[0].0[1]) = (0x2000, 0x99C0);
                (b[0].0[0], b[2].0[0]) = (0x2000, 0x1A00);
            }
            let args = MicroKernelArgs {
                a: a.as_ptr().cast(),
                b: b.as_ptr(),
                c: c.as_mut_ptr(),
                overwrite: false,
                units: 32,
                chain: 0,
                target: std::ptr::null(),
                target_width: 0,
                target_stride: 0,
                next: std::ptr::null(),
                fetches: 0,
            };
            // SAFETY: operands have two steps of 16 rows and 32 columns; the kernel is prepared.
            unsafe { kernel.micro_kernel(16)(&args) };
            let found = c.iter().flat_map(|line| line.0).map(|bits| match f32::from_bits(bits) {
                0.0 => "0".into(),
                value if value.is_nan() => "nan".into(),
                _ => format!("{bits:x}"),
            });
            assert!(found.eq(line.split_whitespace()), "{isa:?} {kind:?}");
        }
    }
}

/// The sum of two numbers as BFMMLA rounds it: to odd, towards zero with the last bit set.
#[cfg(target_arch = "aarch64")]
fn sum_to_odd(a: f32, b: f32) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let sum = a + b;
    let rest = sum - a;
    let error = (a - (sum - rest)) + (b - rest);
    // `sum` may lie on the other side of a number in f32 than the exact sum.
    let crossed = error != 0.0 && (error > 0.0) != (sum > 0.0);
    let bits = sum.to_bits() - u64::from(crossed);
    let is_odd = error != 0.0 || bits & 0x1fff_ffff != 0;
    f32::from_bits((f64::from_bits(bits & !0x1fff_ffff) as f32).to_bits() | u32::from(is_odd))
}

#[cfg(target_arch = "aarch64")]
#[test]
fn products_of_matrices_in_bf16_are_rounded_to_odd() {
    let case = Case::new(9, 37, 300);
    let rounded = |values: &[f32]| -> Vec<f32> {
        let mut rounded: Vec<f32> =
            values.iter().map(|value| bf16_value(bf16_bits(*value))).collect();
        rounded.resize(values.len().next_multiple_of(4), 0.0);
        rounded
    };
    let chain = |x: &[f32], w: &[f32]| {
        let pairs = x.chunks(2).zip(w.chunks(2));
        // A product of two numbers in bf16 is exact in f32.
        pairs.fold(0.0, |sum, (x, w)| sum_to_odd(sum, sum_to_odd(x[0] * w[0], x[1] * w[1])))
    };
    for isa in Isa::available().into_iter().filter(|isa| isa.units.bf16) {
        let y = case.run(isa, Precision::Bf16, Epilogue::None);
        for (i, y) in y.iter().enumerate() {
            let x = rounded(&case.x[i / case.n * case.k..][..case.k]);
            let w = rounded(&case.w[i % case.n * case.k..][..case.k]);
            let chains = x.chunks(128).zip(w.chunks(128)).map(|(x, w)| chain(x, w));
            let expected = chains.fold(0.0, |sum, part| sum + part);
            assert_eq!(y.to_bits(), expected.to_bits(), "{isa:?} {i}: {y}, not {expected}");
        }
    }
}

/// Returns the largest error that a value of `precision` may have, for a sum of `k` steps.
///
/// f32: a chain of up to 128 steps and the additions of the blocks, each with a relative rounding
/// of 2⁻²⁴. bf16 and f16 also round both factors (by 2⁻⁸ and 2⁻¹¹; the smallest step of f16 is
/// 2⁻²⁴), and chains may be in f16. bf16's dot products round twice a pair, by up to 2⁻²³ if they
/// round to odd. int8: half a unit of each factor on top of the other factor. A unit of x is an 88th
/// of its largest magnitude at most. A unit of w is a 127th, or more where the sums of two products
/// would exceed 16 bits: 254 · 177 is 1.38 times as much, and rounding adds a bit.
fn bound(precision: Precision, x: &[f32], w: &[f32]) -> f64 {
    let k = x.len() as f64;
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        x.iter().zip(w).map(|(&x, &w)| f(f64::from(x).abs(), f64::from(w).abs())).sum()
    };
    let products = sum(&|x, w| x * w);
    let chain = k.min(128.0) + (k / 128.0).ceil();
    let f32_sums = 1.01 * chain * 2f64.powi(-24) * products;
    match precision {
        Precision::F32 => f32_sums,
        Precision::Bf16 => 2f64.powi(-7) * 1.01 * products + 2.0 * f32_sums,
        Precision::F16 => {
            let rounded = 2f64.powi(-10) * 1.01 * products + 2f64.powi(-24) * sum(&|x, w| x + w);
            rounded + f32_sums + k.min(128.0) * (2f64.powi(-11) * 1.05 * products + 2f64.powi(-24))
        }
        Precision::Int8 => {
            let x_unit = largest_magnitude(x) / 88.0 * 0.5001;
            let w_unit = largest_magnitude(w) / 127.0 * 1.39 * 0.5001;
            sum(&|x, w| x_unit * w + w_unit * x + x_unit * w_unit) + 4.0 * 2f64.powi(-23) * products
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_product_stays_within_the_error_bound_of_its_sum(
        m in 1usize..30, n in 1usize..70, k in 0usize..600,
    ) {
        let case = Case::new(m, n, k);
        for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
            let y = case.run(isa, precision, Epilogue::None);
            for i in 0..m {
                for j in 0..n {
                    let (x, w) = (&case.x[i * k..][..k], &case.w[j * k..][..k]);
                    let exact: f64 = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                    let error = (f64::from(y[i * n + j]) - exact).abs();
                    let bound = bound(precision, x, w);
                    prop_assert!(error <= bound, "{isa:?} {precision:?} ({i}, {j}): {error} > {bound}");
                }
            }
        }
    }
}

/// Without this test the wide bounds of int8 and f16 in `a_product_stays_within_...` hide errors.
#[test]
fn a_product_of_small_integers_is_exact_in_every_arithmetic() {
    let (m, n, k) = (19, 71, 330);
    let mut case = Case::new(m, n, k);
    // W from -127 to 127 and X from -88 to 88, so that int8's units are 1; few other values, so that
    // f16's sums stay below 2,048 · 16 while the f32 tail is exact.
    for value in case.x.iter_mut().chain(&mut case.w) {
        *value = (*value * 2.0).round();
    }
    for (values, ends) in [(&mut case.x, [88.0, -88.0]), (&mut case.w, [127.0, 0.0])] {
        for row in values.chunks_exact_mut(k) {
            row[..2].copy_from_slice(&ends);
        }
    }
    let exact =
        |i: usize, j: usize| -> f32 { (0..k).map(|l| case.x[i * k + l] * case.w[j * k + l]).sum() };
    for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
        let y = case.run(isa, precision, Epilogue::None);
        // 127² and the terms added to it take 15 bits; f16's chains keep 11 of them.
        let slack = if precision == Precision::F16 { 8.0 * 128.0 } else { 0.0 };
        for i in 0..m {
            for j in 0..n {
                let error = (y[i * n + j] - exact(i, j)).abs();
                assert!(error <= slack, "{isa:?} {precision:?} ({i}, {j}): {error}");
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours_or_its_place() {
    for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
        // Deep enough that the rows form several blocks.
        let (n, k) = if isa == Isa::detect() { (70, 20_000) } else { (70, 300) };
        let many = Case::new(61, n, k);
        let all = many.run(isa, precision, Epilogue::Bias(&many.bias));
        for (first, rows) in [(0, 1), (7, 2), (20, 15), (33, 28), (60, 1)] {
            let mut few = Case::new(rows, n, k);
            few.x.copy_from_slice(&many.x[first * k..][..rows * k]);
            let y = few.run(isa, precision, Epilogue::Bias(&many.bias));
            assert_eq!(bits(&y), bits(&all[first * n..][..rows * n]), "{isa:?} {precision:?}");
        }
    }
}

#[test]
fn the_epilogues_are_what_they_say() {
    let case = Case::new(17, 45, 80);
    for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
        let run = |epilogue| bits(&case.run(isa, precision, epilogue));
        let plain = case.run(isa, precision, Epilogue::None);
        let biased: Vec<f32> =
            plain.iter().enumerate().map(|(i, v)| v + case.bias[i % case.n]).collect();
        assert_eq!(run(Epilogue::Bias(&case.bias)), bits(&biased));
        let gelu: Vec<f32> = biased.iter().map(|&v| gelu_scalar(v)).collect();
        assert_eq!(run(Epilogue::BiasGelu(&case.bias)), bits(&gelu));
        let added: Vec<f32> = biased.iter().zip(&case.residual).map(|(v, r)| v + r).collect();
        assert_eq!(run(Epilogue::BiasResidual(&case.bias, case.residual())), bits(&added));
    }
}

#[test]
fn a_transposed_pack_gives_the_same_product() {
    for (m, n, k) in [(9, 37, 50), (3, 64, 1), (2, 130, 67)] {
        let case = Case::new(m, n, k);
        let mut transposed = vec![0.0; case.w.len()];
        for j in 0..case.n {
            for l in 0..case.k {
                transposed[l * case.n + j] = case.w[j * case.k + l];
            }
        }
        for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
            if precision == Precision::Int8 {
                continue;
            }
            let mut w = PackedMatrix::new(isa, precision, Matrix::new(&[1.0; 6], 2, 3, 3));
            w.pack_transposed(isa, precision, Matrix::new(&transposed, k, n, n));
            assert_eq!(
                bits(&case.run_packed(isa, &w, Epilogue::None)),
                bits(&case.run(isa, precision, Epilogue::None)),
                "{isa:?} {precision:?}"
            );
        }
    }
}

#[test]
fn strided_views_read_and_write_only_their_columns() {
    let case = Case::new(5, 34, 6);
    let (x_stride, y_stride) = (11, 40);
    let mut x = vec![f32::NAN; 5 * x_stride];
    for i in 0..5 {
        x[i * x_stride..][..6].copy_from_slice(&case.x[i * 6..][..6]);
    }
    for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
        let expected = case.run(isa, precision, Epilogue::None);
        let w = PackedMatrix::new(isa, precision, Matrix::new(&case.w, 34, 6, 6));
        let mut y = vec![7.0; 5 * y_stride];
        gemm(
            isa,
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
}

#[test]
fn a_row_that_is_not_finite_stays_visible_and_alone() {
    let (m, n, k) = (16, 40, 70);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut case = Case::new(m, n, k);
        case.x[3 * k + 69] = bad;
        for (isa, precision) in Isa::available().into_iter().flat_map(|isa| ALL.map(|a| (isa, a))) {
            let y = case.run(isa, precision, Epilogue::None);
            for (i, row) in y.chunks(n).enumerate() {
                assert!(row.iter().all(|v| v.is_finite() == (i != 3)), "{isa:?} {precision:?} {i}");
            }
        }
    }
}

#[test]
fn what_exceeds_f16_becomes_infinite() {
    let mut case = Case::new(2, 3, 4);
    case.x[0] = 70_000.0;
    for isa in Isa::available() {
        let y = case.run(isa, Precision::F16, Epilogue::None);
        assert!(y[..3].iter().all(|v| !v.is_finite()) && y[3..].iter().all(|v| v.is_finite()));
    }
}

/// Rows lose what int8 loses of the difference from their mean, with channels scaled by their sizes.
#[test]
fn rows_near_a_mean_are_rounded_around_it() {
    let (m, n, k) = (23, 41, 300);
    let mut case = Case::new(m, n, k);
    let means: Vec<f32> = values(9, 3 * k).iter().map(|value| 50.0 * value).collect();
    let kinds: Vec<u8> = (0..m).map(|i| (i * i % 3) as u8).collect();
    let deviations: Vec<f32> = (0..k).map(|l| 0.125 * (1 << (l % 8)) as f32).collect();
    let scale = |l: usize| {
        let squares = case.w[l..].iter().step_by(k).map(|w| f64::from(*w).powi(2)).sum::<f64>();
        (f64::from(deviations[l]).powf(0.125) / (squares / n as f64).powf(0.25)) as f32
    };
    let scales: Vec<f32> = (0..k).map(scale).collect();
    let scaled: Vec<f32> = case.w.iter().zip(scales.iter().cycle()).map(|(w, s)| w * s).collect();
    let mut rest = vec![0.0; m * k];
    for (at, (x, rest)) in case.x.iter_mut().zip(&mut rest).enumerate() {
        let mean = means[usize::from(kinds[at / k]) * k + at % k];
        *x = *x * deviations[at % k] + mean;
        *rest = (*x - mean) / scales[at % k];
    }
    let mut expected = None;
    for isa in Isa::available() {
        let w = PackedMatrix::around(isa, Matrix::new(&case.w, n, k, k), &means, &deviations);
        let mut y = vec![f32::NAN; m * n];
        let x = Matrix::new(&case.x, m, k, k).with_kinds(&kinds);
        let mut view = MatrixMut::new(&mut y, m, n, n);
        gemm(isa, x, &w, Epilogue::None, &mut view, &mut GemmScratch::default());
        assert_eq!(expected.get_or_insert_with(|| bits(&y)), &bits(&y), "{isa:?}");
        for (at, &value) in y.iter().enumerate() {
            let (x, w) = (&case.x[at / n * k..][..k], &case.w[at % n * k..][..k]);
            let product = |(&x, &w): (&f32, &f32)| f64::from(x) * f64::from(w);
            let exact: f64 = x.iter().zip(w).map(product).sum();
            // The product of the mean, up to 300 · 66, and the sum with it are rounded to f32.
            let slack = 2.0 * 2f64.powi(-24) * 300.0 * 66.0;
            let (x, w) = (&rest[at / n * k..][..k], &scaled[at % n * k..][..k]);
            // The scale of a channel is rounded.
            let bound = 1.001 * bound(Precision::Int8, x, w) + slack;
            let error = (f64::from(value) - exact).abs();
            assert!(error <= bound, "{isa:?} {at}: {error} > {bound}");
        }
    }
}

#[test]
fn int8_keeps_rows_of_any_size() {
    for size in [1e-44, 1e-38, 1e-20, 1e20, 1e37] {
        let mut case = Case::new(1, 2, 3);
        case.x = vec![size, -size / 2.0, 0.0];
        case.w = vec![1.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        let y = case.run(Isa::detect(), Precision::Int8, Epilogue::None);
        // Half a unit of the row is 0.6% of its largest value; below 2⁻¹¹³ the unit is 2⁻¹²⁰.
        let slack = size / 85.0 + 2f32.powi(-120);
        assert!((y[0] - size / 2.0).abs() <= slack, "{size}: {}", y[0]);
        assert_eq!(y[1].to_bits(), 0);
    }
}

#[test]
fn roundings_to_halves_are_those_of_the_crate_half() {
    let patterns = (0..=u32::MAX).step_by(4_093).chain((0..=0xffff).flat_map(|high| {
        [0, 1, 0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff]
            .map(|low| high << 16 | low)
    }));
    for x in patterns.map(f32::from_bits) {
        let (f16, bf16) = (half::f16::from_f32(x), half::bf16::from_f32(x));
        if x.is_nan() {
            assert!(f16_value(f16_bits(x)).is_nan() && bf16_value(bf16_bits(x)).is_nan());
            continue;
        }
        assert_eq!(f16_bits(x), u32::from(f16.to_bits()), "{x:e}");
        assert_eq!(bf16_bits(x), u32::from(bf16.to_bits()), "{x:e}");
        assert_eq!(f16_value(f16_bits(x)).to_bits(), f16.to_f32().to_bits());
        assert_eq!(bf16_value(bf16_bits(x)).to_bits(), bf16.to_f32().to_bits());
    }
}

#[test]
#[should_panic(expected = "the bias has 2 values")]
fn a_bias_of_another_length_is_refused() {
    let case = Case::new(1, 3, 2);
    case.run(Isa::detect(), Precision::F32, Epilogue::Bias(&case.bias[..2]));
}
