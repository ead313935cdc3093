//! The training loop of an MLP head.

use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rayon::prelude::*;

use super::loss::{self, HeadLoss};
use super::network::Network;
use super::standardisation::Standardisation;
use crate::head::{EpochMetrics, LinearLayer, Schedule, Scorer, TrainingRecord};
use crate::train::request::{Trained, TrainingRequest};
use crate::train::samples::Splits;
use polysift_base::error::{Error, Result};
use polysift_base::metrics::{Metrics, rounded};
use polysift_config::{Checkpoint, HeadOutput, Loss, Mode, TrainingConfig};

/// Maximum number of epochs of a training for which metrics are computed.
const MAX_CHECKS: usize = 32;

/// Trains with every weight decay that the settings leave open; keeps the lowest validation loss.
pub(super) fn train(request: &TrainingRequest<'_>, splits: &Splits) -> Result<Trained> {
    let settings = request.config.training(request.name, splits.train.len());
    let tried = match settings.weight_decay {
        Some(one) => vec![one],
        None if splits.validation.is_empty() => TrainingConfig::WEIGHT_DECAYS[1..2].to_vec(),
        None => TrainingConfig::WEIGHT_DECAYS.to_vec(),
    };
    let with = |weight_decay| {
        let settings = TrainingConfig { weight_decay: Some(weight_decay), ..settings.clone() };
        fit(request, splits, settings)
    };
    let trained: Vec<Trained> = tried.into_par_iter().map(with).collect::<Result<_>>()?;
    let loss = |trained: &Trained| trained.record.kept_loss.unwrap_or(f64::INFINITY);
    // The first of equals wins.
    let best = trained.into_iter().reduce(|a, b| if loss(&b) < loss(&a) { b } else { a });
    best.ok_or_else(|| request.error("no weight decay is to be tried"))
}

/// Trains with these settings and keeps the epoch that the checkpoint rule selects.
fn fit(
    request: &TrainingRequest<'_>,
    splits: &Splits,
    settings: TrainingConfig,
) -> Result<Trained> {
    let (epochs, is_default) = (settings.epochs.unwrap_or(1), settings.mode == Mode::Default);
    let mut order = splits.train.clone();
    let mut trainer = Trainer::new(request, settings.clone(), &order);
    let mut examined: Vec<EpochMetrics> = Vec::new();
    // The epoch of the most merit, that merit, its loss and the head. Without a validation split no
    // epoch is best and the last is kept.
    let mut kept: Option<(usize, Option<f64>, Option<f64>, Scorer)> = None;
    for epoch in 1..=epochs {
        trainer.train_epoch(&mut order)?;
        if epoch % epochs.div_ceil(MAX_CHECKS) != 0 && epoch < epochs {
            continue;
        }
        let Some(scorer) = trainer.scorer() else {
            return Err(request.error(format!(
                "the weights are not finite after epoch {epoch}; try a smaller learning_rate than {}",
                settings.learning_rate.unwrap_or_default()
            )));
        };
        let (metrics, loss, merit) = examine(request, splits, epoch, &scorer, &settings);
        examined.push(metrics);
        if kept.as_ref().is_none_or(|(_, most, ..)| merit.is_none() || merit > *most) {
            kept = Some((epoch, merit, loss, scorer));
        }
        let best = kept.as_ref().map_or(epoch, |(best, ..)| *best);
        if is_default && epoch - best >= epochs.div_ceil(4).max(2) {
            break;
        }
    }
    let (epoch, _, kept_loss, scorer) =
        kept.ok_or_else(|| request.error("`epochs` is 0; at least 1 is needed"))?;
    let record = TrainingRecord {
        kept_loss,
        hyperparameters: Some(settings),
        schedule: trainer.schedule,
        epochs: examined,
        kept_epoch: Some(epoch),
        ..TrainingRecord::default()
    };
    Ok(Trained { scorer, record, references: None })
}

/// Returns the metrics after `epoch`, the validation loss, and the merit by which the checkpoint
/// rule compares (higher is better).
fn examine(
    request: &TrainingRequest<'_>,
    splits: &Splits,
    epoch: usize,
    scorer: &Scorer,
    settings: &TrainingConfig,
) -> (EpochMetrics, Option<f64>, Option<f64>) {
    let train = request.metrics(scorer, &splits.train);
    let validation = request.metrics(scorer, &splits.validation);
    let is_double = settings.mode == Mode::Published && request.config.is_class(request.name);
    let double_softmax = || {
        let logits = request.logits(scorer, &splits.validation);
        loss::double_softmax(&logits, &request.samples.classes(&splits.validation))
    };
    let published_loss = if is_double { double_softmax() } else { None };
    let accuracy = validation.and_then(|metrics| metrics.accuracy);
    let loss = published_loss.or(validation.and_then(|metrics| metrics.loss));
    tracing::debug!(head = request.name, language = request.language, epoch, accuracy, loss);
    let merit = match settings.checkpoint.unwrap_or_default() {
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
    (metrics, loss, merit)
}

/// A network in training, with its random numbers.
struct Trainer<'a> {
    request: &'a TrainingRequest<'a>,
    settings: TrainingConfig,
    loss: HeadLoss,
    schedule: Option<Schedule>,
    standardisation: Standardisation,
    /// Mean and deviation of the grades; the network learns them with mean 0 and deviation 1.
    grades: (f64, f64),
    mean_weight: f64,
    network: Network,
    shuffling: ChaCha8Rng,
    dropout: ChaCha8Rng,
}

