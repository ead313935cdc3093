//! The encoder against transformers (goldens made by `golden/encoder.py`) and candle.

mod families;
mod loading;
mod precisions;
mod sentence_transformers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::xlm_roberta::{Config, XLMRobertaModel};
use polysift::batch::PackedBatch;
use polysift::config::{DeviceChoice, EncoderConfig, EncoderPrecision, Pooling};
use polysift::encoder::{Encoder, HubSettings, Model, embed_chunks, load, resolve};
use polysift::progress::Stop;
use proptest::prelude::*;
use safetensors::SafeTensors;

use crate::util::root;

const MODELS: [&str; 6] =
    ["head16-prefixed", "head20-sharded", "head32-bf16", "head64-f16", "packed-4", "packed-8"];
/// Largest relative L2 distance of an embedding from transformers' f32. Both round every
/// operation to f32 in another order: sqrt(k) · 2^-24 is about 2e-6 for the longest sums here
/// (k = 3072), and layer norm keeps it from growing with depth by more than a small factor
/// (4e-6 after 12 layers of the base shape; torch's own f32 is 1e-6 off its f64 there).
const TOLERANCE: f64 = 1e-5;

fn golden(name: &str) -> PathBuf {
    root().join("tests/golden/encoder").join(name)
}

fn config(model: &Path, pooling: Pooling) -> EncoderConfig {
    let model = model.display().to_string();
    let device = DeviceChoice::Cpu;
    let precision = EncoderPrecision::F32;
    let pooling = Some(pooling);
    EncoderConfig { model, pooling, max_tokens: 100, device, precision, ..EncoderConfig::default() }
}

fn offline() -> HubSettings {
    let cache = PathBuf::from("no-such-cache");
    HubSettings { cache, token: None, endpoint: String::new(), offline: true }
}

fn open(model: &Path, pooling: Pooling) -> polysift::Result<Model> {
    load(&config(model, pooling), &offline())
}

/// What transformers computed.
struct Expected {
    chunks: Vec<Vec<u32>>,
    mean: Vec<f32>,
    cls: Vec<f32>,
}

