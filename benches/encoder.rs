//! The CPU encoder in each precision, with candle on padded batches as the baseline.
//!
//! Ids are `cpu/encode/<precision>/<shape>`; elements per second are real tokens, never padding. The kernels
//! alone are in `kernels/benches/ops`.

mod candle_padded;
#[expect(dead_code, reason = "benches of several families keep it in files")]
mod model;
#[expect(dead_code, reason = "benches of several engines keep it in files")]
mod workload;

use anyhow::{Result, ensure};
use candle_core::{DType, Device};
use criterion::{BenchmarkId, Criterion, Throughput};
use polysift::config::{DeviceChoice, EncoderConfig, EncoderPrecision};
use polysift::encoder::{HubSettings, Model, embed_chunks, load};
use polysift::progress::Stop;

use self::candle_padded::Padded;
use self::model::{Family, Shape, write_model};
use self::workload::{Lengths, Workload};

const SEQUENCES: usize = 32;
/// Sequences that candle gets at a time, sorted by length.
const BASELINE_BATCH: usize = 8;
/// The precisions, and how far an embedding may be from candle's in f32, as a share of its length.
const PRECISIONS: [(&str, EncoderPrecision, f64); 4] = [
    ("f32", EncoderPrecision::F32, 1e-5),
    ("bf16", EncoderPrecision::Bf16, 0.02),
    ("f16", EncoderPrecision::F16, 0.02),
    ("int8", EncoderPrecision::Int8, 0.05),
];
const VOCAB_SIZE: usize = 1000;
const TOKENIZER: &[u8] = include_bytes!("../tests/golden/encoder/head16-prefixed/tokenizer.json");

const SHAPES: [Shape; 2] = [
    Shape {
        name: "mini-192x4",
        family: Family::XlmRoberta,
        hidden_size: 192,
        num_hidden_layers: 4,
        num_attention_heads: 6,
        intermediate_size: 768,
        vocab_size: VOCAB_SIZE,
    },
    Shape { name: "base-768x2", num_hidden_layers: 2, vocab_size: VOCAB_SIZE, ..Shape::BASE },
];

fn embed(model: &Model, chunks: &[&[u32]]) -> Result<Vec<f32>> {
    Ok(embed_chunks(model.encoder.as_ref(), chunks, 16_384, &Stop::default(), &mut |_, _| {})?)
}

/// Distance of `a` from `b` as a share of the length of `b`, over all embeddings together.
fn relative_l2(a: &[f32], b: &[f32]) -> f64 {
    let squares =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>();
    let difference = squares(&mut a.iter().zip(b).map(|(a, b)| a - b));
    (difference / squares(&mut b.iter().copied())).sqrt()
}

fn bench_encode(criterion: &mut Criterion) -> Result<()> {
    let workload = Workload::draw("web", Lengths::Web, SEQUENCES, VOCAB_SIZE, 2);
    let mut chunks = workload.chunks();
    chunks.sort_by_key(|chunk| std::cmp::Reverse(chunk.len()));
    let tokens: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let mut group = criterion.benchmark_group("cpu/encode");
    group.sample_size(10).throughput(Throughput::Elements(tokens as u64));
    for shape in &SHAPES {
        let directory = tempfile::tempdir()?;
        write_model(shape, TOKENIZER, directory.path())?;
        let candle = Padded::load(directory.path(), DType::F32, &Device::Cpu)?;
        let theirs = candle.embed(&chunks, BASELINE_BATCH)?;
        for (name, precision, tolerance) in PRECISIONS {
            let config = EncoderConfig {
                model: directory.path().display().to_string(),
                device: DeviceChoice::Cpu,
                precision,
                ..EncoderConfig::default()
            };
            let model = load(&config, &HubSettings::from_env(|_| None))?;
            let far = relative_l2(&embed(&model, &chunks)?, &theirs);
            ensure!(far <= tolerance, "{name}, {}: {far} from candle", shape.name);
            group.bench_function(BenchmarkId::new(name, shape.name), |bencher| {
                bencher.iter(|| embed(&model, &chunks));
            });
        }
        group.bench_function(BenchmarkId::new("candle-padded", shape.name), |bencher| {
            bencher.iter(|| candle.embed(&chunks, BASELINE_BATCH));
        });
    }
    group.finish();
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default().configure_from_args();
    bench_encode(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
