//! Tests of the optimiser against PyTorch; `tests/golden/heads.py` and `tests/golden/toxicity.py`
//! write the golden files.

use candle_core::{DType, Device, Tensor};
use rand::SeedableRng;

use std::collections::HashMap;

use super::*;
use crate::head::Provenance;
use crate::train::Samples;
use polysift_base::progress::Stop;
use polysift_config::{HeadConfig, Preset};

fn request<'a>(samples: &'a Samples, config: &'a HeadConfig) -> TrainingRequest<'a> {
    let provenance = Provenance::default();
    let (name, language, stop) = ("quality", "und", Stop::of_process());
    TrainingRequest { name, language, config, samples, seed: 1, provenance, stop }
}

/// Returns the values of layer `index` in `golden`, `weight` and `bias`, beside a trainer's.
fn layer<'t>(
    trainer: &'t mut Trainer<'_>,
    golden: &HashMap<String, Tensor>,
    prefix: &str,
    index: usize,
) -> candle_core::Result<[(&'t mut Vec<f32>, Vec<f32>); 2]> {
    let get = |part: &str| -> candle_core::Result<Vec<f32>> {
        golden[&format!("{prefix}.{}.{part}", index * 3)].flatten_all()?.to_vec1()
    };
    let layer = &mut trainer.network.layers[index];
    Ok([(&mut layer.weight.values, get("weight")?), (&mut layer.bias.values, get("bias")?)])
}

/// Starts `trainer` from the weights `before` in `golden`, steps with every sample, and compares
/// with the weights `after`. A step moves a weight by about the learning rate, 3e-2, for any
/// gradient. Both sides compute it in f32; a gradient that is the small difference of terms near
/// 0.1 has a relative error of about 1e-6, so 1e-5 of a step is allowed in each of five.
fn steps_end_at(
    trainer: &mut Trainer<'_>,
    golden: &HashMap<String, Tensor>,
    prefix: &str,
    steps: usize,
) -> anyhow::Result<()> {
    for index in 0..2 {
        for (values, before) in layer(trainer, golden, &format!("{prefix}before"), index)? {
            *values = before;
        }
    }
    let mut order: Vec<usize> = (0..trainer.request.samples.labels.len()).collect();
    for _ in 0..steps {
        trainer.train_epoch(&mut order)?;
    }
    for index in 0..2 {
        for (values, after) in layer(trainer, golden, &format!("{prefix}after"), index)? {
            assert_eq!(values.len(), after.len());
            for (value, after) in values.iter().zip(after) {
                assert!(
                    (value - after).abs() < 5.0 * 3e-2 * 1e-5,
                    "{prefix}{index}: {value} {after}"
                );
            }
        }
    }
    Ok(())
}

/// Five full-batch steps (forward, gradients, AdamW) from PyTorch's weights end at PyTorch's.
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
        let order: Vec<usize> = (0..labels.len()).collect();
        let mut trainer = Trainer::new(&request, training, &order);
        (trainer.schedule, trainer.standardisation) = (None, Standardisation::none(6));
        steps_end_at(&mut trainer, &golden, &format!("{outputs}."), 5)?;
    }
    Ok(())
}

/// Eight full-batch steps of published mode from PyTorch's weights end at PyTorch's weights and
/// loss: softmax twice, a rate that rises over three steps and falls to 0. The rates add up to
/// about five times the highest.
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
    let rows: Vec<usize> = (0..labels.len()).collect();
    let mut trainer = Trainer::new(&request, training, &rows);
    (trainer.schedule, trainer.standardisation) = (Some(schedule), Standardisation::none(6));
    steps_end_at(&mut trainer, &golden, "", 8)?;
    let scorer = trainer.scorer().ok_or_else(|| request.error("not finite"))?;
    let logits = request.logits(&scorer, &rows);
    let loss = loss::double_softmax(&logits, &samples.classes(&rows)).unwrap_or_default();
    // Weights off by 1.5e-6 in sums of a dozen products move a loss of slope < 1/2 by less.
    let expected = f64::from(golden["loss"].to_scalar::<f32>()?);
    assert!((loss - expected).abs() < 1e-5, "{loss} {expected}");
    Ok(())
}

#[test]
fn initial_weights_fill_their_range_and_dropout_its_rate() {
    let samples = Samples { hidden_size: 400, ..Samples::default() };
    let config = HeadConfig::default();
    let request = request(&samples, &config);
    let settings = config.training("quality", 1);
    let trainer = Trainer::new(&request, settings, &[]);
    for (layer, bound) in trainer.network.layers.iter().zip([0.05f32, 0.0625]) {
        for values in [&layer.weight.values, &layer.bias.values] {
            assert!(values.iter().all(|x| x.abs() <= bound));
            // Except with chance 0.9^256, the largest of 256 uniform values is above 0.9 of it.
            let largest = values.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            assert!(values.len() == 1 || largest > 0.9 * bound, "{largest}");
        }
    }
}

/// ReLU passes values that are not negative; dropout passes a share, scaled to keep the mean.
#[test]
fn activations_are_dropped_at_their_rate() -> anyhow::Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut network = Network::new(&[1, 100_000, 1], &mut rng);
    let hidden = &mut network.layers[0];
    hidden.weight.values.fill(0.0);
    for (at, bias) in hidden.bias.values.iter_mut().enumerate() {
        *bias = if at % 2 == 0 { 3.0 } else { -3.0 };
    }
    let activations = network.forward(vec![1.0], 0.2, &mut rng)?;
    let factors = &activations.derivatives[0];
    assert!(factors.iter().skip(1).step_by(2).all(|&factor| factor == 0.0));
    let positive: Vec<f32> = factors.iter().step_by(2).copied().collect();
    let dropped = positive.iter().filter(|&&factor| factor == 0.0).count();
    // Six standard deviations of a binomial: 6 sqrt(50000 * 0.2 * 0.8) = 537.
    assert!((9_463..=10_537).contains(&dropped), "{dropped}");
    assert!(positive.iter().all(|&factor| factor == 0.0 || (factor - 1.25).abs() < 1e-6));
    Ok(())
}

/// Gradients of the losses of grades are PyTorch's. Both compute in f64 from f32; ours end as f32.
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
        let found = loss.gradient(outputs.iter().map(Vec::as_slice), targets);
        let expected = golden[&format!("gradient.{name}")]
            .to_dtype(DType::F64)?
            .flatten_all()?
            .to_vec1::<f64>()?;
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.into_iter().zip(expected) {
            // No gradient is above 4: that allows half a unit of f32, and some of f64.
            assert!((f64::from(found) - expected).abs() < 4.0 * 2f64.powi(-24), "{name}");
        }
    }
    Ok(())
}
