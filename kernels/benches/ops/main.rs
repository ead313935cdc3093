//! Every kernel of the CPU alone, in one thread, beside a naive loop and the roofline.
//!
//! Ids are `cpu/<op>/<precision>/<shape>`, elements are rows (tokens). What criterion measures is wall
//! time; the share of the roofline, printed before it, is of processor time and so holds on a
//! machine with other work: for products and attention of the multiply-adds that the precision's
//! own instructions reach in registers, for the rest of a copy of the bytes that are read.

mod naive;
mod roofline;
#[path = "../../../benches/values.rs"]
mod values;
#[cfg(target_arch = "x86_64")]
mod x86;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use polysift_kernels::{
    AttentionScratch, Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, Precision,
    attention, gelu, gemm, layer_norm, mean_rows,
};

use self::roofline::{Bound, share};
use self::values::values;

/// The benchmarks of an op, which get its name.
type Benchmarks = fn(&str, &mut Group<'_>);

const OPS: [(&str, Benchmarks); 5] = [
    ("gemm", products),
    ("attention", attentions),
    ("gelu", gelus),
    ("layer_norm", layer_norms),
    ("mean_rows", pools),
];
const PRECISIONS: [(&str, Precision); 4] = [
    ("f32", Precision::F32),
    ("bf16", Precision::Bf16),
    ("f16", Precision::F16),
    ("int8", Precision::Int8),
];
/// Of the base shape.
const WIDTH: usize = 768;
const HEAD_SIZE: usize = 64;
const EPS: f64 = 1e-5;
const ROWS: usize = 1024;
/// Rows of the naive product: the rate is the same, the wait shorter.
const NAIVE_ROWS: usize = 16;

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// What is measured: the op, how it is computed, the shape.
type Id<'a> = [&'a str; 3];

/// Prints the share of the roofline, then lets criterion measure `run`, which takes `rows` rows.
fn measure(group: &mut Group<'_>, id: Id<'_>, rows: usize, bound: Bound, mut run: impl FnMut()) {
    group.throughput(Throughput::Elements(rows as u64));
    let mut printed = false;
    group.bench_function(BenchmarkId::new(id[1], id[2]), |bencher| {
        if !std::mem::replace(&mut printed, true) {
            share(&format!("cpu/{}", id.join("/")), bound, &mut run);
        }
        bencher.iter(&mut run);
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    for (op, benchmarks) in OPS {
        benchmarks(op, &mut criterion.benchmark_group(format!("cpu/{op}")));
    }
    criterion.final_summary();
}

fn products(op: &str, group: &mut Group<'_>) {
    let isa = Isa::detect();
    for (n, k) in [(2304, 768), (768, 768), (3072, 768), (768, 3072)] {
        let (x, w, bias) = (values(ROWS * k), values(n * k), values(n));
        let mut y = vec![0.0; ROWS * n];
        let shape = format!("{ROWS}x{n}x{k}");
        let operations = 2.0 * (ROWS * n * k) as f64;
        for (name, precision) in PRECISIONS {
            let packed = PackedMatrix::new(isa, precision, Matrix::new(&w, n, k, k));
            let mut scratch = GemmScratch::default();
            measure(
                group,
                [op, name, &shape],
                ROWS,
                Bound::Products(precision, operations),
                || {
                    let mut y = MatrixMut::new(&mut y, ROWS, n, n);
                    let x = Matrix::new(&x, ROWS, k, k);
                    gemm(isa, x, &packed, Epilogue::Bias(&bias), &mut y, &mut scratch);
                },
            );
        }
        let (x, y) = (&x[..NAIVE_ROWS * k], &mut y[..NAIVE_ROWS * n]);
        let operations = 2.0 * (NAIVE_ROWS * n * k) as f64;
        let bound = Bound::Products(Precision::F32, operations);
        let shape = format!("{NAIVE_ROWS}x{n}x{k}");
        measure(group, [op, "naive", &shape], NAIVE_ROWS, bound, || naive::gemm(x, &w, &bias, y));
    }
}

fn attentions(op: &str, group: &mut Group<'_>) {
    let isa = Isa::detect();
    for length in [512, 128] {
        let count = length * HEAD_SIZE;
        let (q, k, v) = (values(count), values(2 * count), values(3 * count));
        let (k, v) = (&k[count..], &v[2 * count..]);
        let mut out = vec![0.0; count];
        let shape = format!("{length}x{HEAD_SIZE}");
        let operations = 4.0 * (length * length * HEAD_SIZE) as f64;
        for (name, precision) in PRECISIONS {
            let mut scratch = AttentionScratch::default();
            // Beside int8's products attention is computed in what has two bytes.
            let wide = if precision == Precision::Int8 { Precision::F16 } else { precision };
            let bound = Bound::Products(wide, operations);
            measure(group, [op, name, &shape], length, bound, || {
                let view = |values| Matrix::new(values, length, HEAD_SIZE, HEAD_SIZE);
                let mut out = MatrixMut::new(&mut out, length, HEAD_SIZE, HEAD_SIZE);
                attention(
                    isa,
                    precision,
                    [view(&q), view(k), view(v)],
                    None,
                    &mut out,
                    &mut scratch,
                );
            });
        }
        let bound = Bound::Products(Precision::F32, operations);
        measure(group, [op, "naive", &shape], length, bound, || {
            naive::attention([&q, k, v], HEAD_SIZE, &mut out);
        });
    }
}

fn gelus(op: &str, group: &mut Group<'_>) {
    let isa = Isa::detect();
    let x = values(ROWS * 4 * WIDTH);
    for rows in [ROWS, 16] {
        let count = rows * 4 * WIDTH;
        let shape = format!("{rows}x{}", 4 * WIDTH);
        // Written anew each time: what it makes of its own results is soon denormal.
        let mut y = vec![0.0; count];
        measure(group, [op, "f32", &shape], rows, Bound::Copy(count), || {
            y.copy_from_slice(&x[..count]);
            gelu(isa, &mut y);
        });
        measure(group, [op, "naive", &shape], rows, Bound::Copy(count), || {
            y.copy_from_slice(&x[..count]);
            naive::gelu(&mut y);
        });
    }
}

fn layer_norms(op: &str, group: &mut Group<'_>) {
    let isa = Isa::detect();
    let (x, gamma, beta) = (values(ROWS * WIDTH), values(WIDTH), values(WIDTH));
    let mut y = vec![0.0; ROWS * WIDTH];
    for rows in [ROWS, 16] {
        let shape = format!("{rows}x{WIDTH}");
        let (x, y) = (&x[..rows * WIDTH], &mut y[..rows * WIDTH]);
        measure(group, [op, "f32", &shape], rows, Bound::Copy(x.len()), || {
            layer_norm(isa, x, &gamma, &beta, EPS, y);
        });
        measure(group, [op, "naive", &shape], rows, Bound::Copy(x.len()), || {
            naive::layer_norm(x, &gamma, &beta, EPS, y);
        });
    }
}

fn pools(op: &str, group: &mut Group<'_>) {
    let isa = Isa::detect();
    let rows = 512;
    let x = values(rows * WIDTH);
    let mut y = vec![0.0; WIDTH];
    let shape = format!("{rows}x{WIDTH}");
    measure(group, [op, "f32", &shape], rows, Bound::Copy(x.len()), || mean_rows(isa, &x, &mut y));
    measure(group, [op, "naive", &shape], rows, Bound::Copy(x.len()), || {
        naive::mean_rows(&x, &mut y);
    });
}
