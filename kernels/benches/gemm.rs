//! Matrix products of one thread beside the multiply-add rate that this CPU reaches in registers.
//!
//! `cargo bench -p polysift-kernels --bench gemm -- [f32|bf16|f16|int8]... [portable|avx2|avx512|amx|neon] [M]`;
//! best and median of short repeats, because machines are shared.
#![expect(clippy::print_stdout, reason = "a report")]

#[path = "../../benches/values.rs"]
mod values;

use polysift_kernels::{
    Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision, gemm,
};
use rustix::time::{ClockId, clock_gettime};

use self::values::values;

const ALL: [(&str, Precision); 4] = [
    ("f32", Precision::F32),
    ("bf16", Precision::Bf16),
    ("f16", Precision::F16),
    ("int8", Precision::Int8),
];
const REPEATS: usize = 41;

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let m = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(1024);
    let named = |name: &str| arguments.iter().any(|a| a == name);
    let isas = Isa::available();
    let isa = isas.into_iter().rfind(|isa| named(isa.name())).unwrap_or_else(Isa::detect);
    let none = !ALL.iter().any(|(name, _)| named(name));
    for (name, precision) in ALL.into_iter().filter(|(name, _)| none || named(name)) {
        packing(isa, name, precision);
        // Of a layer of the base shape; the last two are a head's scores and its context at 512 tokens.
        for (n, k, tail) in [
            (3072, 768, "bias"),
            (3072, 768, "gelu"),
            (768, 3072, "bias"),
            (2304, 768, "bias"),
            (512, 64, "none"),
            (64, 512, "none"),
        ] {
            product(isa, name, precision, (m, n, k), tail);
        }
    }
}

/// Processor time of this thread: other programs' share of the cores does not count.
fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Keys and values of a head of 64, a sequence of 512; cycles' worth of f32 multiply-adds a value.
fn packing(isa: Isa, name: &str, precision: Precision) {
    let (tokens, width) = (512, 64);
    let x = values(tokens * 3 * 768);
    let x = Matrix::new(&x, tokens, width, 3 * 768);
    let mut packed = PackedMatrix::default();
    for transposed in [false, true] {
        if transposed && precision == Precision::Int8 {
            continue;
        }
        let mut times: Vec<f64> = (0..200)
            .map(|_| {
                let start = seconds();
                if transposed {
                    packed.pack_transposed(isa, precision, x);
                } else {
                    packed.pack(isa, precision, x);
                }
                (seconds() - start) * 1e9 / (tokens * width) as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{name:5} pack, transposed {transposed}: median {:.3} ns a value", times[100]);
    }
}

fn product(
    isa: Isa,
    name: &str,
    precision: Precision,
    (m, n, k): (usize, usize, usize),
    tail: &str,
) {
    // Weights nearly normal, as those of models are: int8 without dot products depends on it.
    let w: Vec<f32> = values(8 * n * k).chunks(8).map(|eight| eight.iter().sum()).collect();
    let (x, bias) = (values(m * k), values(n));
    let w = PackedMatrix::new(isa, precision, Matrix::new(&w, n, k, k));
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
    let factor = match precision {
        Precision::F32 | Precision::Bf16 => 1.0,
        Precision::F16 => 2.15,
        Precision::Int8 => 4.2,
    };
    let (mut rates, mut shares) = (Vec::new(), Vec::new());
    let mut before = peak(isa);
    for _ in 0..REPEATS {
        let start = seconds();
        run();
        let rate = 2.0 * (m * n * k) as f64 / 1e9 / (seconds() - start);
        let after = peak(isa);
        rates.push(rate);
        shares.push(200.0 * rate / (before + after) / factor);
        before = after;
    }
    rates.sort_by(f64::total_cmp);
    shares.sort_by(f64::total_cmp);
    println!(
        "{name:5} {m:5}x{n}x{k} {tail:5} best {:6.1}  median {:6.1} GFLOP/s  share of peak: median {:5.1}%",
        rates[REPEATS - 1],
        rates[REPEATS / 2],
        shares[REPEATS / 2]
    );
}

/// f32 multiply-adds in registers, GFLOP/s: in assembly, because the compiler moves the sums about.
#[cfg(target_arch = "x86_64")]
fn peak(isa: Isa) -> f64 {
    const STEPS: u64 = 100_000;
    macro_rules! rate {
        ($register:literal, $lanes:literal, $($sum:literal)*) => {{
            let start = seconds();
            // SAFETY: the CPU has these registers, as asked below; those that change are named.
            unsafe {
                std::arch::asm!(
                    "vpxor xmm14, xmm14, xmm14",
                    "vpxor xmm15, xmm15, xmm15",
                    "2:",
                    $(concat!(
                        "vfmadd231ps ", $register, $sum, ", ", $register, "14, ", $register, "15"
                    ),)*
                    "dec {steps}",
                    "jnz 2b",
                    steps = inout(reg) STEPS => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
                    out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _,
                    out("xmm10") _, out("xmm11") _, out("xmm14") _, out("xmm15") _,
                    options(nomem, nostack),
                );
            }
            (STEPS * 12 * $lanes * 2) as f64 / 1e9 / (seconds() - start)
        }};
    }
    if matches!(isa.name(), "avx512" | "amx") {
        return rate!("zmm", 16, 0 1 2 3 4 5 6 7 8 9 10 11);
    }
    if is_x86_feature_detected!("fma") {
        return rate!("ymm", 8, 0 1 2 3 4 5 6 7 8 9 10 11);
    }
    f64::NAN
}

#[cfg(not(target_arch = "x86_64"))]
fn peak(_: Isa) -> f64 {
    f64::NAN
}
