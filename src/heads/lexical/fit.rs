//! Trains with AdaGrad and keeps the pass of the lowest validation loss.

use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::{Counts, LexicalModel, WIDTH, count};
use polysift_base::error::Result;
use polysift_base::metrics::{log_loss, sigmoid};
use polysift_base::progress::Stop;
use polysift_config::Loss;

/// Maximum number of passes over the samples.
const PASSES: usize = 40;
/// Number of passes without a lower validation error after which training ends.
const PATIENCE: usize = 4;
/// One sample in this many goes to the validation split.
const HOLD_OUT: usize = 10;
/// AdaGrad's learning rate.
const LEARNING_RATE: f32 = 0.05;
/// Initial bound of the first layer's weights, small so that a few samples can outweigh them.
const FIRST_LIMIT: f32 = 0.05;
/// Minimum number of samples with an n-gram for the n-gram to be known.
const LEAST_SAMPLES: usize = 2;
/// Added to AdaGrad's sums of squares.
const EPSILON: f32 = 1e-8;

/// What a network is trained on.
struct Training<'a> {
    samples: &'a [(Vec<u32>, Vec<f32>)],
    weights: &'a [f32],
    loss: Loss,
    features: Vec<Vec<(usize, f32)>>,
    /// Mean and deviation of each score, which the network learns with mean 0 and deviation 1.
    spread: Vec<(f32, f32)>,
}

impl Training<'_> {
    fn weight(&self, sample: usize) -> f32 {
        self.weights.get(sample).copied().unwrap_or(1.0)
    }

    fn target(&self, sample: usize, output: usize) -> f32 {
        let (mean, deviation) = self.spread[output];
        (self.samples[sample].1[output] - mean) / deviation
    }

    /// Returns the weighted sum of the losses of the samples `held`.
    fn error(&self, model: &LexicalModel, held: &[usize]) -> f64 {
        let of_sample = |&sample: &usize| {
            let (_, found) = model.forward(&self.features[sample]);
            let off = |(output, found): (usize, f32)| match self.target(sample, output) {
                target if self.loss == Loss::CrossEntropy => log_loss(found, target > 0.5),
                target => f64::from(found - target).powi(2),
            };
            f64::from(self.weight(sample)) * found.into_iter().enumerate().map(off).sum::<f64>()
        };
        held.iter().map(of_sample).sum()
    }

    /// Takes one step of `model` on a sample; `squares` are those of [`descend`] for each tensor.
    fn step(&self, model: &mut LexicalModel, squares: &mut [Vec<f32>; 4], sample: usize) {
        let [first, first_bias, second, second_bias] = squares;
        let (hidden, found) = model.forward(&self.features[sample]);
        let mut of_hidden = [0.0f32; WIDTH];
        for (output, found) in found.into_iter().enumerate() {
            let found = if self.loss == Loss::CrossEntropy { sigmoid(found) } else { found };
            let off = self.weight(sample) * (found - self.target(sample, output));
            for unit in 0..WIDTH {
                let place = output * WIDTH + unit;
                of_hidden[unit] += off * model.second[place];
                descend(&mut model.second, second, place, off * hidden[unit]);
            }
            descend(&mut model.second_bias, second_bias, output, off);
        }
        for unit in 0..WIDTH {
            if hidden[unit] <= 0.0 {
                of_hidden[unit] = 0.0;
            } else {
                descend(&mut model.first_bias, first_bias, unit, of_hidden[unit]);
            }
        }
        for &(at, value) in &self.features[sample] {
            for (unit, gradient) in of_hidden.iter().enumerate().filter(|(_, g)| **g != 0.0) {
                descend(&mut model.first, first, at * WIDTH + unit, gradient * value);
            }
        }
    }
}

/// Takes a step of AdaGrad for the parameter `at`; `squares` are sums of squared gradients.
fn descend(parameters: &mut [f32], squares: &mut [f32], at: usize, gradient: f32) {
    squares[at] += gradient * gradient;
    parameters[at] -= LEARNING_RATE * gradient / (squares[at] + EPSILON).sqrt();
}

