//! The training loop of an MLP head: candle's backward pass and AdamW, our own random numbers.

use candle_core::{Device, Tensor, Var};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use super::loss::{self, HeadLoss};
use super::request::{Trained, TrainingRequest};
use super::samples::Splits;
use crate::config::{Checkpoint, HeadOutput, Mode, TrainingConfig};
use crate::error::{Error, Result};
use crate::head::{EpochMetrics, LinearLayer, Schedule, Scorer, TrainingRecord};
use crate::metrics::{Metrics, rounded};
use crate::progress::Stop;

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

/// Trains for the configured epochs and keeps the one that the checkpoint rule names.
pub(super) fn train(
    request: &TrainingRequest<'_>,
    splits: &Splits,
    stop: &Stop,
) -> Result<Trained> {
    let settings = request.config.training(request.name);
    let schedule = match settings.mode {
        Mode::Default => None,
        Mode::Published => Some(Schedule {
            warm_up_steps: TrainingConfig::WARM_UP_STEPS,
            steps: splits.train.len().div_ceil(settings.batch_size()) * settings.epochs,
        }),
    };
    let mut trainer = Trainer::new(request, settings.clone(), schedule)?;
    let mut order = splits.train.clone();
    let mut epochs: Vec<EpochMetrics> = Vec::new();
    let mut kept: Option<Kept> = None;
    for epoch in 1..=settings.epochs {
        trainer.epoch(&mut order, stop)?;
        let Some(scorer) = trainer.scorer()? else {
            return Err(request.error(format!(
                "the weights are not finite after epoch {epoch}; try a smaller learning_rate than {}",
                settings.learning_rate
            )));
        };
        let (metrics, merit) = examine(request, splits, epoch, &scorer);
        epochs.push(metrics);
        if kept.as_ref().is_none_or(|kept| merit.is_none() || merit > kept.merit) {
            kept = Some(Kept { epoch, merit, scorer });
        }
    }
    let Some(kept) = kept else {
        return Err(request.error("`epochs` is 0; at least 1 is needed"));
    };
    let by_loss = settings.checkpoint == Some(Checkpoint::LowestLoss);
    let record = TrainingRecord {
        kept_loss: kept.merit.filter(|_| by_loss).map(|merit| -merit),
        hyperparameters: Some(settings),
        schedule,
        epochs,
        kept_epoch: Some(kept.epoch),
        seed: request.seed,
        ..TrainingRecord::default()
    };
    Ok(Trained { scorer: kept.scorer, record, references: None })
}

/// Metrics of the weights after `epoch`, and their merit by the checkpoint rule.
fn examine(
    request: &TrainingRequest<'_>,
    splits: &Splits,
    epoch: usize,
    scorer: &Scorer,
) -> (EpochMetrics, Option<f64>) {
    let train = request.metrics(scorer, &splits.train);
    let validation = request.metrics(scorer, &splits.validation);
    let published_loss = match request.config.training.mode {
        Mode::Default => None,
        Mode::Published => {
            let (logits, labels) = request.logits(scorer, &splits.validation);
            loss::double_softmax(&logits, &labels)
        }
    };
    let accuracy = validation.and_then(|metrics| metrics.accuracy);
    let loss = published_loss.or(validation.and_then(|metrics| metrics.loss));
    tracing::info!(head = request.name, language = request.language, epoch, accuracy, "trained");
    let merit = match request.config.checkpoint(request.name) {
        Checkpoint::Last => Some(epoch as f64),
        Checkpoint::Best => accuracy,
        Checkpoint::LowestLoss => loss.map(|loss| -loss),
    };
    let metrics = EpochMetrics {
        epoch,
        train: train.map(Metrics::rounded),
        validation: validation.map(Metrics::rounded),
        published_loss: published_loss.map(rounded),
    };
    (metrics, merit)
}

/// The weights that are the head unless a later epoch has more merit. Without a validation split
/// there is no best epoch and the last is kept.
struct Kept {
    epoch: usize,
    /// What the checkpoint rule goes by, the more the better.
    merit: Option<f64>,
    scorer: Scorer,
}

/// The weights in training and what changes them.
struct Trainer<'a> {
    request: &'a TrainingRequest<'a>,
    settings: TrainingConfig,
    loss: HeadLoss,
    /// How the learning rate changes; `None` where it does not.
    schedule: Option<Schedule>,
    /// Steps done.
    steps: usize,
    /// Weight `[outputs, inputs]` and bias `[outputs]` of each layer.
    layers: Vec<(Var, Var)>,
    optimizer: AdamW,
    shuffling: ChaCha8Rng,
    dropout: ChaCha8Rng,
}

