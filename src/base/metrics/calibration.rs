//! Measures the calibration of scores against labels.

use serde::Serialize;

const BINS: usize = 10;

/// A bin: documents of neighbouring scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// Number of documents.
    pub documents: usize,
    /// Mean score.
    pub mean_score: f64,
    /// Mean label: the share of positives, or the mean grade.
    pub mean_label: f64,
}

/// Compares `scores` with `labels` in ten bins of ascending score, or fewer if there are fewer
/// documents. Bin sizes differ by at most one. Documents of equal score are ordered by their label.
pub fn calibration(scores: &[f32], labels: &[f32]) -> Vec<CalibrationBin> {
    let mut pairs: Vec<(f32, f32)> = scores.iter().copied().zip(labels.iter().copied()).collect();
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let bins = BINS.min(pairs.len());
    let bin = |i: usize| {
        let own = &pairs[i * pairs.len() / bins..(i + 1) * pairs.len() / bins];
        let mean = |value: fn(&(f32, f32)) -> f32| {
            own.iter().map(|pair| f64::from(value(pair))).sum::<f64>() / own.len() as f64
        };
        let (mean_score, mean_label) = (mean(|pair| pair.0), mean(|pair| pair.1));
        CalibrationBin { documents: own.len(), mean_score, mean_label }
    };
    (0..bins).map(bin).collect()
}

/// Computes the expected calibration error: the mean distance between mean score and mean label of
/// `bins`, weighted by documents; `None` without any. Source: M. P. Naeini, G. F. Cooper,
/// M. Hauskrecht: Obtaining well calibrated probabilities using Bayesian binning, 2015.
pub fn calibration_error(bins: &[CalibrationBin]) -> Option<f64> {
    let documents: usize = bins.iter().map(|bin| bin.documents).sum();
    let distance =
        |bin: &CalibrationBin| bin.documents as f64 * (bin.mean_score - bin.mean_label).abs();
    (documents > 0).then(|| bins.iter().map(distance).sum::<f64>() / documents as f64)
}
