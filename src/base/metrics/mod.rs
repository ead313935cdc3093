//! Computes metrics of scores against labels, and of scores against each other. Functions are pure.
//!
//! An undefined metric (no sample, one class only, nothing called positive) is `None`; scikit-learn
//! warns and returns 0 or NaN. Only [`Metrics::of_scores`] accepts NaN scores. Counts are exact,
//! and document order changes a result by no more than the rounding of a sum.

mod binomial;
mod calibration;
mod ranking;
mod weighted;

use serde::{Deserialize, Serialize};

pub use binomial::{
    allowed_misses, binomial_cdf, bisect, chi_square_low, highest_threshold, least_sample,
    partition_point, proportion_interval, rank_bound, student_tail, upper_bound,
};
pub use calibration::{CalibrationBin, calibration, calibration_error};
pub use ranking::{
    average_precision, kendall, roc_auc, roc_auc_interval, spearman, spearman_interval,
};
pub use weighted::{
    WeightedShare, WeightedText, effective_size, weighted_precision, weighted_recall,
};

/// Probability above which a document is called positive.
pub const DECISION: f32 = 0.5;

/// Confusion matrix: counts of right and wrong calls.
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
    /// Counts pairs of (called positive, is positive).
    pub fn of_calls(calls: impl IntoIterator<Item = (bool, bool)>) -> Self {
        let mut counts = Self::default();
        for call in calls {
            match call {
                (true, true) => counts.true_positives += 1,
                (true, false) => counts.false_positives += 1,
                (false, false) => counts.true_negatives += 1,
                (false, true) => counts.false_negatives += 1,
            }
        }
        counts
    }

    /// Returns the number of documents called positive.
    pub fn called_positive(&self) -> usize {
        self.true_positives + self.false_positives
    }

    /// Returns the share of right calls; `None` without a call.
    pub fn accuracy(&self) -> Option<f64> {
        let right = self.true_positives + self.true_negatives;
        ratio(right, right + self.false_positives + self.false_negatives)
    }

    /// Returns the share of positives among those called positive; `None` without such a call.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.true_positives, self.called_positive())
    }

    /// Returns the share of those called positive among the positives; `None` without a positive.
    pub fn recall(&self) -> Option<f64> {
        ratio(self.true_positives, self.true_positives + self.false_negatives)
    }

    /// Returns the harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn).
    pub fn f1(&self) -> Option<f64> {
        let twice = 2 * self.true_positives;
        ratio(twice, twice + self.false_positives + self.false_negatives)
    }
}

/// Metrics of how well scores separate the labels, if scores above 0.5 count as positive. An
/// undefined metric is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct Metrics {
    /// Documents with a score.
    pub num_samples: usize,
    /// Mean binary cross-entropy of the logits. For grades the squared error, or the absolute error
    /// if the head's training gives outliers less weight. `None` for a cosine head.
    pub loss: Option<f64>,
    /// Share of right calls.
    pub accuracy: Option<f64>,
    /// 95% confidence interval of the accuracy, see [`proportion_interval`].
    pub accuracy_interval: Option<[f64; 2]>,
    /// Share of positives among those called positive.
    pub precision: Option<f64>,
    /// Share of those called positive among the positives.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
    /// Probability that a positive scores above a negative, a tie counting one half.
    pub roc_auc: Option<f64>,
    /// 95% confidence interval of the area, see [`roc_auc_interval`].
    pub roc_auc_interval: Option<[f64; 2]>,
    /// Rank correlation with the grades; `None` for classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spearman: Option<f64>,
    /// 95% confidence interval of the rank correlation, see [`spearman_interval`].
    pub spearman_interval: Option<[f64; 2]>,
    /// Mean distance from the grades; `None` for classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_absolute_error: Option<f64>,
}

impl Metrics {
    /// Computes the metrics of predicted grades (no NaN), without a loss. `None` without a grade.
    pub fn of_grades(predicted: &[f32], grades: &[f32]) -> Option<Self> {
        let spearman = spearman(predicted, grades);
        (!predicted.is_empty()).then(|| Self {
            num_samples: predicted.len(),
            spearman,
            spearman_interval: spearman.and_then(|rho| spearman_interval(rho, predicted.len())),
            mean_absolute_error: mean_absolute_error(predicted, grades),
            ..Self::default()
        })
    }

