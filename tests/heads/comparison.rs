//! Training on the same splits as PyTorch reaches the same accuracy.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use polysift::config::{HeadConfig, Mode, TrainingConfig};
use polysift::train::{Samples, split};

use super::golden;
use super::training::{mixture, train};

/// Where `dump_comparison` writes; it does nothing where this is not set.
const DUMP: &str = "POLYSIFT_TEST_DUMP";
/// Seeds of the split and of everything random on our side and on PyTorch's.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// The samples of the comparison with PyTorch.
fn comparison_samples() -> Samples {
    mixture(4000, 192, 3.5)
}

/// Writes the samples and our splits for `heads.py compare`.
#[test]
#[ignore = "run by heads.py compare"]
fn dump_comparison() -> Result<()> {
    let Ok(path) = std::env::var(DUMP) else {
        return Ok(());
    };
    let samples = comparison_samples();
    let n = samples.ids.len();
    let bytes: Vec<u8> = samples.labels.iter().map(|&label| u8::from(label > 0.5)).collect();
    let embeddings =
        Tensor::from_slice(&samples.embeddings, (n, samples.hidden_size), &Device::Cpu)?;
    let mut tensors = HashMap::from([
        ("embeddings".to_owned(), embeddings),
        ("labels".to_owned(), Tensor::from_vec(bytes, n, &Device::Cpu)?),
    ]);
    for seed in SEEDS {
        let splits = split(&samples, seed, true);
        for (name, rows) in [("train", splits.train), ("validation", splits.validation)] {
            let rows: Vec<u32> = rows.into_iter().map(|row| row as u32).collect();
            let len = rows.len();
            tensors.insert(format!("{name}.{seed}"), Tensor::from_vec(rows, len, &Device::Cpu)?);
        }
    }
    candle_core::safetensors::save(&tensors, Path::new(&path))?;
    Ok(())
}

/// On the same splits as PyTorch: our accuracies differ from the means of its twelve trainings each by no more in the
/// mean than three standard errors of one training for each split.
#[test]
fn validation_accuracy_lies_in_the_spread_of_pytorch() -> Result<()> {
    let text = std::fs::read_to_string(golden("compare.json"))?;
    let torch: HashMap<u64, (f64, f64)> = serde_json::from_str(&text)?;
    let samples = comparison_samples();
    let training = TrainingConfig { mode: Mode::Published, ..TrainingConfig::default() };
    let config = HeadConfig { training, ..HeadConfig::default() };
    let (mut difference, mut variance, mut accuracies) = (0.0, 0.0, Vec::new());
    for seed in SEEDS {
        let head = train(&samples, "quality", &config, seed)?;
        let validation = head.card.training.as_ref().and_then(|t| t.validation);
        let accuracy = validation.and_then(|m| m.accuracy).context("no accuracy")?;
        let (mean, deviation) = torch[&seed];
        difference += accuracy - mean;
        variance += deviation * deviation;
        accuracies.push(accuracy);
    }
    assert!(difference.abs() <= 3.0 * variance.sqrt(), "{accuracies:?} {torch:?}");
    Ok(())
}
