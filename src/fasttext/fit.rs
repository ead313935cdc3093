//! Training by plain gradient descent on one line at a time, like `fasttext supervised`.
//!
//! It uses one thread, so that equal samples give equal bytes: fastText's threads write into shared
//! vectors without order. Every epoch shuffles the lines; fastText keeps the order of its file.

use std::collections::HashMap;

use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

use super::dictionary::{Dictionary, LineRows, tokens};
use super::matrix::{DenseMatrix, WordMatrix, add_scaled, dot, scale};
use super::model::FastTextModel;
use super::settings::ModelSettings;
use super::tree::LabelTree;
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::{FastTextConfig, LABEL_PREFIX};

/// Trains on `samples` for all epochs (C++ `FastText::trainThread`); returns `None` if the vectors
/// diverged. Samples are lines of words, each with true for the positive label; both labels occur.
/// The random numbers give the first vectors and the order of the lines.
pub fn fit(
    config: &FastTextConfig,
    word_ngrams: usize,
    samples: &[(String, bool)],
    [mut initialisation, mut shuffling]: [ChaCha8Rng; 2],
    stop: &Stop,
) -> Result<Option<FastTextModel>> {
    let (settings, dim) = (ModelSettings::supervised(config, word_ngrams), config.dim);
    let (dictionary, num_tokens) = build_dictionary(config, samples);
    let first_is_positive = dictionary.label(0) == config.positive.as_bytes();
    let class = |is_positive| usize::from(first_is_positive != is_positive);
    let (rows, bound) = (dictionary.num_words + settings.buckets, 1.0 / dim as f32);
    let value = |_| (initialisation.random::<f32>() * 2.0 - 1.0) * bound;
    let mut descent = Descent {
        input: DenseMatrix { rows, cols: dim, values: (0..rows * dim).map(value).collect() },
        output: DenseMatrix { rows: 2, cols: dim, values: vec![0.0; 2 * dim] },
        hidden: vec![0.0; dim],
        gradient: vec![0.0; dim],
    };
    let total = num_tokens as f64 * config.epochs as f64;
    let (mut line, mut done) = (LineRows::default(), 0);
    let mut order: Vec<usize> = (0..samples.len()).collect();
    for _ in 0..config.epochs {
        order.shuffle(&mut shuffling);
        for &at in &order {
            stop.check()?;
            let (text, is_positive) = &samples[at];
            dictionary.find_rows(&settings, text.as_bytes(), &mut line);
            let rate = config.learning_rate * (1.0 - done as f64 / total);
            descent.step(&line.rows, class(*is_positive), rate as f32);
            done += line.num_tokens + 1; // the label is a token too
        }
    }
    let Descent { input, output, .. } = descent;
    if !input.values.iter().chain(&output.values).all(|value| value.is_finite()) {
        return Ok(None);
    }
    let (input, output) = (WordMatrix::Dense(input), WordMatrix::Dense(output));
    Ok(Some(FastTextModel { settings, dictionary, input, output, tree: LabelTree::default() }))
}

/// Returns the frequent words and both labels, sorted by descending frequency and then by text, and
/// the number of all tokens (C++ `Dictionary::readFromFile`, `Dictionary::threshold`).
fn build_dictionary(config: &FastTextConfig, samples: &[(String, bool)]) -> (Dictionary, i64) {
    let mut counts: HashMap<&[u8], i64> = HashMap::new();
    let mut labels = [(config.positive.as_bytes(), 0), (config.negative.as_bytes(), 0)];
    let mut num_tokens = 0;
    for (line, is_positive) in samples {
        labels[usize::from(!is_positive)].1 += 1;
        num_tokens += 1;
        for token in tokens(line.as_bytes()) {
            num_tokens += 1;
            // A word that looks like a label is not counted.
            if !token.starts_with(LABEL_PREFIX.as_bytes()) {
                *counts.entry(token).or_default() += 1;
            }
        }
    }
    let least = i64::try_from(config.min_count).unwrap_or(i64::MAX);
    let mut words: Vec<(&[u8], i64)> =
        counts.into_iter().filter(|(_, count)| *count >= least).collect();
    let by_frequency = |a: &(&[u8], i64), b: &(&[u8], i64)| (b.1, a.0).cmp(&(a.1, b.0));
    words.sort_unstable_by(by_frequency);
    labels.sort_unstable_by(by_frequency);
    (Dictionary::new(&words, &labels, num_tokens), num_tokens)
}

/// The vectors in training, and memory for one step.
struct Descent {
    input: DenseMatrix,
    /// `[2, dim]`.
    output: DenseMatrix,
    hidden: Vec<f32>,
    gradient: Vec<f32>,
}

impl Descent {
    /// Takes one step on a line of class `class` (C++ `Model::update`).
    fn step(&mut self, rows: &[u32], class: usize, rate: f32) {
        if rows.is_empty() {
            return;
        }
        let Self { input, output, hidden, gradient } = self;
        let share = (1.0 / rows.len() as f64) as f32;
        hidden.fill(0.0);
        for &row in rows {
            add_scaled(hidden, input.row(row as usize), 1.0);
        }
        scale(hidden, share);
        gradient.fill(0.0);
        // The softmax over the two labels (C++ `SoftmaxLoss::forward`).
        let [a, b] = [dot(output.row(0), hidden), dot(output.row(1), hidden)];
        let first = 1.0 / (1.0 + (b - a).exp());
        for (label, probability) in [first, 1.0 - first].into_iter().enumerate() {
            let step = rate * (f32::from(u8::from(label == class)) - probability);
            add_scaled(gradient, output.row(label), step);
            add_scaled(output.row_mut(label), hidden, step);
        }
        scale(gradient, share);
        for &row in rows {
            add_scaled(input.row_mut(row as usize), gradient, 1.0);
        }
    }
}