/// Trains a network that predicts the scores of `samples`, which are token ids and one score per
/// output. `weights` multiply their losses; if it is empty, all count the same. Cross-entropy
/// expects scores of 0 or 1 and outputs logits; other losses minimise the squared error of
/// standardised scores, and the last layer undoes the standardisation.
///
/// # Errors
/// [`Error::Stopped`](polysift_base::Error::Stopped).
pub fn fit(
    samples: &[(Vec<u32>, Vec<f32>)],
    weights: &[f32],
    loss: Loss,
    seed: u64,
    stop: &Stop,
) -> Result<LexicalModel> {
    let outputs = samples.first().map_or(0, |(_, scores)| scores.len());
    let counts: Vec<Counts> = samples.iter().map(|(ids, _)| count(ids)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut model = untrained(&counts, outputs, &mut random);
    let features = counts.iter().map(|counts| model.features(counts)).collect();
    let spread = match loss {
        Loss::CrossEntropy => vec![(0.0, 1.0); outputs],
        _ => (0..outputs).map(|output| mean_and_deviation(samples, output)).collect(),
    };
    let training = Training { samples, weights, loss, features, spread };
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.shuffle(&mut random);
    let (held, order) = order.split_at_mut(samples.len() / HOLD_OUT);
    let mut squares = [&model.first, &model.first_bias, &model.second, &model.second_bias]
        .map(|tensor| vec![0.0; tensor.len()]);
    let (mut best, mut lowest, mut since) = (model.clone(), f64::INFINITY, 0);
    for _ in 0..PASSES {
        order.shuffle(&mut random);
        for (at, &sample) in order.iter().enumerate() {
            if at % 256 == 0 {
                stop.check()?;
            }
            training.step(&mut model, &mut squares, sample);
        }
        let found = training.error(&model, held);
        since += 1;
        if found < lowest || held.is_empty() {
            (best, lowest, since) = (model.clone(), found, 0);
        }
        if since == PATIENCE {
            break;
        }
    }
    for (output, (mean, deviation)) in training.spread.into_iter().enumerate() {
        best.second[output * WIDTH..][..WIDTH].iter_mut().for_each(|weight| *weight *= deviation);
        best.second_bias[output] = best.second_bias[output] * deviation + mean;
    }
    Ok(best)
}

/// Makes a network of the n-grams that are in enough samples, with random weights.
fn untrained(counts: &[Counts], outputs: usize, random: &mut ChaCha8Rng) -> LexicalModel {
    let mut seen: Vec<u32> = counts.iter().flatten().map(|(ngram, _)| *ngram).collect();
    seen.sort_unstable();
    let total = counts.len() as f32;
    let idf = |same: &[u32]| ((1.0 + total) / (1.0 + same.len() as f32)).ln() + 1.0;
    let known = seen.chunk_by(|a, b| a == b).filter(|same| same.len() >= LEAST_SAMPLES);
    let (ngrams, idf): (Vec<u32>, Vec<f32>) = known.map(|same| (same[0], idf(same))).unzip();
    let mut uniform = |len: usize, limit: f32| -> Vec<f32> {
        (0..len).map(|_| random.random_range(-limit..=limit)).collect()
    };
    LexicalModel {
        first: uniform(ngrams.len() * WIDTH, FIRST_LIMIT),
        ngrams,
        idf,
        first_bias: vec![0.0; WIDTH],
        second: uniform(outputs * WIDTH, (1.0 / WIDTH as f32).sqrt()),
        second_bias: vec![0.0; outputs],
    }
}

/// Returns mean and standard deviation of a score; the deviation of equal scores is 1.
fn mean_and_deviation(samples: &[(Vec<u32>, Vec<f32>)], output: usize) -> (f32, f32) {
    let n = samples.len().max(1) as f64;
    let scores = || samples.iter().map(|(_, scores)| f64::from(scores[output]));
    let mean = scores().sum::<f64>() / n;
    let variance = scores().map(|score| (score - mean).powi(2)).sum::<f64>() / n;
    (mean as f32, if variance > 0.0 { variance.sqrt() as f32 } else { 1.0 })
}
