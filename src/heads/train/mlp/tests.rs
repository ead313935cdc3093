//! The optimiser against PyTorch; the golden files are written by `tests/golden/heads.py` and
//! `tests/golden/toxicity.py`.

use candle_core::DType;

use super::*;
use crate::head::Provenance;
use crate::train::Samples;
use polysift_config::{HeadConfig, Preset};

/// A request of these samples and settings.
fn request<'a>(samples: &'a Samples, config: &'a HeadConfig) -> TrainingRequest<'a> {
    let provenance = Provenance::default();
    TrainingRequest { name: "quality", language: "und", config, samples, seed: 1, provenance }
}

/// Largest absolute difference.
fn difference(a: &Tensor, b: &Tensor) -> candle_core::Result<f32> {
    (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar()
}

/// Five full-batch steps from PyTorch's weights end at PyTorch's weights: forward pass,
/// gradients and AdamW. A step moves a weight by about the learning rate, 3e-2, whatever the
/// size of the gradient; both sides compute it in f32, and where a gradient is itself the small
/// difference of terms near 0.1 its relative error is some 1e-6, so 1e-5 of a step is allowed
/// in each of five.
#[test]
fn golden_optimisation_f32() -> anyhow::Result<()> {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/heads/optimisation.safetensors");
    let golden = candle_core::safetensors::load(path, &Device::Cpu)?;
    for (outputs, output) in
        [(1, HeadOutput::Sigmoid), (2, HeadOutput::Class(1)), (3, HeadOutput::Class(2))]
    {
        let get = |name: &str| &golden[&format!("{outputs}.{name}")];
        let labels = get("labels").to_dtype(DType::U8)?.to_vec1::<u8>()?;
        let samples = Samples {
            ids: (0..labels.len()).map(|i| i.to_string()).collect(),
            labels: labels.iter().map(|&label| f32::from(label)).collect(),
            embeddings: get("embeddings").flatten_all()?.to_vec1()?,
            hidden_size: 6,
            ..Samples::default()
        };
        let training = TrainingConfig {
            mode: Mode::Default,
            loss: None,
            epochs: Some(5),
            batch_size: Some(labels.len()),
            learning_rate: Some(3e-2),
            weight_decay: Some(0.1),
            dropout: Some(0.0),
            checkpoint: None,
        };
        let config = HeadConfig {
            hidden: Some(vec![5]),
            output: Some(output),
            training: training.clone(),
            ..HeadConfig::default()
        };
        let request = request(&samples, &config);
        let mut order: Vec<usize> = (0..labels.len()).collect();
        let mut trainer = Trainer::new(&request, training, None, Standardisation::none(6), &order)?;
        for (index, (weight, bias)) in trainer.layers.iter().enumerate() {
            weight.set(get(&format!("before.{}.weight", index * 3)))?;
            bias.set(get(&format!("before.{}.bias", index * 3)))?;
        }
        for _ in 0..5 {
            trainer.epoch(&mut order, &Stop::default())?;
        }
        for (index, (weight, bias)) in trainer.layers.iter().enumerate() {
            for (part, var) in [("weight", weight), ("bias", bias)] {
                let error = difference(var, get(&format!("after.{}.{part}", index * 3)))?;
                assert!(error < 5.0 * 3e-2 * 1e-5, "{outputs} {index} {part}: {error}");
            }
        }
    }
    Ok(())
}

/// Eight full-batch steps of published mode from PyTorch's weights end at PyTorch's weights, and
/// the loss there is PyTorch's: softmax twice, a rate that rises over three steps and falls to
/// 0. The tolerance is that of the test above; the rates add up to some five times the highest.
#[test]
fn golden_published_mode_f32() -> anyhow::Result<()> {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/toxicity/steps.safetensors");
    let golden = candle_core::safetensors::load(path, &Device::Cpu)?;
    let labels = golden["labels"].to_vec1::<u8>()?;
    let samples = Samples {
        ids: (0..labels.len()).map(|i| i.to_string()).collect(),
        labels: labels.iter().map(|&label| f32::from(label)).collect(),
        embeddings: golden["embeddings"].flatten_all()?.to_vec1()?,
        hidden_size: 6,
        ..Samples::default()
    };
    let training = TrainingConfig {
        mode: Mode::Published,
        batch_size: Some(labels.len()),
        learning_rate: Some(3e-2),
        weight_decay: Some(0.01),
        dropout: Some(0.0),
        ..TrainingConfig::default()
    };
    let config = HeadConfig {
        preset: Some(Preset::Toxicity),
        training: training.clone(),
        ..HeadConfig::default()
    };
    let request = request(&samples, &config);
    let schedule = Schedule { warm_up_steps: 3, steps: 8 };
    let mut order: Vec<usize> = (0..labels.len()).collect();
    let mut trainer =
        Trainer::new(&request, training, Some(schedule), Standardisation::none(6), &order)?;
    for (index, (weight, bias)) in trainer.layers.iter().enumerate() {
        weight.set(&golden[&format!("before.{}.weight", index * 3)])?;
        bias.set(&golden[&format!("before.{}.bias", index * 3)])?;
    }
    for _ in 0..8 {
        trainer.epoch(&mut order, &Stop::default())?;
    }
    for (index, (weight, bias)) in trainer.layers.iter().enumerate() {
        for (part, var) in [("weight", weight), ("bias", bias)] {
            let error = difference(var, &golden[&format!("after.{}.{part}", index * 3)])?;
            assert!(error < 5.0 * 3e-2 * 1e-5, "{index} {part}: {error}");
        }
    }
    let rows: Vec<usize> = (0..labels.len()).collect();
    let scorer = trainer.scorer()?.ok_or_else(|| request.error("not finite"))?;
    let logits = request.logits(&scorer, &rows);
    let loss = loss::double_softmax(&logits, &samples.classes(&rows)).unwrap_or_default();
    // Weights off by 1.5e-6 in sums of a dozen products move a loss of slope < 1/2 by less.
    let expected = f64::from(golden["loss"].to_scalar::<f32>()?);
    assert!((loss - expected).abs() < 1e-5, "{loss} {expected}");
    Ok(())
}

#[test]
fn initial_weights_fill_their_range_and_dropout_its_rate() -> anyhow::Result<()> {
    let samples = Samples { hidden_size: 400, ..Samples::default() };
    let config = HeadConfig::default();
    let request = request(&samples, &config);
    let settings = config.training("quality", 1);
    let mut trainer = Trainer::new(&request, settings, None, Standardisation::none(400), &[])?;
    for ((weight, bias), bound) in trainer.layers.iter().zip([0.05f32, 0.0625]) {
        for var in [weight, bias] {
            let values = var.flatten_all()?.to_vec1::<f32>()?;
            assert!(values.iter().all(|x| x.abs() <= bound));
            // Of 256 uniform values the largest is above 0.9 of the bound but for 0.9^256.
            let largest = values.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            assert!(values.len() == 1 || largest > 0.9 * bound, "{largest}");
        }
    }
    let mask = dropout_mask(&mut trainer.dropout, 100_000, 0.2);
    let dropped = mask.iter().filter(|&&factor| factor == 0.0).count();
    // Six standard deviations of a binomial: 6 sqrt(100000 * 0.2 * 0.8) = 759.
    assert!((19_241..=20_759).contains(&dropped), "{dropped}");
    assert!(mask.iter().all(|&factor| factor == 0.0 || (factor - 1.25).abs() < 1e-6));
    Ok(())
}

/// The gradients of the losses of grades are PyTorch's; both compute them in f64 from f32, ours end as f32.
#[test]
fn golden_gradients_of_grades() -> anyhow::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/heads/graded.safetensors");
    let golden = candle_core::safetensors::load(path, &Device::Cpu)?;
    let outputs = golden["outputs"].to_vec2::<f32>()?;
    let (grades, weights) =
        (golden["output_grades"].to_vec1::<f32>()?, golden["output_weights"].to_vec1::<f32>()?);
    for (name, loss, width) in [
        ("squared", HeadLoss::Squared, 1),
        ("huber", HeadLoss::Huber, 1),
        ("ranked_probability", HeadLoss::RankedProbability, 5),
    ] {
        let outputs: Vec<Vec<f32>> = outputs.iter().map(|row| row[..width].to_vec()).collect();
        let targets = grades.iter().zip(&weights).map(|(&g, &w)| (f64::from(g), f64::from(w)));
        let found = loss.gradient(&outputs, targets);
        let expected = golden[&format!("gradient.{name}")]
            .to_dtype(DType::F64)?
            .flatten_all()?
            .to_vec1::<f64>()?;
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.into_iter().zip(expected) {
            // No gradient is above 4: half a unit of f32 there, and some in f64.
            assert!((f64::from(found) - expected).abs() < 4.0 * 2f64.powi(-24), "{name}");
        }
    }
    Ok(())
}