impl<'a> Trainer<'a> {
    /// Initial weights: uniform within ±1/sqrt(inputs), biases too, as PyTorch's `LinearLayer`.
    fn new(
        request: &'a TrainingRequest<'a>,
        settings: TrainingConfig,
        schedule: Option<Schedule>,
    ) -> Result<Self> {
        let sizes = request.config.layer_sizes(request.name, request.samples.hidden_size);
        let mut rng = request.stream("initialisation");
        let mut layers = Vec::new();
        for (&inputs, &outputs) in sizes.iter().zip(&sizes[1..]) {
            let bound = 1.0 / (inputs as f32).sqrt();
            let mut uniform = |count: usize| -> Vec<f32> {
                (0..count).map(|_| (rng.random::<f32>() * 2.0 - 1.0) * bound).collect()
            };
            let weight =
                Tensor::from_vec(uniform(outputs * inputs), (outputs, inputs), &Device::Cpu)?;
            let bias = Tensor::from_vec(uniform(outputs), outputs, &Device::Cpu)?;
            layers.push((Var::from_tensor(&weight)?, Var::from_tensor(&bias)?));
        }
        let vars = layers.iter().flat_map(|(w, b)| [w.clone(), b.clone()]).collect();
        let params = ParamsAdamW {
            lr: settings.learning_rate,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: settings.weight_decay,
        };
        let loss = match (request.config.output(request.name), settings.mode) {
            (HeadOutput::Class(class), Mode::Default) => HeadLoss::Softmax { class },
            (HeadOutput::Class(class), Mode::Published) => HeadLoss::DoubleSoftmax { class },
            _ => HeadLoss::Binary,
        };
        Ok(Self {
            request,
            settings,
            loss,
            schedule,
            steps: 0,
            layers,
            optimizer: AdamW::new(vars, params)?,
            shuffling: request.stream("shuffling"),
            dropout: request.stream("dropout"),
        })
    }

    /// One pass over the samples of `order`, which is shuffled first.
    fn epoch(&mut self, order: &mut [usize], stop: &Stop) -> Result<()> {
        order.shuffle(&mut self.shuffling);
        for rows in order.chunks(self.settings.batch_size()) {
            stop.check()?;
            self.step(rows)?;
        }
        Ok(())
    }

    /// One step of AdamW on a batch.
    fn step(&mut self, rows: &[usize]) -> Result<()> {
        let samples = self.request.samples;
        let batch: Vec<f32> =
            rows.iter().flat_map(|&row| samples.embedding(row).iter().copied()).collect();
        let batch = Tensor::from_vec(batch, (rows.len(), samples.hidden_size), &Device::Cpu)?;
        let outputs = self.forward(batch)?;
        let labels = rows.iter().map(|&row| samples.labels[row]);
        let gradient = self.loss.gradient(&outputs.to_vec2::<f32>()?, labels);
        let gradient = Tensor::from_vec(gradient, outputs.dims(), &Device::Cpu)?;
        // Its derivative by the outputs is `gradient`, so the backward pass gives the gradients of
        // the loss, and the loss itself, which overflows, is never computed here.
        let surrogate = (outputs * gradient)?.sum_all()?;
        if let Some(schedule) = self.schedule {
            let factor = loss::factor(schedule, self.steps);
            self.optimizer.set_learning_rate(self.settings.learning_rate * factor);
        }
        self.optimizer.step(&surrogate.backward()?)?;
        self.steps += 1;
        Ok(())
    }

    /// Outputs of a batch `[B, D]` → `[B, outputs]`, dropout on.
    fn forward(&mut self, batch: Tensor) -> Result<Tensor> {
        let last = self.layers.len() - 1;
        let mut states = batch;
        for (i, (weight, bias)) in self.layers.iter().enumerate() {
            states = states.matmul(&weight.t()?)?.broadcast_add(bias)?;
            if i < last {
                let mask =
                    dropout_mask(&mut self.dropout, states.elem_count(), self.settings.dropout);
                let mask = Tensor::from_vec(mask, states.dims(), &Device::Cpu)?;
                states = (states.relu()? * mask)?;
            }
        }
        Ok(states)
    }

    /// A copy of the weights; `None` if one is not finite.
    fn scorer(&self) -> Result<Option<Scorer>> {
        let mut layers = Vec::new();
        for (weight, bias) in &self.layers {
            let weight = weight.flatten_all()?.to_vec1::<f32>()?;
            let bias = bias.to_vec1::<f32>()?;
            if !weight.iter().chain(&bias).all(|x| x.is_finite()) {
                return Ok(None);
            }
            layers.push(LinearLayer::new(weight, bias));
        }
        Ok(Some(Scorer::mlp(layers)))
    }
}

/// Factors of dropout: 0 with probability `rate`, else 1 / (1 - `rate`).
fn dropout_mask(rng: &mut ChaCha8Rng, count: usize, rate: f64) -> Vec<f32> {
    let kept = (1.0 / (1.0 - rate)) as f32;
    let rate = rate as f32;
    (0..count).map(|_| if rng.random::<f32>() < rate { 0.0 } else { kept }).collect()
}

#[cfg(test)]
mod tests;
