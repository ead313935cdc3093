//! What a scan counts, in a form that can be merged in any order.
//!
//! Everything here is an exact integer sum or a maximum, so that the merged value does not depend
//! on how the corpus was split. Sizes depend on the number of thresholds and rates only, never on the
//! number of documents.

use serde::{Deserialize, Serialize};

use super::rank::RADIX;

/// Counts that can be joined; associative and commutative.
pub(super) trait Merge {
    /// Adds what `other` counted.
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

/// How many documents, and their weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Documents.
    pub num_documents: u64,
    /// Sum of their weights: documents, bytes or tokens.
    pub weight: u64,
}

impl Amount {
    /// Adds one document. Wraps where the corpus weighs 2^64 or more: `Survey` sums in 128 bits
    /// and refuses such a corpus before a sum is used.
    pub(super) fn add(&mut self, weight: u64) {
        self.merge(Self { num_documents: 1, weight });
    }

    /// Adds `count` documents of the given weights, of 1 each where there are none.
    pub(super) fn add_all(&mut self, count: usize, weights: Option<&[u64]>) {
        match weights {
            None => self.merge(Self { num_documents: count as u64, weight: count as u64 }),
            Some(weights) => weights.iter().for_each(|&weight| self.add(weight)),
        }
    }

    /// What is left when `part` of this is taken away.
    pub(super) fn without(self, part: Self) -> Self {
        Self {
            num_documents: self.num_documents - part.num_documents,
            weight: self.weight - part.weight,
        }
    }
}

impl Merge for Amount {
    fn merge(&mut self, other: Self) {
        self.num_documents = self.num_documents.wrapping_add(other.num_documents);
        self.weight = self.weight.wrapping_add(other.weight);
    }
}

/// Documents under one key prefix, by the next digit of their key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeyCounts {
    /// `[RADIX]`
    documents: Vec<u64>,
    /// `[RADIX]`, what the documents of a cell weigh beyond 1 each, modulo 2^64; empty as long as every
    /// document weighs 1.
    excess: Vec<u64>,
    /// Largest score of each cell, `[RADIX]`; empty where a cell holds more than one logit.
    scores: Vec<f32>,
    has_zero_weights: bool,
}

impl KeyCounts {
    /// No documents yet. `with_scores`: also keep the score of every cell, for the digit that
    /// completes the logit.
    pub(super) fn new(with_scores: bool) -> Self {
        Self {
            documents: vec![0; RADIX],
            excess: Vec::new(),
            scores: if with_scores { vec![f32::NEG_INFINITY; RADIX] } else { Vec::new() },
            has_zero_weights: false,
        }
    }

    /// Counts a document that weighs 1.
    pub(super) fn add_one(&mut self, digit: usize) {
        self.documents[digit] += 1;
    }

    /// Counts a document.
    pub(super) fn add(&mut self, digit: usize, weight: u64) {
        self.add_one(digit);
        if weight != 1 {
            self.excess.resize(RADIX, 0);
            self.excess[digit] = self.excess[digit].wrapping_add(weight.wrapping_sub(1));
            self.has_zero_weights |= weight == 0;
        }
    }

    /// Takes note of the score of a document, where scores are kept.
    pub(super) fn see_score(&mut self, digit: usize, score: f32) {
        if let Some(cell) = self.scores.get_mut(digit) {
            *cell = cell.max(score);
        }
    }

    /// The cell in which the running weight reaches `target`, and what the cells before it hold.
    pub(super) fn reach(&self, target: u64) -> Option<(usize, Amount)> {
        let mut before = Amount::default();
        for digit in 0..RADIX {
            let cell = self.cell(digit);
            if before.weight + cell.weight >= target {
                return Some((digit, before));
            }
            before.merge(cell);
        }
        None
    }

    /// The documents of one cell.
    pub(super) fn cell(&self, digit: usize) -> Amount {
        let num_documents = self.documents[digit];
        let excess = self.excess.get(digit).copied().unwrap_or_default();
        Amount { num_documents, weight: num_documents.wrapping_add(excess) }
    }

    /// Score of the documents of one cell, where scores are kept.
    pub(super) fn score(&self, digit: usize) -> Option<f32> {
        self.scores.get(digit).map(|score| score + 0.0) // zeros unsigned
    }

    /// Number of cells, whatever was counted.
    #[cfg(test)]
    pub(super) fn num_counters(&self) -> usize {
        self.documents.len().max(self.excess.len()).max(self.scores.len())
    }

    /// Whether exactly `needed` of the cell's weight means all of its documents: yes for a single
    /// document; otherwise documents without weight may stand behind the last one needed.
    pub(super) fn takes_whole(&self, digit: usize, needed: u64) -> bool {
        let cell = self.cell(digit);
        cell.num_documents == 1 || cell.weight == needed && !self.has_zero_weights
    }
}

impl Merge for KeyCounts {
    fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.documents.iter_mut().zip(other.documents) {
            *mine += theirs;
        }
        if !other.excess.is_empty() {
            self.excess.resize(RADIX, 0);
        }
        for (mine, theirs) in self.excess.iter_mut().zip(other.excess) {
            *mine = mine.wrapping_add(theirs);
        }
        for (mine, theirs) in self.scores.iter_mut().zip(other.scores) {
            *mine = mine.max(theirs);
        }
        self.has_zero_weights |= other.has_zero_weights;
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
            counts.see_score(usize::from(digit), score);
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
