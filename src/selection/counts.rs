//! Counts documents of a scan in forms that can be merged in any order.
//!
//! Every count is an exact integer sum or a maximum, so the merged value does not depend on how the
//! corpus was split. Sizes depend only on the number of rates, never on the number of documents.

use serde::{Deserialize, Serialize};

use super::rank::RADIX;

/// A value that can be merged. Merging is associative; [`View::pass`](super::scan::View::pass)
/// merges in the order of shards.
pub(super) trait Merge {
    fn merge(&mut self, other: Self);
}

impl<A: Merge, B: Merge> Merge for (A, B) {
    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
        self.1.merge(other.1);
    }
}

impl<T: Merge> Merge for Vec<T> {
    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.iter_mut().zip(other) {
            mine.merge(theirs);
        }
    }
}

/// A number of documents and their weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Number of documents.
    pub num_documents: u64,
    /// Sum of their weights: documents, bytes or tokens.
    pub weight: u64,
}

impl Amount {
    /// Adds one document.
    #[inline]
    pub fn add(&mut self, weight: u64) {
        self.merge(Self { num_documents: 1, weight });
    }

    /// Subtracts `part`, which is a part of this amount.
    pub(super) fn without(self, part: Self) -> Self {
        let num_documents = self.num_documents - part.num_documents;
        Self { num_documents, weight: self.weight - part.weight }
    }
}

impl Merge for Amount {
    fn merge(&mut self, other: Self) {
        // A corpus of 2^64 is out of reach.
        self.num_documents = self.num_documents.wrapping_add(other.num_documents);
        self.weight = self.weight.wrapping_add(other.weight);
    }
}

/// Documents under one key prefix, counted by the next digit of their key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyCounts {
    /// `[RADIX]`
    pub(super) cells: Vec<Amount>,
    /// `[RADIX]`: largest score in each cell. Empty if cells hold more than one logit.
    scores: Vec<f32>,
    has_zero_weights: bool,
}

impl KeyCounts {
    /// Makes empty counts; `with_scores` is for the digit that completes the logit.
    pub(super) fn new(with_scores: bool) -> Self {
        let scores = if with_scores { vec![f32::NEG_INFINITY; RADIX] } else { Vec::new() };
        Self { cells: vec![Amount::default(); RADIX], scores, has_zero_weights: false }
    }

    #[inline]
    pub(super) fn add(&mut self, digit: usize, weight: u64) {
        self.cells[digit].add(weight);
        self.has_zero_weights |= weight == 0;
    }

    /// Raises the largest score of a cell to `score`, if scores are kept.
    pub(super) fn raise_score(&mut self, digit: usize, score: f32) {
        if let Some(cell) = self.scores.get_mut(digit) {
            *cell = cell.max(score);
        }
    }

    /// Returns the cell in which the running weight reaches `target`, and the sum before it; `None`
    /// if the weight of all cells is less.
    pub(super) fn reach(&self, target: u64) -> Option<(usize, Amount)> {
        let mut before = Amount::default();
        for (digit, &cell) in self.cells.iter().enumerate() {
            if before.weight + cell.weight >= target {
                return Some((digit, before));
            }
            before.merge(cell);
        }
        None
    }

    pub(super) fn total(&self) -> Amount {
        let mut total = Amount::default();
        self.cells.iter().for_each(|&cell| total.merge(cell));
        total
    }

    /// Returns the largest score of a cell (zeros unsigned); `None` if scores are not kept.
    pub(super) fn score(&self, digit: usize) -> Option<f32> {
        self.scores.get(digit).map(|score| score + 0.0)
    }

    /// Returns true if `needed` of the cell's weight means all of its documents. This holds for a
    /// single document; otherwise, documents without weight may rank behind the last one needed.
    pub(super) fn takes_whole(&self, digit: usize, needed: u64) -> bool {
        let cell = self.cells[digit];
        cell.num_documents == 1 || cell.weight == needed && !self.has_zero_weights
    }
}

impl Merge for KeyCounts {
    fn merge(&mut self, other: Self) {
        self.cells.merge(other.cells);
        let scores = self.scores.iter_mut().zip(other.scores);
        scores.for_each(|(mine, theirs)| *mine = mine.max(theirs));
        self.has_zero_weights |= other.has_zero_weights;
    }
}

/// A first survey of one head's scores in a language; those dropped by a cascade have none.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Survey {
    pub(super) scored: Amount,
    pub(super) dropped: Amount,
    pub(super) num_unscored: u64,
    pub(super) num_nan: u64,
    /// Minimum and maximum finite score.
    range: Option<(f32, f32)>,
}

impl Survey {
    /// Adds documents with a score; each weighs 1 if there are no weights.
    pub(crate) fn add(&mut self, scores: &[f32], weights: Option<&[u64]>) {
        let num_documents = scores.len() as u64;
        let sum = |weights: &[u64]| weights.iter().copied().fold(0, u64::wrapping_add);
        self.scored.merge(Amount { num_documents, weight: weights.map_or(num_documents, sum) });
        let (mut min, mut max) = self.range.unwrap_or((f32::INFINITY, f32::NEG_INFINITY));
        for &score in scores {
            let is_finite = score.is_finite();
            min = if is_finite && score < min { score } else { min };
            max = if is_finite && score > max { score } else { max };
        }
        self.range = (min <= max).then_some((min, max));
    }