impl<'a> Trainer<'a> {
    /// Initialises the network; in default mode, `rows` of the training split standardise inputs.
    fn new(request: &'a TrainingRequest<'a>, settings: TrainingConfig, rows: &[usize]) -> Self {
        let (samples, config) = (request.samples, request.config);
        let is_default = settings.mode == Mode::Default;
        let (epochs, batch_size) = (settings.epochs.unwrap_or(1), settings.batch_size.unwrap_or(1));
        let schedule = (!is_default && config.is_class(request.name)).then(|| Schedule {
            warm_up_steps: TrainingConfig::WARM_UP_STEPS,
            steps: rows.len().div_ceil(batch_size) * epochs,
        });
        let standardisation = if is_default {
            Standardisation::of(samples, rows)
        } else {
            Standardisation::none(samples.hidden_size)
        };
        let highest = samples.labels.iter().fold(0.0f32, |highest, grade| highest.max(*grade));
        let sizes = config.layer_sizes(request.name, samples.hidden_size, highest.ceil() as usize);
        let network = Network::new(&sizes, &mut request.random_stream("initialisation"));
        let loss = match (config.loss(), config.output(request.name), settings.mode) {
            (Loss::SquaredError, ..) => HeadLoss::Squared,
            (Loss::Huber, ..) => HeadLoss::Huber,
            (Loss::Ordinal, ..) => HeadLoss::RankedProbability,
            (_, HeadOutput::Class(class), Mode::Default) => HeadLoss::Softmax(class),
            (_, HeadOutput::Class(class), Mode::Published) => HeadLoss::DoubleSoftmax(class),
            _ => HeadLoss::Binary,
        };
        let grades = match (loss, samples.mean_and_deviation(rows)) {
            (HeadLoss::Squared | HeadLoss::Huber, (mean, 0.0)) => (mean, 1.0),
            (HeadLoss::Squared | HeadLoss::Huber, of_rows) => of_rows,
            _ => (0.0, 1.0),
        };
        Self {
            request,
            settings,
            loss,
            schedule,
            standardisation,
            grades,
            mean_weight: samples.total_weight(rows) / rows.len().max(1) as f64,
            network,
            shuffling: request.random_stream("shuffling"),
            dropout: request.random_stream("dropout"),
        }
    }

    /// Shuffles `order`, the training split, and takes one step for each batch of it.
    fn train_epoch(&mut self, order: &mut [usize]) -> Result<()> {
        order.shuffle(&mut self.shuffling);
        for rows in order.chunks(self.settings.batch_size.unwrap_or(1)) {
            self.request.stop.check()?;
            self.train_batch(rows)
                .map_err(|error| Error::shape("tensor operation", error.to_string()))?;
        }
        Ok(())
    }

    /// Takes one step by the mean loss of the samples `rows`.
    fn train_batch(&mut self, rows: &[usize]) -> candle_core::Result<()> {
        let samples = self.request.samples;
        let mut batch = Vec::with_capacity(rows.len() * samples.hidden_size);
        for &row in rows {
            let inputs = self.standardisation.standardise(samples.embedding(row));
            batch.extend(inputs.map(|x| x as f32));
        }
        let dropout = self.settings.dropout.unwrap_or_default();
        let activations = self.network.forward(batch, dropout, &mut self.dropout)?;
        let (mean, deviation) = self.grades;
        let targets = rows.iter().map(|&row| {
            let label = (f64::from(samples.labels[row]) - mean) / deviation;
            (label, samples.weight(row) / self.mean_weight)
        });
        let width = activations.outputs.len() / rows.len();
        let gradient = self.loss.gradient(activations.outputs.chunks_exact(width), targets);
        let step = self.network.steps as usize;
        let factor = self.schedule.map_or(1.0, |schedule| loss::rate_factor(schedule, step));
        let learning_rate = self.settings.learning_rate.unwrap_or_default() * factor;
        let weight_decay = self.settings.weight_decay.unwrap_or_default();
        self.network.step(activations, gradient, learning_rate, weight_decay)
    }

    /// Returns a copy of the weights for embeddings as they are; `None` if one is not finite.
    fn scorer(&self) -> Option<Scorer> {
        let mut layers = Vec::new();
        let (mean, deviation) = self.grades;
        let last = self.network.layers.len() - 1;
        for (i, layer) in self.network.layers.iter().enumerate() {
            let (weight, bias) = (&layer.weight.values, &layer.bias.values);
            if !weight.iter().chain(bias).all(|x| x.is_finite()) {
                return None;
            }
            let (scale, shift) = if i == last { (deviation, mean) } else { (1.0, 0.0) };
            let weight: Vec<f64> = weight.iter().map(|&x| f64::from(x) * scale).collect();
            let bias: Vec<f64> = bias.iter().map(|&x| f64::from(x) * scale + shift).collect();
            let in_f32 = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect();
            layers.push(match i {
                0 => self.standardisation.fold(&weight, &bias),
                _ => LinearLayer::new(in_f32(weight), in_f32(bias)),
            });
        }
        Some(Scorer::mlp(layers))
    }
}

#[cfg(test)]
mod tests;
