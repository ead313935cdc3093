//! Heads: files and scores against PyTorch and NumPy, metrics against scikit-learn, training.
//! The golden files are written by `tests/golden/heads.py`.

mod comparison;
mod files;
mod hostile;
mod import;
mod languages;
mod negatives;
mod published;
mod training;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use polysift::config::{ChunkRule, HeadConfig, HeadOutput, Keep};
use polysift::encoder::HubSettings;
use polysift::head::{Head, ImportRequest};
use polysift::metrics::{Confusion, DECISION, binary_cross_entropy, roc_auc};

use crate::util::root;

/// A golden file.
fn golden(name: &str) -> PathBuf {
    root().join("tests/golden/heads").join(name)
}

/// PyTorch's inputs and outputs.
fn expected() -> Result<HashMap<String, Tensor>> {
    Ok(candle_core::safetensors::load(golden("scores.safetensors"), &Device::Cpu)?)
}

/// Values of a tensor.
fn values<T: candle_core::WithDType>(tensor: &Tensor) -> Result<Vec<T>> {
    Ok(tensor.to_dtype(T::DTYPE)?.flatten_all()?.to_vec1()?)
}

fn offline() -> HubSettings {
    let cache = PathBuf::from("no-such-cache");
    HubSettings { cache, token: None, endpoint: String::new(), offline: true }
}

/// Imports a head without a network.
fn import(path: &Path, request: &ImportRequest) -> polysift::Result<Head> {
    polysift::head::import(path, request, &offline())
}

/// A config that sets nothing but the output.
fn with_output(output: HeadOutput) -> HeadConfig {
    HeadConfig { output: Some(output), ..HeadConfig::default() }
}

/// Tolerance 1e-6 absolute on scores (contract): sums of 768 products of f32 numbers near 1 and
/// 0.02 carry some 1e-7 on either side. Logits of rows sixty times as large carry sixty times that.
#[test]
fn scores_agree_with_pytorch() -> Result<()> {
    let expected = expected()?;
    for (case, name, config) in [
        ("quality", "quality", HeadConfig::default()),
        ("toxicity", "toxicity", HeadConfig::default()),
        ("raw_bf16", "fluency", with_output(HeadOutput::Raw)),
        ("raw_f64", "fluency", with_output(HeadOutput::Raw)),
        ("cosine", "likeness", HeadConfig::default()),
    ] {
        let head = Head::load(&golden(&format!("{case}.safetensors")), name, &config)?;
        let get = |part: &str| expected.get(&format!("{case}.{part}"));
        let chunks: Vec<f32> = values(get("embeddings").context("embeddings")?)?;
        let offsets = match get("offsets") {
            Some(tensor) => values::<i64>(tensor)?.into_iter().map(|o| o as usize).collect(),
            None => (0..=chunks.len() / head.hidden_size()).collect::<Vec<usize>>(),
        };
        let scores = head.score(&chunks, &offsets)?;
        let torch: Vec<f64> = values(get("scores").context("scores")?)?;
        assert_eq!(scores.len(), torch.len());
        for (row, (score, torch)) in scores.iter().zip(torch).enumerate() {
            match score {
                Some(score) => {
                    let error = (f64::from(score.score) - torch).abs();
                    assert!(error < 1e-6, "{case} {row}: {score:?} {torch}");
                }
                None => assert!(torch < 0.0 && offsets[row] == offsets[row + 1], "{case} {row}"),
            }
        }
        if let Some(logits) = get("logits") {
            for (score, torch) in scores.iter().flatten().zip(values::<f32>(logits)?) {
                assert!((score.logit - torch).abs() < 6e-5, "{case}: {score:?} {torch}");
            }
        }
    }
    Ok(())
}

#[test]
fn presets_give_a_foreign_file_its_spec() -> Result<()> {
    let quality = Head::load(&golden("quality.safetensors"), "quality", &HeadConfig::default())?;
    assert_eq!(quality.card.spec.layer_sizes, [768, 64, 1]);
    assert_eq!(quality.card.spec.chunk, ChunkRule::First);
    let toxicity = Head::load(&golden("toxicity.safetensors"), "toxicity", &HeadConfig::default())?;
    assert_eq!(toxicity.card.spec.layer_sizes, [48, 48, 2]);
    assert_eq!((toxicity.card.spec.chunk, toxicity.card.spec.keep), (ChunkRule::Max, Keep::Below));
    assert_eq!(toxicity.card.language, None);
    let cosine = Head::load(&golden("cosine.safetensors"), "x", &HeadConfig::default())?;
    assert_eq!(cosine.card.spec.layer_sizes, [96, 50]);
    Ok(())
}

#[test]
fn metrics_agree_with_scikit_learn() -> Result<()> {
    let text = std::fs::read_to_string(golden("metrics.json"))?;
    let cases: HashMap<String, serde_json::Value> = serde_json::from_str(&text)?;
    assert!(cases.len() >= 8);
    for (name, case) in cases {
        let logits: Vec<f32> = serde_json::from_value(case["logits"].clone())?;
        let labels: Vec<bool> = serde_json::from_value(case["labels"].clone())?;
        let scores: Vec<f32> = values(&candle_nn::ops::sigmoid(&Tensor::from_slice(
            &logits,
            logits.len(),
            &Device::Cpu,
        )?)?)?;
        let called = scores.iter().map(|&score| score > DECISION);
        let counts = Confusion::of_calls(called.zip(labels.iter().copied()));
        for (key, ours) in [
            ("accuracy", counts.accuracy()),
            ("precision", counts.precision()),
            ("recall", counts.recall()),
            ("f1", counts.f1()),
            ("roc_auc", roc_auc(&logits, &labels)),
            ("loss", binary_cross_entropy(&logits, &labels)),
        ] {
            let expected = case["expected"][key].as_f64();
            // Counts are exact on both sides; scikit-learn sums areas in f64, at most 200 of them.
            let close = match (ours, expected) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-12 * b.abs().max(1.0),
                (None, None) => true,
                _ => false,
            };
            assert!(close, "{name} {key}: {ours:?} {expected:?}");
        }
    }
    Ok(())
}