    /// Returns all scored and dropped documents.
    pub(super) fn whole(&self) -> Amount {
        let mut whole = self.scored;
        whole.merge(self.dropped);
        whole
    }

    /// Returns the minimum and maximum finite score (zeros unsigned); `None` if no score is finite.
    pub(super) fn range(&self) -> Option<(f32, f32)> {
        self.range.map(|(min, max)| (min + 0.0, max + 0.0))
    }
}

impl Merge for Survey {
    fn merge(&mut self, other: Self) {
        self.scored.merge(other.scored);
        self.dropped.merge(other.dropped);
        self.num_unscored += other.num_unscored;
        self.num_nan += other.num_nan;
        let ranges = self.range.into_iter().chain(other.range);
        self.range = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
}

/// Number of bins of a [`Histogram`].
pub const NUM_BINS: usize = 50;

/// Number of separate counts per bin, so that an addition does not wait for the previous one.
const LANES: usize = 4;

/// Distribution of a head's scores in a language, with [`NUM_BINS`] bins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Minimum finite score.
    pub min: f32,
    /// Maximum finite score.
    pub max: f32,
    /// Lower end of the first bin: 0 if all scores are in [0, 1], else `min`.
    pub low: f64,
    /// Upper end of the last bin: 1 if all scores are in [0, 1], else `max`.
    pub high: f64,
    /// Documents per bin. Bins have equal width and exclude their upper end, except for the last
    /// one; infinite scores are in the end bins.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Creates an empty histogram for scores from `min` to `max`.
    pub fn new(min: f32, max: f32) -> Self {
        let is_within = min >= 0.0 && max <= 1.0;
        let (low, high) = if is_within { (0.0, 1.0) } else { (f64::from(min), f64::from(max)) };
        Self { min, max, low, high, counts: vec![0; NUM_BINS] }
    }

    /// Changes the range of scores to `min` to `max`; returns `None` if that changes the bins.
    pub(super) fn spanning(self, min: f32, max: f32) -> Option<Self> {
        let Self { low, high, .. } = Self::new(min, max);
        ((low, high) == (self.low, self.high)).then_some(Self { min, max, ..self })
    }

    /// Counts scores; infinite ones go to the end bins.
    pub fn add(&mut self, scores: &[f32]) {
        let (low, width) = (self.low, self.high - self.low);
        if (low, width) == (0.0, 1.0) {
            self.add_places(scores, |score| score * NUM_BINS as f64);
        } else {
            self.add_places(scores, |score| (score - low) / width * NUM_BINS as f64);
        }
    }

    /// Counts scores in the bin at the integer part of `place(score)`.
    fn add_places(&mut self, scores: &[f32], place: impl Fn(f64) -> f64) {
        // The cast saturates: scores below `low`, or all if the width is 0 (NaN), go to bin 0.
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

impl Merge for Histogram {
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

    fn counts(documents: &[(u16, u64, f32)]) -> KeyCounts {
        let mut counts = KeyCounts::new(true);
        for &(digit, weight, score) in documents {
            counts.add(usize::from(digit), weight);
            counts.raise_score(usize::from(digit), score);
        }
        counts
    }

    #[test]
    fn a_target_is_reached_in_the_cell_that_completes_it() {
        let counts = counts(&[(3, 2, 0.0), (5, 0, 0.0), (9, 4, 0.0)]);
        let before = Amount { num_documents: 2, weight: 2 };
        assert_eq!(counts.reach(2), Some((3, Amount::default())));
        assert_eq!(counts.reach(3), Some((9, before)));
        assert_eq!(counts.reach(7), None);
    }

    #[test]
    fn a_cell_with_weightless_documents_is_not_taken_whole() {
        assert!(counts(&[(3, 2, 0.0), (3, 1, 0.0)]).takes_whole(3, 3));
        assert!(!counts(&[(3, 2, 0.0), (3, 1, 0.0)]).takes_whole(3, 2));
        assert!(!counts(&[(3, 2, 0.0), (3, 0, 0.0)]).takes_whole(3, 2));
        assert!(counts(&[(3, 2, 0.0)]).takes_whole(3, 1));
    }

    #[test]
    fn infinite_scores_are_counted_but_have_no_part_in_the_range() {
        let mut survey = Survey::default();
        survey.add(&[f32::INFINITY, 2.0, f32::NEG_INFINITY], None);
        assert_eq!(survey.range(), Some((2.0, 2.0)));
        assert_eq!(survey.scored.num_documents, 3);
    }

    #[test]
    fn a_score_at_an_inner_edge_belongs_to_the_upper_bin() {
        let mut bins = Histogram::new(0.0, 1.0);
        bins.add(&[0.0, 0.5, 1.0, f32::INFINITY]);
        assert_eq!((bins.counts[0], bins.counts[25], bins.counts[49]), (1, 1, 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        #[test]
        fn merge_is_associative_and_commutative(
            parts in prop::array::uniform3(
                prop::collection::vec((0u16..4, any::<u64>(), -1f32..1.0), 0..9),
            ),
        ) {
            let [a, b, c] = parts.clone().map(|part| counts(&part));
            let merged = |mut left: KeyCounts, right: KeyCounts| {
                left.merge(right);
                left
            };
            let left = merged(merged(a.clone(), b.clone()), c.clone());
            let right = merged(c, merged(b, a));
            prop_assert!(left == right && left == counts(&parts.concat()));
        }
    }
}
