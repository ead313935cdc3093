//! The losses of an MLP head: their gradients by its outputs, the value that published mode chooses
//! an epoch by, and its learning rate. All in f64.

use crate::head::Schedule;

/// What training minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadLoss {
    /// Binary cross-entropy of the one output.
    Binary,
    /// Cross-entropy of several outputs.
    Softmax {
        /// Class of the positive samples.
        class: usize,
    },
    /// Cross-entropy that takes the probabilities for outputs, so softmax counts twice: what the
    /// published code of the toxicity head computes. The loss of a sample lies between 0.3133 and
    /// 1.3133 whatever the outputs are.
    DoubleSoftmax {
        /// Class of the positive samples.
        class: usize,
    },
}

impl HeadLoss {
    /// Gradient of the mean loss by `outputs` `[B, outputs]`, row-major.
    pub(super) fn gradient(
        self,
        outputs: &[Vec<f32>],
        labels: impl Iterator<Item = bool>,
    ) -> Vec<f32> {
        let scale = 1.0 / outputs.len() as f64;
        let rows = outputs.iter().zip(labels).flat_map(|(row, label)| {
            let row: Vec<f64> = row.iter().map(|&z| f64::from(z)).collect();
            self.row_gradient(&row, label).into_iter().map(move |g| (g * scale) as f32)
        });
        rows.collect()
    }

    /// Gradient of the loss of one sample. That of cross-entropy, with sigmoid or softmax, is
    /// probability - target.
    fn row_gradient(self, row: &[f64], label: bool) -> Vec<f64> {
        match self {
            Self::Binary => {
                vec![1.0 / (1.0 + (-row[0]).exp()) - if label { 1.0 } else { 0.0 }]
            }
            Self::Softmax { class } => less_target(softmax(row), target(class, label)),
            Self::DoubleSoftmax { class } => {
                let inner = softmax(row);
                // By the probabilities, then through the inner softmax: p (g - Σ g p).
                let outer = less_target(softmax(&inner), target(class, label));
                let mean: f64 = outer.iter().zip(&inner).map(|(g, p)| g * p).sum();
                outer.iter().zip(&inner).map(|(g, p)| p * (g - mean)).collect()
            }
        }
    }
}

/// Mean of [`HeadLoss::DoubleSoftmax`] over samples of two classes, from `logits`, the log-odds of the
/// positive class; `None` without samples.
pub(super) fn double_softmax(logits: &[f32], labels: &[bool]) -> Option<f64> {
    let losses = logits.iter().zip(labels).map(|(&logit, &label)| {
        let own = f64::from(if label { logit } else { -logit });
        let probability = 1.0 / (1.0 + (-own).exp());
        // Cross-entropy of the "outputs" p and 1 - p.
        (1.0 - 2.0 * probability).exp().ln_1p()
    });
    (!logits.is_empty()).then(|| losses.sum::<f64>() / logits.len() as f64)
}

/// Class of a sample of this label where the positive ones are of `class`.
fn target(class: usize, label: bool) -> usize {
    if label { class } else { usize::from(class == 0) }
}

/// `probabilities` with 1 taken from that of `target`.
fn less_target(mut probabilities: Vec<f64>, target: usize) -> Vec<f64> {
    probabilities[target] -= 1.0;
    probabilities
}

/// Probabilities of `row`, without overflow.
fn softmax(row: &[f64]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|z| (z - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// What the highest rate is multiplied by at `step`, counted from 0: as
/// `get_linear_schedule_with_warmup` of transformers, stepped after every batch.
pub(super) fn factor(schedule: Schedule, step: usize) -> f64 {
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
        let text = include_str!("../../tests/golden/toxicity/schedule.json");
        let cases: Vec<(Schedule, BTreeMap<usize, f64>)> = serde_json::from_str(text)?;
        assert!(cases.len() >= 3);
        for (schedule, factors) in cases {
            for (step, expected) in factors {
                let ours = factor(schedule, step);
                assert!((ours - expected).abs() < 1e-15, "{schedule:?} {step}: {ours} {expected}");
            }
        }
        Ok(())
    }
}
