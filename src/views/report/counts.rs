//! Counts of the passes over a corpus, which merge in any order with the same result.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use polysift_config::Keep;
use polysift_heads::head::DocumentScore;
use polysift_selection::RankKey;

/// The number of occurrences of each value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ValueCounts(BTreeMap<u64, u64>);

impl ValueCounts {
    pub(super) fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (value, count) in other.0 {
            *self.0.entry(value).or_default() += count;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the value of `rank` (from 0) among values from `least` on, and the number below it.
    pub(super) fn at_rank(&self, least: u64, rank: u64) -> Option<(u64, u64)> {
        let mut below = 0;
        for (&value, &count) in self.0.range(least..) {
            if rank < below + count {
                return Some((value, below));
            }
            below += count;
        }
        None
    }

    /// Returns mean, standard deviation (of the population, as in NumPy) and median, null without
    /// values; the median of an even number of them is the mean of the middle two.
    pub(super) fn distribution(&self) -> Value {
        let n = self.total();
        let middle = |rank| self.at_rank(0, rank).map(|(value, _)| value as f64);
        let (Some(lower), Some(upper)) = (middle(n.saturating_sub(1) / 2), middle(n / 2)) else {
            return json!({"mean": null, "std": null, "median": null});
        };
        let sum: u128 = self.0.iter().map(|(&v, &count)| u128::from(v) * u128::from(count)).sum();
        let mean = sum as f64 / n as f64;
        // In ascending order, whatever the order in which the values were counted.
        let squares = self.0.iter().map(|(&v, &count)| count as f64 * (v as f64 - mean).powi(2));
        let std = rounded((squares.sum::<f64>() / n as f64).sqrt(), 7);
        json!({"mean": rounded(mean, 7), "std": std, "median": f64::midpoint(lower, upper)})
    }
}

/// Rounds `value` to `digits` significant digits; more would only make the page longer.
pub(super) fn rounded(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// An exact sum of finite numbers: mantissas are added as integers, by exponent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ExactSum(BTreeMap<i32, i128>);

impl ExactSum {
    /// Adds `value`, which is finite: an integer times a power of two.
    pub(super) fn add(&mut self, value: f64) {
        // An f64 has 52 bits of fraction, below 11 of an exponent that is stored plus 1023.
        // Exponent 0 means subnormal: without the leading 1, and with the scale of exponent 1.
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7FF) as i32, bits & ((1 << 52) - 1));
        let whole = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        let signed = if value.is_sign_negative() { -i128::from(whole) } else { whole.into() };
        *self.0.entry(exponent.max(1) - (1023 + 52)).or_default() += signed;
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (exponent, sum) in other.0 {
            *self.0.entry(exponent).or_default() += sum;
        }
    }