    /// Computes the metrics of `scores` without a loss; skips NaN scores. `None` without a score.
    pub fn of_scores(scores: &[f32], labels: &[bool]) -> Option<Self> {
        let defined = scores.iter().zip(labels).filter(|(score, _)| !score.is_nan());
        let (scores, labels): (Vec<f32>, Vec<bool>) = defined.unzip();
        let called = scores.iter().map(|&score| score > DECISION);
        let confusion = Confusion::of_calls(called.zip(labels.iter().copied()));
        let right = confusion.true_positives + confusion.true_negatives;
        (!scores.is_empty()).then(|| Self {
            num_samples: scores.len(),
            accuracy: confusion.accuracy(),
            accuracy_interval: proportion_interval(right, scores.len()),
            precision: confusion.precision(),
            recall: confusion.recall(),
            f1: confusion.f1(),
            roc_auc: roc_auc(&scores, &labels),
            roc_auc_interval: roc_auc_interval(&scores, &labels),
            ..Self::default()
        })
    }

    /// Computes the metrics and loss of `logits`, none of which may be NaN. `None` without a logit.
    pub fn of_logits(logits: &[f32], labels: &[bool]) -> Option<Self> {
        let probabilities: Vec<f32> = logits.iter().map(|&logit| sigmoid(logit)).collect();
        let metrics = Self::of_scores(&probabilities, labels)?;
        let (loss, roc_auc) = (binary_cross_entropy(logits, labels), roc_auc(logits, labels));
        let roc_auc_interval = roc_auc_interval(logits, labels);
        Some(Self { loss, roc_auc, roc_auc_interval, ..metrics })
    }

    /// Returns the metrics rounded to six decimals; no split is large enough to give more meaning.
    #[must_use]
    pub fn rounded(self) -> Self {
        let round = |value: Option<f64>| value.map(rounded);
        let ends = |interval: Option<[f64; 2]>| interval.map(|ends| ends.map(rounded));
        Self {
            num_samples: self.num_samples,
            loss: round(self.loss),
            accuracy: round(self.accuracy),
            accuracy_interval: ends(self.accuracy_interval),
            precision: round(self.precision),
            recall: round(self.recall),
            f1: round(self.f1),
            roc_auc: round(self.roc_auc),
            roc_auc_interval: ends(self.roc_auc_interval),
            spearman: round(self.spearman),
            spearman_interval: ends(self.spearman_interval),
            mean_absolute_error: round(self.mean_absolute_error),
        }
    }
}

/// Computes the mean binary cross-entropy (log loss, in nats) of `logits` (log-odds of the positive
/// class), in f64 without overflow: max(z, 0) - z y + log(1 + exp(-|z|)). `None` without samples.
pub fn binary_cross_entropy(logits: &[f32], labels: &[bool]) -> Option<f64> {
    let losses = logits.iter().zip(labels).map(|(&logit, &label)| log_loss(logit, label));
    (!logits.is_empty()).then(|| losses.sum::<f64>() / logits.len() as f64)
}

/// Computes the binary cross-entropy of one sample, see [`binary_cross_entropy`].
pub fn log_loss(logit: f32, label: bool) -> f64 {
    let z = f64::from(logit);
    z.max(0.0) - if label { z } else { 0.0 } + (-z.abs()).exp().ln_1p()
}

/// Computes the mean distance of `predicted` from `grades`; `None` without samples.
pub fn mean_absolute_error(predicted: &[f32], grades: &[f32]) -> Option<f64> {
    let errors = predicted.iter().zip(grades).map(|(&p, &g)| (f64::from(p) - f64::from(g)).abs());
    (!predicted.is_empty()).then(|| errors.sum::<f64>() / predicted.len() as f64)
}

/// Rounds `value` to six decimals.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Computes 1 / (1 + exp(-`logit`)) in f32 like `torch.sigmoid`: exactly 1 from about 16.7.
pub fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// Returns `part` / `whole`, or `None` if `whole` is 0.
pub fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