impl Expected {
    fn read(directory: &Path) -> Result<Self> {
        let bytes = std::fs::read(directory.join("expected.safetensors"))?;
        let file = SafeTensors::deserialize(&bytes)?;
        let words = |name| -> Result<Vec<u32>> {
            let data = file.tensor(name)?.data();
            Ok(data.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
        };
        let floats = |name| -> Result<Vec<f32>> {
            Ok(words(name)?.into_iter().map(f32::from_bits).collect())
        };
        let ids = words("input_ids")?;
        let starts = words("cu_seqlens")?;
        let chunk = |w: &[u32]| ids[w[0] as usize..w[1] as usize].to_vec();
        let chunks = starts.windows(2).map(chunk).collect();
        Ok(Self { chunks, mean: floats("mean")?, cls: floats("cls")? })
    }

    fn of(&self, pooling: Pooling) -> &[f32] {
        if pooling == Pooling::Mean { &self.mean } else { &self.cls }
    }
}

fn embed(encoder: &dyn Encoder, chunks: &[Vec<u32>], batch_tokens: usize) -> Result<Vec<f32>> {
    let chunks: Vec<&[u32]> = chunks.iter().map(Vec::as_slice).collect();
    Ok(embed_chunks(encoder, &chunks, batch_tokens, &Stop::default(), &mut |_, _| {})?)
}

/// Relative L2 distance of each row of `actual` from the same row of `expected`.
fn distances(actual: &[f32], expected: &[f32], width: usize) -> impl Iterator<Item = f64> {
    let distance = |(a, e): (&[f32], &[f32])| {
        let difference = a.iter().zip(e).map(|(&a, &e)| (f64::from(a) - f64::from(e)).powi(2));
        let norm = e.iter().map(|&e| f64::from(e).powi(2)).sum::<f64>();
        (difference.sum::<f64>() / norm).sqrt()
    };
    assert_eq!(actual.len(), expected.len());
    actual.chunks(width).zip(expected.chunks(width)).map(distance)
}

fn worst_distance(actual: &[f32], expected: &[f32], width: usize) -> f64 {
    distances(actual, expected, width).fold(0.0, f64::max)
}

fn check_against_transformers(directory: &Path) -> Result<f64> {
    let expected = Expected::read(directory)?;
    let mut worst = 0.0f64;
    for pooling in [Pooling::Mean, Pooling::Cls] {
        let model = open(directory, pooling)?;
        let width = model.encoder.info().embedding_size;
        let embeddings = embed(model.encoder.as_ref(), &expected.chunks, 700)?;
        worst = worst.max(worst_distance(&embeddings, expected.of(pooling), width));
    }
    ensure!(worst <= TOLERANCE, "{}: {worst:e} off", directory.display());
    Ok(worst)
}

#[test]
fn golden_embeddings_f32() -> Result<()> {
    for name in MODELS {
        check_against_transformers(&golden(name))?;
    }
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped check says why")]
fn golden_embeddings_of_the_base_shape_f32() -> Result<()> {
    let Some(directory) = std::env::var_os("POLYSIFT_BASE_GOLDEN") else {
        eprintln!(
            "skipped: POLYSIFT_BASE_GOLDEN is not set (golden/encoder.py --base DIR makes it)"
        );
        return Ok(());
    };
    let worst = check_against_transformers(Path::new(&directory))?;
    eprintln!("base shape: largest relative L2 distance {worst:e}");
    Ok(())
}

#[test]
fn candle_computes_the_same_embeddings() -> Result<()> {
    let directory = golden("head16-prefixed");
    let bytes = std::fs::read(directory.join("model.safetensors"))?;
    let weights = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu)?;
    let mut json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(directory.join("config.json"))?)?;
    json["position_embedding_type"] = "absolute".into();
    json["attention_probs_dropout_prob"] = 0.0.into();
    json["hidden_dropout_prob"] = 0.0.into();
    let candle =
        XLMRobertaModel::new(&serde_json::from_value::<Config>(json)?, weights.pp("roberta"))?;
    // candle gives a padding token inside the text a position of its own: without them here.
    let chunk: Vec<u32> = std::iter::once(0).chain((3..110).rev()).chain([2]).collect();
    let input_ids = Tensor::new(&chunk[..], &Device::Cpu)?.unsqueeze(0)?;
    let mask = Tensor::ones_like(&input_ids)?;
    let hidden = candle.forward(&input_ids, &mask, &input_ids.zeros_like()?, None, None, None)?;
    let last = hidden.narrow(1, chunk.len() - 1, 1)?;
    for (pooling, expected) in [(Pooling::Mean, hidden.mean(1)?), (Pooling::Last, last.squeeze(1)?)]
    {
        let expected = expected.squeeze(0)?.to_vec1::<f32>()?;
        let encoder = open(&directory, pooling)?.encoder;
        let embedding = embed(encoder.as_ref(), &[vec![0, 9, 2], chunk.clone()], 512)?;
        let distance = worst_distance(&embedding[expected.len()..], &expected, expected.len());
        ensure!(distance <= TOLERANCE, "{pooling:?}: {distance:e}");
    }
    Ok(())
}

#[test]
fn threads_batches_and_order_change_no_bit() -> Result<()> {
    let model = open(&golden("head16-prefixed"), Pooling::Mean)?;
    let encoder = model.encoder.as_ref();
    let width = encoder.info().embedding_size;
    let pools = [1, 2]
        .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    let chunks = prop::collection::vec(prop::collection::vec(3u32..120, 1..300), 1..14);
    let orders = chunks.prop_flat_map(|chunks| {
        let order: Vec<usize> = (0..chunks.len()).collect();
        (Just(chunks), Just(order).prop_shuffle())
    });
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) };
    proptest!(config, |((chunks, order) in orders)| {
        let run = |chunks: &[Vec<u32>], tokens, pool: &rayon::ThreadPool| {
            pool.install(|| embed(encoder, chunks, tokens))
                .map_err(|e| TestCaseError::fail(e.to_string()))
        };
        let expected = run(&chunks, 16_384, &pools[1])?;
        let shuffled: Vec<Vec<u32>> = order.iter().map(|&i| chunks[i].clone()).collect();
        for (tokens, pool) in [(600, &pools[0]), (16_384, &pools[0]), (600, &pools[1])] {
            let embeddings = run(&shuffled, tokens, pool)?;
            for (&i, row) in order.iter().zip(embeddings.chunks(width)) {
                prop_assert_eq!(row, &expected[i * width..][..width]);
            }
        }
    });
    Ok(())
}

