//! Losses of an MLP head with their gradients by its outputs, the loss by which published mode
//! chooses an epoch, and the learning rate. All are in f64.

use crate::head::Schedule;

/// The loss of one sample, as a function of the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadLoss {
    /// Binary cross-entropy of the one output.
    Binary,
    /// Cross-entropy of several outputs; positive samples have this class.
    Softmax(usize),
    /// Cross-entropy of probabilities instead of outputs, so that softmax applies twice, as in the
    /// toxicity head's published code. The loss of a sample is always between 0.3133 and 1.3133.
    DoubleSoftmax(usize),
    Squared,
    /// Half the squared error of the one output; above an error of 1 the absolute error less 1/2.
    Huber,
    /// Ranked probability score: the sum over k < K of (F_k - T_k)², where F is the cumulative
    /// softmax of the outputs 0 to K and T_k is 0 below the grade and 1 from it on. For a grade
    /// between two whole ones, T_k is interpolated linearly.
    ///
    /// # Source
    /// E. S. Epstein: A scoring system for probability forecasts of ranked categories, 1969.
    RankedProbability,
}

impl HeadLoss {
    /// Returns the gradient, by the rows `outputs` `[B, outputs]`, of the weighted mean loss,
    /// row-major; `targets` are the labels with their weights.
    pub(super) fn gradient<'o>(
        self,
        outputs: impl ExactSizeIterator<Item = &'o [f32]>,
        targets: impl Iterator<Item = (f64, f64)>,
    ) -> Vec<f32> {
        let scale = 1.0 / outputs.len() as f64;
        let rows = outputs.zip(targets).flat_map(|(row, (label, weight))| {
            let row: Vec<f64> = row.iter().map(|&z| f64::from(z)).collect();
            let gradient = self.row_gradient(&row, label).into_iter();
            gradient.map(move |g| (g * weight * scale) as f32)
        });
        rows.collect()
    }

    /// Returns the gradient of one sample's loss; for cross-entropy it is probability - target.
    fn row_gradient(self, row: &[f64], label: f64) -> Vec<f64> {
        let is_positive = label > 0.5;
        match self {
            Self::Binary => vec![1.0 / (1.0 + (-row[0]).exp()) - label],
            Self::Softmax(class) => less_target(softmax(row), class, is_positive),
            Self::DoubleSoftmax(class) => {
                let inner = softmax(row);
                let outer = less_target(softmax(&inner), class, is_positive);
                through_softmax(&outer, &inner)
            }
            Self::Squared => vec![2.0 * (row[0] - label)],
            Self::Huber => vec![(row[0] - label).clamp(-1.0, 1.0)],
            Self::RankedProbability => {
                let probabilities = softmax(row);
                let mut sum = 0.0;
                let mut gradient: Vec<f64> = (probabilities.iter().enumerate())
                    .map(|(k, p)| {
                        sum += p;
                        let is_reached = (k as f64 + 1.0 - label).clamp(0.0, 1.0);
                        2.0 * (sum - is_reached)
                    })
                    .collect();
                // The last sum is always 1; a probability is in its own sum and all later ones.
                let mut later = 0.0;
                for (k, value) in gradient.iter_mut().enumerate().rev() {
                    if k + 1 < probabilities.len() {
                        later += *value;
                    }
                    *value = later;
                }
                through_softmax(&gradient, &probabilities)
            }
        }
    }
}

/// Turns the gradient by `probabilities` into that by the outputs of the softmax: p (g - Σ g p).
fn through_softmax(gradient: &[f64], probabilities: &[f64]) -> Vec<f64> {
    let mean: f64 = gradient.iter().zip(probabilities).map(|(g, p)| g * p).sum();
    gradient.iter().zip(probabilities).map(|(g, p)| p * (g - mean)).collect()
}

/// Computes the mean of [`HeadLoss::DoubleSoftmax`] over samples of two classes from `logits`, the
/// log-odds of the positive class; `None` without samples.
pub(super) fn double_softmax(logits: &[f32], labels: &[bool]) -> Option<f64> {
    let losses = logits.iter().zip(labels).map(|(&logit, &label)| {
        let own = f64::from(if label { logit } else { -logit });
        let probability = 1.0 / (1.0 + (-own).exp());
        // This is the cross-entropy of the "outputs" p and 1 - p.
        (1.0 - 2.0 * probability).exp().ln_1p()
    });
    (!logits.is_empty()).then(|| losses.sum::<f64>() / logits.len() as f64)
}

/// Subtracts 1 from the probability of a sample's class; positive samples have `class`.
fn less_target(mut probabilities: Vec<f64>, class: usize, is_positive: bool) -> Vec<f64> {
    probabilities[if is_positive { class } else { usize::from(class == 0) }] -= 1.0;
    probabilities
}

/// Computes the softmax of `row` without overflow.
fn softmax(row: &[f64]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|z| (z - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Returns the factor of the highest rate at `step`, counted from 0, like transformers'
/// `get_linear_schedule_with_warmup` stepped after every batch.
pub(super) fn rate_factor(schedule: Schedule, step: usize) -> f64 {
    let Schedule { warm_up_steps, steps } = schedule;
    if step < warm_up_steps {
        return step as f64 / warm_up_steps as f64;
    }
    let decay = steps.saturating_sub(warm_up_steps).max(1);
    steps.saturating_sub(step) as f64 / decay as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Both sides divide whole numbers in f64, so they agree exactly.
    #[test]
    fn the_schedule_is_that_of_transformers() -> Result<(), Box<dyn std::error::Error>> {
        let text = include_str!("../../../../tests/golden/toxicity/schedule.json");
        let cases: Vec<(Schedule, BTreeMap<usize, f64>)> = serde_json::from_str(text)?;
        assert!(cases.len() >= 3);
        for (schedule, factors) in cases {
            for (step, expected) in factors {
                let ours = rate_factor(schedule, step);
                assert!((ours - expected).abs() < 1e-15, "{schedule:?} {step}: {ours} {expected}");
            }
        }
        Ok(())
    }
}
