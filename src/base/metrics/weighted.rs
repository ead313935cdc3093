//! Shares of a population, estimated from a sample whose documents were drawn with unequal probabilities.

use serde::Serialize;

use super::binomial::share_interval;

/// Some documents of a sample with one text, for the estimate of a share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedText {
    /// How many documents of the population they stand for together, up to a factor that all texts have; not below 0.
    pub weight: f64,
    /// The probability with which each of them was drawn; 0 where that is not known.
    pub probability: f64,
    /// Their number, at least 1.
    pub copies: f64,
    /// Whether they are selected, which is known of all documents of the population.
    pub is_selected: bool,
    /// Whether they are positive, which is known of the sample alone.
    pub is_positive: bool,
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
    /// [`effective_size`] of the texts that the share is one of.
    pub effective_size: f64,
}

/// The share of positives among the selected documents; `None` where these weigh nothing. See [`weighted_recall`].
pub fn weighted_precision(texts: &[WeightedText]) -> Option<WeightedShare> {
    let is_selected = |text: &WeightedText| text.is_selected;
    share(texts, is_selected, |text| text.is_positive, [is_selected; 2])
}

/// The share of selected documents among the positive ones, by weight (Hájek's estimator of a ratio); `None` where these
/// weigh nothing.
///
/// The interval is that of Clopper and Pearson for as many draws as have the variance of the linearised ratio, taken
/// without joint inclusion probabilities; where all probabilities are 0 the variance is that of sampling with
/// replacement. Few hits or misses say little about what such a document weighs: the variance counts one more of each,
/// with the mean weight of the documents that could be one. For recall a miss could be any document that is not selected,
/// however large its weight. Where every document was certain the share is exact. How often the interval holds it is
/// simulated in `tests/golden/coverage.py`.
///
/// # Source
/// C.-E. Särndal, B. Swensson, J. Wretman: Model Assisted Survey Sampling, 1992, sections 5.5 to 5.8 (linearised
/// ratios); E. L. Korn, B. I. Graubard: Confidence intervals for proportions with small expected number of positive
/// counts estimated from survey data, 1998 (interval).
pub fn weighted_recall(texts: &[WeightedText]) -> Option<WeightedShare> {
    let is_selected = |text: &WeightedText| text.is_selected;
    share(texts, |text| text.is_positive, is_selected, [is_selected, |text| !text.is_selected])
}

/// Whether something is true of a text.
type Is = fn(&WeightedText) -> bool;

/// The share of texts that are a hit among those of the domain; `candidates` could be a hit, and a miss.
fn share(
    texts: &[WeightedText],
    is_in_domain: Is,
    is_hit: Is,
    candidates: [Is; 2],
) -> Option<WeightedShare> {
    let domain = || texts.iter().filter(|text| is_in_domain(text));
    let total: f64 = domain().map(|text| text.weight).sum();
    let hits: f64 = domain().filter(|text| is_hit(text)).map(|text| text.weight).sum();
    let share = (hits + 0.0) / total; // the sum of nothing is -0.0
    let n: f64 = texts.iter().map(|text| text.copies).sum();
    // Of some texts their weight, and the sum of the squared weights of their documents, as far as chance drew them.
    let sums = |is_one: &dyn Fn(&WeightedText) -> bool| {
        let some = texts.iter().filter(|text| is_one(text));
        some.fold([0.0, 0.0], |[weight, squares], text| {
            let chance = (1.0 - text.probability) * n / (n - 1.0).max(1.0);
            [weight + text.weight, squares + chance * text.weight * text.weight / text.copies]
        })
    };
    // The variance that one hit, or one miss, adds by its weight.
    let spread = |hits: bool, could_be: Is| {
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
