//! What a report says about the scores of a head: counts, range, mean and histogram.
//!
//! Sums are exact, so that the report's bytes do not depend on how the corpus was split.

use super::counts::{Amount, Merge};

/// Bins of a [`Histogram`](super::Histogram).
pub const NUM_BINS: usize = 50;

/// Sum of finite f32 values that does not depend on their order: mantissas by exponent.
#[derive(Debug, Clone, PartialEq)]
struct ExactSum {
    /// `mantissas[e]` counts units of 2^(max(e, 1) − 150); 2^103 values fit.
    mantissas: [i128; 256],
}

/// Values whose mantissas fit a sum of 64 bits with room to spare.
const SUM_VALUES: usize = 1 << 32;
/// Sums of mantissas side by side, so that one addition does not wait for the one before.
const LANES: usize = 4;

/// Exponent and signed mantissa of `value`.
fn parts(value: f32) -> (usize, i64) {
    let bits = value.to_bits();
    let exponent = (bits >> 23) as usize & 0xff;
    let implicit_one = u32::from(exponent != 0) << 23;
    let mantissa = i64::from(bits & 0x7f_ffff | implicit_one);
    (exponent, if bits >> 31 == 1 { -mantissa } else { mantissa })
}

impl ExactSum {
    /// Adds the finite ones of `values`.
    fn add(&mut self, values: &[f32]) {
        for values in values.chunks(SUM_VALUES) {
            let mut sums = [[0i64; 256]; LANES];
            let (blocks, rest) = values.as_chunks::<LANES>();
            for block in blocks {
                for lane in 0..LANES {
                    let (exponent, mantissa) = parts(block[lane]);
                    sums[lane][exponent] += mantissa;
                }
            }
            for &value in rest {
                let (exponent, mantissa) = parts(value);
                sums[0][exponent] += mantissa;
            }
            // What is not finite has the last exponent.
            for (exponent, total) in self.mantissas.iter_mut().enumerate().take(255) {
                *total += sums.iter().map(|sums| i128::from(sums[exponent])).sum::<i128>();
            }
        }
    }

    /// The sum, rounded once per exponent, smallest first.
    fn value(&self) -> f64 {
        (0i32..)
            .zip(self.mantissas)
            .map(|(exponent, mantissa)| mantissa as f64 * 2f64.powi(exponent.max(1) - 150))
            .sum()
    }
}

/// First look at the scores of one head over the whole language.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Survey {
    num_scored: u64,
    weight_scored: u128,
    pub(super) num_unscored: u64,
    pub(super) num_nan: u64,
    /// Scored survivors of the earlier thresholds, by branch.
    pub(super) candidates: Vec<Amount>,
    num_finite: u64,
    min: f32,
    max: f32,
    sum: ExactSum,
}

impl Survey {
    /// Nothing seen yet; `num_branches` selections run side by side.
    pub(super) fn new(num_branches: usize) -> Self {
        Self {
            num_scored: 0,
            weight_scored: 0,
            num_unscored: 0,
            num_nan: 0,
            candidates: vec![Amount::default(); num_branches],
            num_finite: 0,
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
            sum: ExactSum { mantissas: [0; 256] },
        }
    }

    /// Counts documents with a score, of weight 1 where there are no weights.
    pub(super) fn add(&mut self, scores: &[f32], weights: Option<&[u64]>) {
        self.num_scored += scores.len() as u64;
        self.weight_scored += match weights {
            None => scores.len() as u128,
            Some(weights) => weights.iter().map(|&weight| u128::from(weight)).sum(),
        };
        let (mut num_finite, mut min, mut max) = (0, f32::INFINITY, f32::NEG_INFINITY);
        for &score in scores {
            let is_finite = score.is_finite();
            num_finite += u32::from(is_finite);
            min = if is_finite && score < min { score } else { min };
            max = if is_finite && score > max { score } else { max };
        }
        self.num_finite += u64::from(num_finite);
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
        self.sum.add(scores);
    }

    /// All scored documents; `None` where their weight does not fit 64 bits.
    pub(super) fn scored(&self) -> Option<Amount> {
        let weight = u64::try_from(self.weight_scored).ok()?;
        Some(Amount { num_documents: self.num_scored, weight })
    }

