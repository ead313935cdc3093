//! Estimates shares of a population from a sample drawn with unequal probabilities.

use serde::Serialize;

use super::binomial::share_interval;

/// Documents of a sample that have one text, for the estimate of a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedText {
    /// Number of population documents they represent, up to a common factor; at least 0.
    pub weight: f64,
    /// Probability with which each of them was drawn; 0 if unknown.
    pub probability: f64,
    /// Number of these documents, at least 1.
    pub copies: f64,
    /// True if they are selected, which is known for all documents of the population.
    pub is_selected: bool,
    /// True if they are positive, which is known only for the sample.
    pub is_positive: bool,
}

/// An estimated share.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct WeightedShare {
    /// The estimated share.
    pub share: f64,
    /// Lower end of the 95% confidence interval.
    pub low: f64,
    /// Upper end of the 95% confidence interval.
    pub high: f64,
    /// [`effective_size`] of the texts that form the denominator.
    pub effective_size: f64,
}

/// Estimates the positive share of selected documents; `None` if these have no weight.
pub fn weighted_precision(texts: &[WeightedText]) -> Option<WeightedShare> {
    estimate(texts, IS_SELECTED, |text| text.is_positive, [IS_SELECTED; 2])
}

/// Estimates the share of selected documents among the positive ones, by weight (Hájek's estimator
/// of a ratio); `None` if the positive ones have no weight.
///
/// The interval is the Clopper-Pearson interval of as many draws as have the variance of the
/// linearised ratio, without joint inclusion probabilities; if all probabilities are 0, the
/// variance is that of sampling with replacement. Few hits or misses say little about the weight of
/// such documents, so the variance counts one more of each with the mean weight of the possible
/// ones. For recall any unselected document may be a miss, however large its weight. If every
/// document was certain, the share is exact. `tests/golden/coverage.py` simulates the coverage.
///
/// # Source
/// C.-E. Särndal, B. Swensson, J. Wretman: Model Assisted Survey Sampling, 1992, sections 5.5 to
/// 5.8 (linearised ratios); E. L. Korn, B. I. Graubard: Confidence intervals for proportions with
/// small expected number of positive counts estimated from survey data, 1998 (interval).
pub fn weighted_recall(texts: &[WeightedText]) -> Option<WeightedShare> {
    estimate(texts, |text| text.is_positive, IS_SELECTED, [IS_SELECTED, |text| !text.is_selected])
}

type TextTest = fn(&WeightedText) -> bool;
const IS_SELECTED: TextTest = |text| text.is_selected;

/// Estimates the share of hits in the domain, `None` if it has no weight; `candidates` are the
/// possible hits and the possible misses.
fn estimate(
    texts: &[WeightedText],
    is_in_domain: TextTest,
    is_hit: TextTest,
    candidates: [TextTest; 2],
) -> Option<WeightedShare> {
    let domain = || texts.iter().filter(|text| is_in_domain(text));
    let total: f64 = domain().map(|text| text.weight).sum();
    let hits: f64 = domain().filter(|text| is_hit(text)).map(|text| text.weight).sum();
    let share = (hits + 0.0) / total; // the sum of nothing is -0.0
    let n: f64 = texts.iter().map(|text| text.copies).sum();
    // Sums weights, and squared weights times the chance that the document was not drawn.
    let sums = |is_one: &dyn Fn(&WeightedText) -> bool| {
        let some = texts.iter().filter(|text| is_one(text));
        some.fold([0.0, 0.0], |[weight, squares], text| {
            let chance = (1.0 - text.probability) * n / (n - 1.0).max(1.0);
            [weight + text.weight, squares + chance * text.weight * text.weight / text.copies]
        })
    };
    // Computes the variance that one hit, or one miss, adds by its weight.
    let spread = |hits: bool, could_be: TextTest| {
        let mean = |[weight, squares]: [f64; 2]| if weight > 0.0 { squares / weight } else { 0.0 };
        let known = sums(&could_be);
        let one = mean(if known[0] > 0.0 { known } else { sums(&|_| true) });
        let [weight, squares] = sums(&|text| is_in_domain(text) && is_hit(text) == hits);
        mean([weight + one, squares + one * one])
    };
    let variance =
        (1.0 - share) * spread(true, candidates[0]) + share * spread(false, candidates[1]);
    let draws = if variance > 0.0 { total / variance } else { f64::INFINITY };
    let weights: Vec<f64> = domain().map(|text| text.weight).collect();
    (total > 0.0).then(|| {
        let [low, high] = share_interval(share, draws);
        WeightedShare { share, low, high, effective_size: effective_size(&weights) }
    })
}

/// Computes the number of documents of equal weight that would estimate a mean as precisely as
/// those of `weights`, if weight and value are unrelated: (Σw)² / Σw²; 0 without any.
/// Source: L. Kish: Survey Sampling, 1965.
pub fn effective_size(weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}