#[test]
fn the_information_is_that_of_the_model() -> Result<()> {
    let directory = golden("head20-sharded");
    let model = open(&directory, Pooling::Mean)?;
    let info = model.encoder.info();
    assert_eq!((info.hidden_size, info.windows.len(), info.vocab_size), (60, 2, 120));
    assert_eq!((info.max_tokens, info.device.as_str()), (129, "cpu"));
    let files = resolve(&config(&directory, Pooling::Cls), &offline())?;
    assert_eq!(model.recipe.model_digest, files.recipe.model_digest);
    Ok(())
}

#[test]
fn each_batch_is_reported_and_a_stop_ends_the_work() -> Result<()> {
    let model = open(&golden("head16-prefixed"), Pooling::Mean)?;
    let chunks = [&[0, 5, 2][..], &[0, 5, 6, 7, 2], &[0, 2]];
    let mut seen = Vec::new();
    let stop = Stop::default();
    embed_chunks(model.encoder.as_ref(), &chunks, 5, &stop, &mut |chunks, tokens| {
        seen.push((chunks, tokens));
    })?;
    seen.sort_unstable(); // batches may end in any order
    assert_eq!(seen, [(1, 5), (2, 5)]);
    let ask = &mut |_, _| stop.ask(15);
    let many = [&[0, 5, 2][..]; 300]; // batches in work when the stop is asked for may end
    let result = embed_chunks(model.encoder.as_ref(), &many, 3, &stop, ask);
    assert!(matches!(result, Err(polysift::Error::Stopped)));
    Ok(())
}

#[test]
fn a_stop_ends_a_batch_in_work() -> Result<()> {
    let model =
        load(&EncoderConfig { device: DeviceChoice::Cpu, ..EncoderConfig::default() }, &offline())?;
    let mut batch = PackedBatch::default();
    (0..2_000).for_each(|_| batch.push(&[5; 500]));
    let mut embeddings = vec![0.0; 2_000 * model.encoder.info().embedding_size];
    let stop = Stop::default();
    let asker = stop.clone();
    let asking = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        asker.ask(15);
        Instant::now()
    });
    let result = model.encoder.encode(&batch, &mut embeddings, &stop);
    let ended = Instant::now();
    assert!(matches!(result, Err(polysift::Error::Stopped)), "a million tokens in 50 ms");
    let asked = asking.join().map_err(|_| anyhow::anyhow!("panicked"))?;
    assert!(ended - asked < Duration::from_secs(2), "{:?}", ended - asked);
    Ok(())
}

#[test]
fn batches_that_do_not_fit_the_model_are_refused() -> Result<()> {
    let model = open(&golden("head20-sharded"), Pooling::Mean)?;
    let refuse = |ids: &[u32], values: usize, expected: &str| -> Result<()> {
        let mut batch = PackedBatch::default();
        batch.push(ids);
        let stop = Stop::default();
        let error = model.encoder.encode(&batch, &mut vec![0.0; values], &stop).err();
        let message = error.context("accepted")?.to_string();
        ensure!(message.contains(expected), "{message}");
        Ok(())
    };
    refuse(&[1, 120, 2], 60, "token id 120 in sequence 0; there are 120")?;
    refuse(&[5; 130], 60, "130 tokens, not 1 to 129")?;
    refuse(&[], 60, "0 tokens")?;
    refuse(&[1, 2], 59, "59 values")?;
    let broken = PackedBatch { input_ids: vec![1, 2], cu_seqlens: vec![0, 5, 2] };
    let error = model.encoder.encode(&broken, &mut [0.0; 120], &Stop::default()).err();
    assert!(error.is_some_and(|e| e.to_string().contains("cu_seqlens")));
    Ok(())
}
