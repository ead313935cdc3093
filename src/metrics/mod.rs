//! Metrics of scores against labels, and of scores against each other: pure functions.
//!
//! What has no value (no sample, one class only, nothing called positive) is `None`, where
//! scikit-learn warns and returns 0 or NaN. Scores that are NaN never enter. Counts are exact, and
//! no result depends on the order of the documents by more than the rounding of a sum.
//!
//! ```
//! use polysift::metrics::{Confusion, roc_auc};
//!
//! let (scores, labels) = ([0.9, 0.6, 0.4, 0.1], [true, false, true, false]);
//! assert_eq!(roc_auc(&scores, &labels), Some(0.75));
//! assert_eq!(Confusion::new(&scores, &labels).precision(), Some(0.5));
//! ```

mod calibration;
mod ranking;

use serde::Serialize;

pub use calibration::{Bin, binary_cross_entropy, brier, expected_calibration_error, reliability};
pub use ranking::{average_precision, roc_auc, roc_auc_interval, spearman};

/// A document is called positive if its probability is above this.
pub const DECISION: f32 = 0.5;

/// Counts of what was called right and wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
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
    /// Counts; a document is called positive if its score is above [`DECISION`].
    pub fn new(scores: &[f32], labels: &[bool]) -> Self {
        let called = scores.iter().map(|&score| score > DECISION);
        Self::of_calls(called.zip(labels.iter().copied()))
    }

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

    /// Number called positive.
    pub fn called_positive(&self) -> usize {
        self.true_positives + self.false_positives
    }

    /// Share called right.
    pub fn accuracy(&self) -> Option<f64> {
        let right = self.true_positives + self.true_negatives;
        ratio(right, right + self.false_positives + self.false_negatives)
    }

    /// Share of positives among those called positive.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.true_positives, self.called_positive())
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

    /// Correlation of calls and labels (Matthews), -1 to 1; `None` where either is the same for all.
    pub fn mcc(&self) -> Option<f64> {
        let count = |n: usize| n as f64;
        let (tp, fp) = (count(self.true_positives), count(self.false_positives));
        let (tn, fn_) = (count(self.true_negatives), count(self.false_negatives));
        // Two square roots, since the product of four counts may overflow the integers of f64.
        let scale = ((tp + fp) * (tn + fn_)).sqrt() * ((tp + fn_) * (tn + fp)).sqrt();
        (scale > 0.0).then(|| (tp * tn - fp * fn_) / scale)
    }
}

/// `part` / `whole`, unless `whole` is 0.
pub(crate) fn ratio(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
