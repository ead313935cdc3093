//! Matrix kernels and the CPU encoder, with candle on padded batches as the baseline.
//!
//! Ids are `cpu/<op>/<shape>`; elements per second are floating-point operations for `gemm` and
//! real tokens (never padding) for `encode`.

use std::path::Path;

use anyhow::{Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::xlm_roberta::{Config, XLMRobertaModel};
use criterion::{BenchmarkId, Criterion, Throughput};
use polysift::config::EncoderConfig;
use polysift::encoder::{HubSettings, Model, embed_chunks, load};
use polysift_kernels::{Epilogue, GemmScratch, Isa, Matrix, MatrixMut, PackedMatrix, gemm};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

/// Lengths of web documents are log-normal; these are 32 quantiles, 16 to 512 tokens.
const MEDIAN_TOKENS: f64 = 240.0;
const SIGMA: f64 = 0.9;
const SEQUENCES: usize = 32;
/// Sequences that candle gets at a time, sorted by length.
const BASELINE_BATCH: usize = 8;
const VOCAB_SIZE: usize = 1000;
const TOKENIZER: &str = include_str!("../tests/golden/encoder/head16-prefixed/tokenizer.json");

struct Shape {
    name: &'static str,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "mini-192x4",
        hidden_size: 192,
        num_hidden_layers: 4,
        num_attention_heads: 6,
        intermediate_size: 768,
    },
    Shape {
        name: "base-768x2",
        hidden_size: 768,
        num_hidden_layers: 2,
        num_attention_heads: 12,
        intermediate_size: 3072,
    },
];

fn random(count: usize, scale: f32, rng: &mut ChaCha8Rng) -> Vec<f32> {
    (0..count).map(|_| rng.random_range(-scale..scale)).collect()
}

/// Writes a model of random weights.
fn write_model(shape: &Shape, directory: &Path) -> Result<()> {
    let (h, f) = (shape.hidden_size, shape.intermediate_size);
    let config = json!({
        "model_type": "xlm-roberta", "hidden_act": "gelu", "position_embedding_type": "absolute",
        "hidden_size": h, "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads, "intermediate_size": f,
        "vocab_size": VOCAB_SIZE, "max_position_embeddings": 514, "type_vocab_size": 1,
        "pad_token_id": 1, "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    });
    let mut shapes = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![VOCAB_SIZE, h]),
        ("embeddings.position_embeddings.weight".into(), vec![514, h]),
        ("embeddings.token_type_embeddings.weight".into(), vec![1, h]),
    ];
    let mut norms = vec!["embeddings.LayerNorm".to_owned()];
    for i in 0..shape.num_hidden_layers {
        for (part, outputs, inputs) in [
            ("attention.self.query", h, h),
            ("attention.self.key", h, h),
            ("attention.self.value", h, h),
            ("attention.output.dense", h, h),
            ("intermediate.dense", f, h),
            ("output.dense", h, f),
        ] {
            shapes.push((format!("encoder.layer.{i}.{part}.weight"), vec![outputs, inputs]));
            shapes.push((format!("encoder.layer.{i}.{part}.bias"), vec![outputs]));
        }
        norms.push(format!("encoder.layer.{i}.attention.output.LayerNorm"));
        norms.push(format!("encoder.layer.{i}.output.LayerNorm"));
    }
    for norm in norms {
        shapes.push((format!("{norm}.weight"), vec![h]));
        shapes.push((format!("{norm}.bias"), vec![h]));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let data = shapes.into_iter().map(|(name, shape)| {
        let values = random(shape.iter().product(), 0.05, &mut rng);
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        (name, shape, bytes)
    });
    let data: Vec<_> = data.collect();
    let views = data
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)));
    let views = views.collect::<Result<Vec<_>>>()?;
    std::fs::write(directory.join("model.safetensors"), safetensors::serialize(views, None)?)?;
    std::fs::write(directory.join("config.json"), config.to_string())?;
    std::fs::write(directory.join("tokenizer.json"), TOKENIZER)?;
    Ok(())
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

/// candle, padded to the longest of a batch, mean of the real tokens.
fn embed_padded(model: &XLMRobertaModel, chunks: &[&[u32]]) -> Result<Vec<f32>> {
    let mut embeddings = Vec::new();
    for batch in chunks.chunks(BASELINE_BATCH) {
        let longest = batch.iter().map(|chunk| chunk.len()).max().unwrap_or(0);
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for chunk in batch {
            ids.extend(chunk.iter().copied().chain(std::iter::repeat_n(1, longest - chunk.len())));
            mask.extend((0..longest).map(|i| u32::from(i < chunk.len())));
        }
        let shape = (batch.len(), longest);
        let input_ids = Tensor::from_vec(ids, shape, &Device::Cpu)?;
        let mask = Tensor::from_vec(mask, shape, &Device::Cpu)?;
        let types = input_ids.zeros_like()?;
        let hidden = model.forward(&input_ids, &mask, &types, None, None, None)?;
        let mask = mask.to_dtype(DType::F32)?;
        let sums = hidden.broadcast_mul(&mask.unsqueeze(2)?)?.sum(1)?;
        let means = sums.broadcast_div(&mask.sum_keepdim(1)?)?;
        embeddings.extend(means.flatten_all()?.to_vec1::<f32>()?);
    }
    Ok(embeddings)
}

fn bench_encode(criterion: &mut Criterion) -> Result<()> {
    let sequences = sequences();
    let chunks: Vec<&[u32]> = sequences.iter().map(Vec::as_slice).collect();
    let tokens: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let mut group = criterion.benchmark_group("cpu/encode");
    group.sample_size(10).throughput(Throughput::Elements(tokens as u64));
    for shape in &SHAPES {
        let directory = tempfile::tempdir()?;
        write_model(shape, directory.path())?;
        let config = EncoderConfig {
            model: directory.path().display().to_string(),
            ..EncoderConfig::default()
        };
        let model = load(&config, &HubSettings::from_env(|_| None))?;
        let file = |name| std::fs::read(directory.path().join(name));
        let weights = VarBuilder::from_buffered_safetensors(
            file("model.safetensors")?,
            DType::F32,
            &Device::Cpu,
        )?;
        let config: Config = serde_json::from_slice(&file("config.json")?)?;
        let candle = XLMRobertaModel::new(&config, weights)?;

        let (ours, theirs) = (embed(&model, &chunks)?, embed_padded(&candle, &chunks)?);
        let close = ours.iter().zip(&theirs).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(0.1));
        ensure!(close && ours.len() == theirs.len(), "{}: candle differs", shape.name);

        group.bench_function(BenchmarkId::new("packed", shape.name), |bencher| {
            bencher.iter(|| embed(&model, &chunks));
        });
        group.bench_function(BenchmarkId::new("candle-padded", shape.name), |bencher| {
            bencher.iter(|| embed_padded(&candle, &chunks));
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
        let packed = PackedMatrix::new(Matrix::new(&w, n, k, k));
        let mut scratch = GemmScratch::default();
        let isa = Isa::detect();
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