    /// Returns the sum as f64, by Neumaier's summation (a sum and its error, 106 bits together).
    pub(super) fn value(&self) -> f64 {
        let (mut sum, mut lost) = (0.0f64, 0.0f64);
        for (&exponent, &mantissas) in &self.0 {
            // Each part is exact in f64.
            for part in [mantissas & ((1 << 40) - 1), mantissas >> 40 << 40] {
                let term = part as f64 * 2f64.powi(exponent);
                let next = sum + term;
                lost += if sum.abs() >= term.abs() { sum - next + term } else { term - next + sum };
                sum = next;
            }
        }
        sum + lost
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Bins {
    pub(super) low: f64,
    pub(super) high: f64,
    /// Bins exclude their upper end, but for the last; empty without a range.
    pub(super) counts: Vec<u64>,
}

impl Bins {
    pub(super) fn new(range: Option<(f64, f64)>, number: usize) -> Self {
        let (low, high) = range.unwrap_or((0.0, 1.0));
        Self { low, high, counts: vec![0; range.map_or(0, |_| number)] }
    }

    /// Counts `value`; a value outside the range goes into the bin at that end.
    pub(super) fn add(&mut self, value: f32) {
        let place = (f64::from(value) - self.low) / (self.high - self.low);
        // The cast saturates: below `low`, and in bins without width (NaN), this is bin 0.
        let bin = (place * self.counts.len() as f64) as usize;
        let last = self.counts.len().saturating_sub(1);
        if let Some(count) = self.counts.get_mut(bin.min(last)) {
            *count += 1;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }
}

/// Returns the number of bins (1 to `most`) for `n` documents by Rice's rule, 2 ∛n.
pub(super) fn num_bins(n: u64, most: usize) -> usize {
    (1..most).find(|bins| (*bins as u128).pow(3) >= 8 * u128::from(n)).unwrap_or(most)
}

/// Returns true for a letter or digit of a script without spaces between words: Thai, Lao, Tibetan,
/// Burmese, Khmer, the scripts of the Tai languages, Chinese, Japanese and Yi.
fn stands_alone(c: char) -> bool {
    matches!(c, '\u{E00}'..='\u{109F}' | '\u{1780}'..='\u{17FF}' | '\u{1950}'..='\u{19DF}'
        | '\u{1A20}'..='\u{1AAF}' | '\u{2E80}'..='\u{312F}' | '\u{31A0}'..='\u{31FF}'
        | '\u{3400}'..='\u{A4CF}' | '\u{A9E0}'..='\u{A9FF}' | '\u{AA60}'..='\u{AADF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FF9F}' | '\u{1AFF0}'..='\u{1B16F}'
        | '\u{20000}'..='\u{3FFFF}')
        && c.is_alphanumeric()
}

/// Counts words: what white space separates, and each letter of a script without spaces.
pub(super) fn num_words(text: &str) -> u64 {
    let words = |part: &str| {
        let alone = part.matches(stands_alone).count();
        let is_word = |rest: &&str| rest.contains(char::is_alphanumeric);
        if alone == 0 { 1 } else { alone + part.split(stands_alone).filter(is_word).count() }
    };
    text.split_whitespace().map(words).sum::<usize>() as u64
}

/// Quantiles, in thousandths of a percent.
pub(super) const QUANTILES: [u64; 11] =
    [100, 1000, 5000, 10_000, 25_000, 50_000, 75_000, 90_000, 95_000, 99_000, 99_900];

/// Maps a score to an integer with the same order; both zeros map to one.
pub(super) fn score_key(score: f32) -> u64 {
    RankKey::of_logit(score, Keep::Below).logit.into()
}

/// Returns the score of which `key` is the [`score_key`].
pub(super) fn score_of(key: u64) -> f32 {
    RankKey { logit: key as u32, id_hash: 0, ordinal: 0 }.logit(Keep::Below)
}

/// Scores of one head in a language, counted in two passes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ScoreCounts {
    /// Number of scores that are not NaN, infinite ones included.
    pub(super) n: u64,
    pub(super) infinite: u64,
    /// Range of the finite scores; `logit_range` is the range of the finite logits.
    pub(super) range: Option<(f32, f32)>,
    pub(super) logit_range: Option<(f32, f32)>,
    sum: ExactSum,
    /// Counts of the upper halves of the [`score_key`]s.
    coarse: ValueCounts,
}

/// Returns the range that spans both.
fn join_ranges(a: Option<(f32, f32)>, b: Option<(f32, f32)>) -> Option<(f32, f32)> {
    a.into_iter().chain(b).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Returns the range of one value, `None` unless it is finite.
fn range_of(value: f32) -> Option<(f32, f32)> {
    value.is_finite().then_some((value + 0.0, value + 0.0)) // removes the sign of zero
}

impl ScoreCounts {
    pub(super) fn add(&mut self, DocumentScore { logit, score }: DocumentScore) {
        self.n += 1;
        self.range = join_ranges(self.range, range_of(score));
        self.logit_range = join_ranges(self.logit_range, range_of(logit));
        if score.is_finite() {
            self.sum.add(score.into());
        } else {
            self.infinite += 1;
        }
        self.coarse.add(score_key(score) >> 16);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.n += other.n;
        self.infinite += other.infinite;
        self.range = join_ranges(self.range, other.range);
        self.logit_range = join_ranges(self.logit_range, other.logit_range);
        self.sum.merge(other.sum);
        self.coarse.merge(other.coarse);
    }

    /// Returns the mean of the finite scores.
    pub(super) fn mean(&self) -> Option<f64> {
        let finite = self.n - self.infinite;
        (finite > 0).then(|| self.sum.value() / finite as f64)
    }

    /// Locates the quantiles: the upper half of the key, and the rank among keys with that half.
    fn locate_quantiles(&self) -> impl Iterator<Item = Option<(u64, u64)>> {
        QUANTILES.iter().map(|thousandths| {
            // The nearest rank, from 0.
            let rank = (u128::from(self.n) * u128::from(*thousandths)).div_ceil(100_000) as u64;
            let rank = rank.saturating_sub(1);
            self.coarse.at_rank(0, rank).map(|(prefix, below)| (prefix, rank - below))
        })
    }

    /// Begins the second pass; the bins reach from 0 to 1 if all scores are in between.
    pub(super) fn begin_details(&self, bins: usize) -> ScoreDetails {
        let wide = |range: Option<(f32, f32)>| range.map(|(low, high)| (low.into(), high.into()));
        let is_share = self.range.is_some_and(|(low, high)| low >= 0.0 && high <= 1.0);
        let range = if is_share { Some((0.0, 1.0)) } else { wide(self.range) };
        let mut prefixes: Vec<u64> =
            self.locate_quantiles().flatten().map(|(prefix, _)| prefix).collect();
        prefixes.dedup();
        ScoreDetails {
            mean: self.mean().unwrap_or_default(),
            prefixes,
            squares: ExactSum::default(),
            fine: ValueCounts::default(),
            bins: Bins::new(range, bins),
            logits: Bins::new(wide(self.logit_range), bins),
        }
    }

    /// Returns the score at each of [`QUANTILES`], by the keys that `details` counted.
    pub(super) fn quantiles(&self, details: &ScoreDetails) -> Vec<Option<f32>> {
        let exact = |(prefix, rank): (u64, u64)| details.fine.at_rank(prefix << 16, rank);
        self.locate_quantiles().map(|place| Some(score_of(place.and_then(exact)?.0))).collect()
    }

    /// Returns the standard deviation of the finite scores, as in NumPy.
    pub(super) fn std(&self, details: &ScoreDetails) -> Option<f64> {
        let finite = self.n - self.infinite;
        (finite > 0).then(|| (details.squares.value() / finite as f64).sqrt())
    }
}

/// Counts of the second pass, which build on those of the first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScoreDetails {
    mean: f64,
    /// Upper halves of the keys of quantiles, ascending.
    prefixes: Vec<u64>,
    squares: ExactSum,
    /// Counts of the keys with one of these upper halves.
    fine: ValueCounts,
    pub(super) bins: Bins,
    pub(super) logits: Bins,
}

impl ScoreDetails {
    pub(super) fn add(&mut self, DocumentScore { logit, score }: DocumentScore) {
        self.bins.add(score);
        self.logits.add(logit);
        if score.is_finite() {
            self.squares.add((f64::from(score) - self.mean).powi(2));
        }
        let key = score_key(score);
        if self.prefixes.binary_search(&(key >> 16)).is_ok() {
            self.fine.add(key);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.squares.merge(other.squares);
        self.fine.merge(other.fine);
        self.bins.merge(&other.bins);
        self.logits.merge(&other.logits);
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
