//! Matrix products of one thread beside the multiply-add rate that this CPU reaches in registers.
//!
//! `cargo bench -p polysift-kernels --bench gemm -- [f32|bf16|f16|int8]... [M]`; best and median of short
//! repeats, because machines are shared.
#![expect(clippy::print_stdout, reason = "a report")]

use std::hint::black_box;
use std::time::Instant;

use polysift_kernels::{
    Arithmetic, Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, gemm,
};

const ALL: [(&str, Arithmetic); 4] = [
    ("f32", Arithmetic::F32),
    ("bf16", Arithmetic::Bf16),
    ("f16", Arithmetic::F16),
    ("int8", Arithmetic::Int8),
];
const REPEATS: usize = 15;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let m = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(1024);
    let named = |name: &str| arguments.iter().any(|a| a == name);
    let none = !ALL.iter().any(|(name, _)| named(name));
    for (name, arithmetic) in ALL.into_iter().filter(|(name, _)| none || named(name)) {
        for (n, k) in [(3072, 768), (768, 3072), (2304, 768), (768, 768)] {
            for tail in ["none", "bias", "gelu"] {
                product(name, arithmetic, (m, n, k), tail);
            }
        }
    }
}

fn values(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    })
    .take(count)
    .collect()
}

fn product(name: &str, arithmetic: Arithmetic, (m, n, k): (usize, usize, usize), tail: &str) {
    let (x, w, bias) = (values(m * k), values(n * k), values(n));
    let isa = Isa::detect();
    let w = PackedMatrix::new(isa, arithmetic, Matrix::new(&w, n, k, k));
    let epilogue = match tail {
        "bias" => Epilogue::Bias(&bias),
        "gelu" => Epilogue::BiasGelu(&bias),
        _ => Epilogue::None,
    };
    let mut y = vec![0.0; m * n];
    let mut scratch = GemmScratch::default();
    let mut run = || {
        let mut y = MatrixMut::new(&mut y, m, n, n);
        gemm(isa, Matrix::new(&x, m, k, k), &w, epilogue, &mut y, &mut scratch);
    };
    run();
    let (mut peaks, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        peaks.push(peak());
        let start = Instant::now();
        run();
        rates.push(2.0 * (m * n * k) as f64 / 1e9 / start.elapsed().as_secs_f64());
    }
    peaks.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    let factor = match arithmetic {
        Arithmetic::F32 | Arithmetic::Bf16 => 1.0,
        Arithmetic::F16 => 2.15,
        Arithmetic::Int8 => 4.2,
    };
    let (peak, best, median) =
        (peaks[REPEATS - 1] * factor, rates[REPEATS - 1], rates[REPEATS / 2]);
    println!(
        "{name:5} {m:5}x{n}x{k} {tail:5} best {best:6.1} ({:5.1}%)  median {median:6.1}  peak {peak:6.1} GFLOP/s",
        100.0 * best / peak
    );
}

/// f32 multiply-adds in registers, GFLOP/s.
#[cfg(target_arch = "x86_64")]
fn peak() -> f64 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    #[target_feature(enable = "avx512f")]
    fn chains(steps: usize) -> f32 {
        let (a, b) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
        let mut sums = [b; 16];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, a, b);
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
    }
    if !is_x86_feature_detected!("avx512f") {
        return f64::NAN;
    }
    let steps = 200_000;
    let start = Instant::now();
    // SAFETY: the CPU has AVX-512F, as asked above.
    black_box(unsafe { chains(steps) });
    (steps * 16 * 16 * 2) as f64 / 1e9 / start.elapsed().as_secs_f64()
}

#[cfg(not(target_arch = "x86_64"))]
fn peak() -> f64 {
    f64::NAN
}