    /// Least and largest finite score (zeros unsigned) and their mean; `None` without one.
    pub(super) fn range(&self) -> Option<(f32, f32, f64)> {
        let mean = || self.sum.value() / self.num_finite as f64;
        (self.num_finite > 0).then(|| (self.min + 0.0, self.max + 0.0, mean()))
    }
}

impl Merge for Survey {
    fn merge(&mut self, other: Self) {
        self.num_scored += other.num_scored;
        self.weight_scored += other.weight_scored;
        self.num_unscored += other.num_unscored;
        self.num_nan += other.num_nan;
        self.candidates.merge(other.candidates);
        self.num_finite += other.num_finite;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.sum.mantissas.iter_mut().zip(other.sum.mantissas) {
            *mine += theirs;
        }
    }
}

/// Documents by score, in [`NUM_BINS`] bins of equal width.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bins {
    low: f64,
    high: f64,
    pub(super) counts: [u64; NUM_BINS],
}

impl Bins {
    /// Empty bins from `low` to `high`.
    pub(super) fn new(low: f64, high: f64) -> Self {
        Self { low, high, counts: [0; NUM_BINS] }
    }

    /// Counts documents; infinite scores go to the end bins.
    pub(super) fn add(&mut self, scores: &[f32]) {
        let (low, width) = (self.low, self.high - self.low);
        if (low, width) == (0.0, 1.0) {
            self.add_places(scores, |score| score * NUM_BINS as f64);
        } else {
            self.add_places(scores, |score| (score - low) / width * NUM_BINS as f64);
        }
    }

    /// Counts documents whose bin is the whole part of `place(score)`.
    fn add_places(&mut self, scores: &[f32], place: impl Fn(f64) -> f64) {
        // The cast saturates: below `low`, and in bins without width (NaN), this is bin 0.
        let bin = |score: f32| (place(f64::from(score)) as usize).min(NUM_BINS - 1);
        let mut counts = [[0u64; NUM_BINS]; LANES];
        let (blocks, rest) = scores.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                counts[lane][bin(block[lane])] += 1;
            }
        }
        for &score in rest {
            counts[0][bin(score)] += 1;
        }
        for (bin, total) in self.counts.iter_mut().enumerate() {
            *total += counts.iter().map(|counts| counts[bin]).sum::<u64>();
        }
    }
}

impl Merge for Bins {
    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn survey(scores: &[f32]) -> Survey {
        let mut survey = Survey::new(1);
        survey.add(scores, None);
        survey
    }

    #[test]
    fn the_mean_does_not_lose_small_scores_among_large_ones() {
        let scores = [1e30, 1.0, -1e30, 1.0];
        assert_eq!(survey(&scores).range(), Some((-1e30, 1e30, 0.5)));
    }

    #[test]
    fn infinite_scores_are_counted_but_have_no_part_in_range_and_mean() {
        let survey = survey(&[f32::INFINITY, 2.0, f32::NEG_INFINITY]);
        assert_eq!(survey.range(), Some((2.0, 2.0, 2.0)));
        assert_eq!(survey.scored().map(|scored| scored.num_documents), Some(3));
    }

    #[test]
    fn a_score_at_an_inner_edge_belongs_to_the_upper_bin() {
        let mut bins = Bins::new(0.0, 1.0);
        bins.add(&[0.0, 0.5, 1.0, f32::INFINITY]);
        assert_eq!((bins.counts[0], bins.counts[25], bins.counts[49]), (1, 1, 2));
    }

    proptest! {
        #[test]
        fn surveys_merge_in_any_grouping(
            a: Vec<f32>, b: Vec<f32>, c: Vec<f32>,
        ) {
            let scores = |values: &[f32]| -> Vec<f32> {
                values.iter().copied().filter(|score| !score.is_nan()).collect()
            };
            let [a, b, c] = [scores(&a), scores(&b), scores(&c)];
            let joined = |parts: [Survey; 3]| {
                let [mut first, mut second, third] = parts;
                second.merge(third);
                first.merge(second);
                first
            };
            let grouped = joined([survey(&c), survey(&a), survey(&b)]);
            let whole = survey(&[a, b, c].concat());
            prop_assert_eq!(grouped.range(), whole.range());
            prop_assert_eq!(grouped.scored(), whole.scored());
        }
    }
}
