//! Standardises a head's inputs to mean 0 and deviation 1 in training. The first layer of the head
//! file undoes this, so that the head scores embeddings as they are.

use crate::head::LinearLayer;
use crate::train::samples::Samples;

/// Values subtracted from the inputs, then divisors, `[D]` each.
#[derive(Debug, Clone)]
pub(super) struct Standardisation {
    pub(super) mean: Vec<f64>,
    /// Standard deviation, or 1 for an input that does not vary.
    pub(super) scale: Vec<f64>,
}

impl Standardisation {
    /// Makes a standardisation that leaves embeddings of `width` as they are.
    pub(super) fn none(width: usize) -> Self {
        Self { mean: vec![0.0; width], scale: vec![1.0; width] }
    }

    /// Computes mean and population deviation of the samples of `rows`.
    pub(super) fn of(samples: &Samples, rows: &[usize]) -> Self {
        let mean = samples.means(rows, |_, x| x);
        let variance = samples.means(rows, |i, x| (x - mean[i]).powi(2));
        let scale = variance.into_iter().map(|v| if v > 0.0 { v.sqrt() } else { 1.0 }).collect();
        Self { mean, scale }
    }

    /// Standardises one embedding.
    pub(super) fn standardise(&self, row: &[f32]) -> impl Iterator<Item = f64> {
        let inputs = row.iter().zip(self.mean.iter().zip(&self.scale));
        inputs.map(|(&x, (mean, scale))| (f64::from(x) - mean) / scale)
    }

    /// Makes the first layer of a head for embeddings as they are, from the `weight` `[outputs, D]`
    /// and `bias` `[outputs]` of a layer for standardised ones.
    pub(super) fn fold(&self, weight: &[f64], bias: &[f64]) -> LinearLayer {
        let (mut weights, mut biases) = (Vec::with_capacity(weight.len()), Vec::new());
        for (row, bias) in weight.chunks_exact(self.mean.len().max(1)).zip(bias) {
            let mut bias = *bias;
            for (weight, (mean, scale)) in row.iter().zip(self.mean.iter().zip(&self.scale)) {
                bias -= weight / scale * mean;
                weights.push((weight / scale) as f32);
            }
            biases.push(bias as f32);
        }
        LinearLayer::new(weights, biases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{ScoreScratch, Scorer};
    use polysift_config::HeadOutput;

    #[test]
    fn a_folded_layer_scores_embeddings_as_the_layer_scored_standardised_ones() {
        let embeddings = vec![101.0, -3.0, 7.0, 99.0, -2.5, 7.0, 104.0, -3.5, 7.0, 96.0, 1.0, 7.0];
        let samples = Samples { embeddings, hidden_size: 3, ..Samples::default() };
        // The last row is not used, and the last input does not vary.
        let standardisation = Standardisation::of(&samples, &[0, 1, 2]);
        assert!((standardisation.mean[0] - 304.0 / 3.0).abs() < 1e-12);
        assert!((standardisation.scale[1] - (1.0f64 / 6.0).sqrt()).abs() < 1e-12);
        assert_eq!((standardisation.mean[2], standardisation.scale[2]), (7.0, 1.0));
        let (weight, bias) = ([0.5, -1.25, 3.0], 0.75);
        let scorer = Scorer::mlp(vec![standardisation.fold(&weight, &[bias])]);
        let scratch = &mut ScoreScratch::default();
        let logits =
            scorer.logits(&samples.embeddings, &[0, 1, 2, 3], HeadOutput::Sigmoid, scratch);
        for (row, logit) in logits.into_iter().enumerate() {
            let inputs = standardisation.standardise(samples.embedding(row));
            let products = inputs.zip(weight).map(|(x, w)| f64::from(x as f32) * w);
            let expected = products.sum::<f64>() + bias;
            // The largest terms, weight / scale * mean, are about 30, rounded to f32 once or twice.
            assert!((f64::from(logit) - expected).abs() < 30.0 * 2f64.powi(-22), "{row}");
        }
    }
}
