//! Shares of a population, estimated from a sample whose documents were drawn with unequal probabilities.

use serde::Serialize;

use super::calibration::wilson_interval;

/// A document of a sample, for the estimate of a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedDocument {
    /// How many documents of the population it stands for, up to a factor that all have; not below 0.
    pub weight: f64,
    /// The probability with which it was drawn; 0 where that is not known.
    pub probability: f64,
    /// Whether the share is one of documents like it.
    pub is_in_domain: bool,
    /// Whether it counts for the share.
    pub is_hit: bool,
}

/// An estimated share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WeightedShare {
    /// The estimate.
    pub share: f64,
    /// Lower end of its 95% confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// [`effective_size`] of the documents of the domain.
    pub effective_size: f64,
}

/// The share of hits among the documents of the domain, by weight (Hájek's estimator of a ratio); `None` where the
/// domain weighs nothing.
///
/// The variance is that of the linearised ratio, with Hájek's approximation in the place of joint inclusion
/// probabilities; where all probabilities are 0 it is that of sampling with replacement. The interval is Wilson's
/// for as many draws as have this variance, which holds its level for shares near 0 and 1 and lies in [0, 1]; where
/// no document differs, for the effective size. Where every document was certain the share is exact.
///
/// # Source
/// C.-E. Särndal, B. Swensson, J. Wretman: Model Assisted Survey Sampling, 1992, sections 5.5 to 5.8 (linearised
/// ratios); J. Hájek: Asymptotic theory of rejective sampling with varying probabilities from a finite
/// population, 1964 (variance); E. L. Korn, B. I. Graubard: Confidence intervals for proportions with small
/// expected number of positive counts estimated from survey data, 1998 (interval).
pub fn weighted_share(documents: &[WeightedDocument]) -> Option<WeightedShare> {
    let domain = || documents.iter().filter(|document| document.is_in_domain);
    let total: f64 = domain().map(|document| document.weight).sum();
    let hits: f64 = domain().filter(|document| document.is_hit).map(|d| d.weight).sum();
    let share = (hits + 0.0) / total; // the sum of nothing is -0.0
    // By document: what is left to chance, and its part in the error of the ratio.
    let n = documents.len() as f64;
    let terms = documents.iter().map(|document| {
        let value = if document.is_hit { 1.0 - share } else { -share };
        let residual = if document.is_in_domain { value } else { 0.0 };
        let chance = (1.0 - document.probability) * n / (n - 1.0).max(1.0);
        (chance, document.weight * residual / total)
    });
    let terms: Vec<(f64, f64)> = terms.collect();
    let chances: f64 = terms.iter().map(|(chance, _)| chance).sum();
    let mean = terms.iter().map(|(chance, part)| chance * part).sum::<f64>() / chances;
    let squares = terms.iter().map(|(chance, part)| chance * (part - mean).powi(2));
    let variance = squares.sum::<f64>();
    let weights: Vec<f64> = domain().map(|document| document.weight).collect();
    let draws = if chances <= 0.0 {
        f64::INFINITY
    } else if variance > 0.0 {
        share * (1.0 - share) / variance
    } else {
        effective_size(&weights)
    };
    let [low, high] = wilson_interval(share, draws);
    let effective_size = effective_size(&weights);
    (total > 0.0).then_some(WeightedShare { share, low, high, effective_size })
}

/// Number of documents of equal weight that estimate a mean as precisely as those of `weights` where weight and
/// value are unrelated: (Σw)² / Σw²; 0 without any.
///
/// # Source
/// L. Kish: Survey Sampling, 1965.
pub fn effective_size(weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}
