//! Matrix kernels and the CPU encoder, with candle on padded batches as the baseline.
//!
//! Ids are `cpu/<op>/<shape>`; elements per second are floating-point operations for `gemm` and
//! real tokens (never padding) for `encode`.

mod candle_padded;
mod model;

use anyhow::{Result, ensure};
use candle_core::{DType, Device};
use criterion::{BenchmarkId, Criterion, Throughput};
use polysift::config::{DeviceChoice, Dtype, EncoderConfig};
use polysift::encoder::{HubSettings, Model, embed_chunks, load};
use polysift_kernels::{
    Arithmetic, Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, gemm,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::candle_padded::Padded;
use self::model::{Shape, write_model};

/// Lengths of web documents are log-normal; these are 32 quantiles, 16 to 512 tokens.
const MEDIAN_TOKENS: f64 = 240.0;
const SIGMA: f64 = 0.9;
const SEQUENCES: usize = 32;
/// Sequences that candle gets at a time, sorted by length.
const BASELINE_BATCH: usize = 8;
const VOCAB_SIZE: usize = 1000;
const TOKENIZER: &[u8] = include_bytes!("../tests/golden/encoder/head16-prefixed/tokenizer.json");

const SHAPES: [Shape; 2] = [
    Shape {
        name: "mini-192x4",
        hidden_size: 192,
        num_hidden_layers: 4,
        num_attention_heads: 6,
        intermediate_size: 768,
        vocab_size: VOCAB_SIZE,
    },
    Shape {
        name: "base-768x2",
        hidden_size: 768,
        num_hidden_layers: 2,
        num_attention_heads: 12,
        intermediate_size: 3072,
        vocab_size: VOCAB_SIZE,
    },
];

fn random(count: usize, scale: f32, rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..count).map(|_| rng.random_range(-scale..scale)).collect()
}

/// Sequences of web-like lengths, longest first.
fn sequences() -> Vec<Vec<u32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let length = |i: usize| {
        // The logistic quantile function, scaled to the normal one's slope: close enough.
        let p = (i as f64 + 0.5) / SEQUENCES as f64;
        let normal = (p / (1.0 - p)).ln() / 1.702;
        (MEDIAN_TOKENS * (SIGMA * normal).exp()).clamp(16.0, 512.0) as usize
    };
    (0..SEQUENCES)
        .rev()
        .map(|i| (0..length(i)).map(|_| rng.random_range(3..VOCAB_SIZE as u32)).collect())
        .collect()
}

fn embed(model: &Model, chunks: &[&[u32]]) -> Result<Vec<f32>> {
    Ok(embed_chunks(model.encoder.as_ref(), chunks, 16_384, &mut |_, _| Ok(()))?)
}

fn bench_encode(criterion: &mut Criterion) -> Result<()> {
    let sequences = sequences();
    let chunks: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    let tokens: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let mut group = criterion.benchmark_group("cpu/encode");
    group.sample_size(10).throughput(Throughput::Elements(tokens as u64));
    for shape in &SHAPES {
        let directory = tempfile::tempdir()?;
        write_model(shape, TOKENIZER, directory.path())?;
        let config = EncoderConfig {
            model: directory.path().display().to_string(),
            device: DeviceChoice::Cpu,
            dtype: Dtype::F32,
            ..EncoderConfig::default()
        };
        let model = load(&config, &HubSettings::from_env(|_| None))?;
        let candle = Padded::load(directory.path(), DType::F32, &Device::Cpu)?;

        let ours = embed(&model, &chunks)?;
        let theirs = candle.embed(&chunks, BASELINE_BATCH)?;
        let close = ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(0.1));
        ensure!(close && ours.len() == theirs.len(), "{}: candle differs", shape.name);

        group.bench_function(BenchmarkId::new("packed", shape.name), |bencher| {
            bencher.iter(|| embed(&model, &chunks));
        });
        group.bench_function(BenchmarkId::new("candle-padded", shape.name), |bencher| {
            bencher.iter(|| candle.embed(&chunks, BASELINE_BATCH));
        });
    }
    group.finish();
    Ok(())
}

fn bench_gemm(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cpu/gemm");
    group.sample_size(20);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (m, n, k) in
        [(512, 3072, 768), (512, 768, 3072), (512, 2304, 768), (512, 512, 64), (512, 64, 512)]
    {
        group.throughput(Throughput::Elements(2 * (m * n * k) as u64));
        let (x, w) = (random(m * k, 1.0, &mut rng), random(n * k, 1.0, &mut rng));
        let (bias, mut y) = (random(n, 1.0, &mut rng), vec![0.0; m * n]);
        let isa = Isa::detect();
        let packed = PackedMatrix::new(isa, Arithmetic::F32, Matrix::new(&w, n, k, k));
        let mut scratch = GemmScratch::default();
        let id = BenchmarkId::new(isa.name(), format!("{m}x{n}x{k}"));
        group.bench_function(id, |bencher| {
            bencher.iter(|| {
                let x = Matrix::new(&x, m, k, k);
                let mut y = MatrixMut::new(&mut y, m, n, n);
                gemm(isa, x, &packed, Epilogue::BiasGelu(&bias), &mut y, &mut scratch);
            });
        });
    }
    group.finish();
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    bench_gemm(&mut criterion);
    bench_encode(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
