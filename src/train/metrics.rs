//! Metrics of scores against labels: pure functions, exact counts.
//!
//! What has no value (no sample, one class only, nothing called positive) is `None`, where
//! scikit-learn warns and returns 0 or NaN. Scores that are NaN never enter.

use crate::config::Activation;
use crate::head::{DocumentScore, Metrics};

/// A document is called positive if its score is above this.
const DECISION: f32 = 0.5;

/// Counts of what was called right and wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confusion {
    /// Positives called positive.
    pub true_positives: usize,
    /// Negatives called positive.
    pub false_positives: usize,
    /// Negatives called negative.
    pub true_negatives: usize,
    /// Positives called negative.
    pub false_negatives: usize,
}

impl Confusion {
    /// Counts; a document is called positive if its score is above 0.5.
    pub fn new(scores: &[f32], labels: &[bool]) -> Self {
        let mut counts = Self::default();
        for (&score, &label) in scores.iter().zip(labels) {
            match (score > DECISION, label) {
                (true, true) => counts.true_positives += 1,
                (true, false) => counts.false_positives += 1,
                (false, false) => counts.true_negatives += 1,
                (false, true) => counts.false_negatives += 1,
            }
        }
        counts
    }

    /// Share called right.
    pub fn accuracy(&self) -> Option<f64> {
        let right = self.true_positives + self.true_negatives;
        ratio(right, right + self.false_positives + self.false_negatives)
    }

    /// Share of positives among those called positive.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.true_positives, self.true_positives + self.false_positives)
    }

    /// Share of those called positive among the positives.
    pub fn recall(&self) -> Option<f64> {
        ratio(self.true_positives, self.true_positives + self.false_negatives)
    }

    /// Harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn).
    pub fn f1(&self) -> Option<f64> {
        let twice = 2 * self.true_positives;
        ratio(twice, twice + self.false_positives + self.false_negatives)
    }
}

/// `part` / `whole`, unless `whole` is 0.
fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Area under the ROC curve: the share of (positive, negative) pairs in which the positive scores
/// higher, ties counting one half; `None` unless there are both classes. O(n log n).
pub fn roc_auc(scores: &[f32], labels: &[bool]) -> Option<f64> {
    let mut pairs: Vec<(f32, bool)> = scores.iter().copied().zip(labels.iter().copied()).collect();
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    // In halves of pairs, which are integers.
    let mut won = 0u128;
    let (mut positives, mut negatives) = (0u64, 0u64);
    #[expect(clippy::float_cmp, reason = "ties are equal values, -0 and 0 among them")]
    for tied in pairs.chunk_by(|a, b| a.0 == b.0) {
        let tied_positives = tied.iter().filter(|pair| pair.1).count() as u64;
        let tied_negatives = tied.len() as u64 - tied_positives;
        won += u128::from(tied_positives) * u128::from(2 * negatives + tied_negatives);
        positives += tied_positives;
        negatives += tied_negatives;
    }
    let all = 2 * u128::from(positives) * u128::from(negatives);
    (all > 0).then(|| won as f64 / all as f64)
}

/// Mean binary cross-entropy of `logits` (log-odds of the positive class), in f64, without
/// overflow: max(z, 0) - z y + log(1 + exp(-|z|)). `None` without samples.
pub fn binary_cross_entropy(logits: &[f32], labels: &[bool]) -> Option<f64> {
    let losses = logits.iter().zip(labels).map(|(&logit, &label)| {
        let z = f64::from(logit);
        z.max(0.0) - if label { z } else { 0.0 } + (-z.abs()).exp().ln_1p()
    });
    (!logits.is_empty()).then(|| losses.sum::<f64>() / logits.len() as f64)
}

/// All metrics of the logits of an MLP; its score here is always the probability, whatever the
/// head exports.
pub(super) fn of_logits(logits: &[f32], labels: &[bool]) -> Option<Metrics> {
    let probability = |&z: &f32| DocumentScore::new(z, Activation::Sigmoid).score;
    let scores: Vec<f32> = logits.iter().map(probability).collect();
    let roc_auc = roc_auc(logits, labels);
    let metrics = of_scores(&scores, labels)?;
    Some(Metrics { loss: binary_cross_entropy(logits, labels), roc_auc, ..metrics })
}

/// All metrics of cosine similarities, which have no loss; documents without one do not count.
pub(super) fn of_similarities(similarities: &[f32], labels: &[bool]) -> Option<Metrics> {
    let defined = similarities.iter().zip(labels).filter(|(similarity, _)| !similarity.is_nan());
    let (similarities, labels): (Vec<f32>, Vec<bool>) = defined.unzip();
    let metrics = of_scores(&similarities, &labels)?;
    Some(Metrics { roc_auc: roc_auc(&similarities, &labels), ..metrics })
}

/// The metrics of the decision.
fn of_scores(scores: &[f32], labels: &[bool]) -> Option<Metrics> {
    let confusion = Confusion::new(scores, labels);
    (!scores.is_empty()).then(|| Metrics {
        num_samples: scores.len(),
        loss: None,
        accuracy: confusion.accuracy(),
        precision: confusion.precision(),
        recall: confusion.recall(),
        f1: confusion.f1(),
        roc_auc: None,
    })
}
