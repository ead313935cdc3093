//! Packs sequences without padding, and plans which form a batch. All functions are pure.
//!
//! Invariant: `cu_seqlens` starts with 0, never decreases and ends with the number of tokens.

use std::collections::{BTreeMap, VecDeque};

/// A batch of `B` sequences with `N` tokens in total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedBatch {
    /// Token ids, `[N]`.
    pub input_ids: Vec<u32>,
    /// Start of each sequence, and the end of the last one, `[B + 1]`.
    pub cu_seqlens: Vec<u32>,
}

impl Default for PackedBatch {
    /// Returns an empty batch.
    fn default() -> Self {
        Self { input_ids: Vec::new(), cu_seqlens: vec![0] }
    }
}

impl PackedBatch {
    /// Appends a sequence.
    pub fn push(&mut self, input_ids: &[u32]) {
        self.input_ids.extend_from_slice(input_ids);
        self.cu_seqlens.push(self.input_ids.len() as u32);
    }

    /// Returns the number of sequences, `B`.
    pub fn num_sequences(&self) -> usize {
        self.cu_seqlens.len().saturating_sub(1)
    }

    /// Returns the number of tokens, `N`.
    pub fn num_tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// Returns the token ids of sequence `i`; panics if there is none.
    pub fn sequence(&self, i: usize) -> &[u32] {
        &self.input_ids[self.cu_seqlens[i] as usize..self.cu_seqlens[i + 1] as usize]
    }
}

/// Groups sequences of `lengths` tokens into batches of indices, each index once. A batch starts
/// with the longest sequence left and takes the longest that still fits, the first of equal ones,
/// up to `batch_tokens` tokens and `max_sequences`. A sequence of more tokens is alone.
pub fn plan_batches(
    lengths: &[usize],
    batch_tokens: usize,
    max_sequences: usize,
) -> Vec<Vec<usize>> {
    let mut left: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
    for (i, &length) in lengths.iter().enumerate() {
        left.entry(length).or_default().push_back(i);
    }
    let mut groups = Vec::new();
    while let Some(first) = take_longest(&mut left, usize::MAX) {
        let mut space = batch_tokens.saturating_sub(lengths[first]);
        let mut group = vec![first];
        // A sequence that exceeds the budget stays alone; not even an empty sequence joins it.
        while group.len() < max_sequences && lengths[first] <= batch_tokens {
            let Some(next) = take_longest(&mut left, space) else { break };
            space -= lengths[next];
            group.push(next);
        }
        groups.push(group);
    }
    groups
}

/// Removes from `left` the first of the longest sequences of at most `limit` tokens.
fn take_longest(left: &mut BTreeMap<usize, VecDeque<usize>>, limit: usize) -> Option<usize> {
    let (&length, indices) = left.range_mut(..=limit).next_back()?;
    let index = indices.pop_front();
    if indices.is_empty() {
        left.remove(&length);
    }
    index
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_batch_has_no_sequences_and_no_tokens() {
        let batch = PackedBatch::default();
        assert_eq!((batch.num_sequences(), batch.num_tokens()), (0, 0));
    }

    #[test]
    fn sequences_come_back_as_they_went_in() {
        let mut batch = PackedBatch::default();
        for sequence in [&[1, 2, 3][..], &[], &[4]] {
            batch.push(sequence);
        }
        assert_eq!(batch.cu_seqlens, [0, 3, 3, 4]);
        assert_eq!((batch.sequence(0), batch.sequence(1)), (&[1, 2, 3][..], &[][..]));
        assert_eq!(batch.sequence(2), [4]);
    }

    #[test]
    fn a_sequence_longer_than_the_budget_is_alone() {
        assert_eq!(plan_batches(&[2, 9, 1, 0], 4, 8), [vec![1], vec![0, 2, 3]]);
    }

    #[test]
    fn the_rest_of_a_group_is_filled_with_the_longest_that_fit() {
        // 8 leaves room for 4, which excludes 7 and 5; then comes 7 + 5; the threes come last.
        assert_eq!(plan_batches(&[3, 7, 4, 5, 8, 3], 12, 8), [vec![4, 2], vec![1, 3], vec![0, 5]]);
    }

    #[test]
    fn a_group_has_no_more_sequences_than_allowed() {
        assert_eq!(plan_batches(&[1, 1, 1, 2], 100, 3), [vec![3, 0, 1], vec![2]]);
    }

    proptest! {
        #[test]
        fn a_plan_holds_every_index_once_in_groups_that_nothing_left_would_fit(
            lengths in prop::collection::vec(0usize..40, 0..60),
            budget in 1usize..100,
            most in 1usize..12,
        ) {
            let plan = plan_batches(&lengths, budget, most);
            let mut left: Vec<usize> = lengths.clone();
            left.sort_unstable();
            for group in &plan {
                let in_group: Vec<usize> = group.iter().map(|&i| lengths[i]).collect();
                let tokens: usize = in_group.iter().sum();
                prop_assert_eq!(in_group.first(), left.last(), "begins with the longest left");
                prop_assert!(in_group.is_sorted_by(|a, b| a >= b));
                prop_assert!(tokens <= budget || group.len() == 1);
                prop_assert!((1..=most).contains(&group.len()));
                for length in &in_group {
                    left.remove(left.partition_point(|l| l < length));
                }
                // So every group but the last wastes less than the shortest sequence left.
                let full = group.len() == most
                    || left.first().is_none_or(|shortest| tokens + shortest > budget);
                prop_assert!(full, "{in_group:?} of {budget} leaves room for {left:?}");
            }
            let mut indices = plan.concat();
            indices.sort_unstable();
            prop_assert_eq!(indices, (0..lengths.len()).collect::<Vec<_>>());
        }

        #[test]
        fn web_like_lengths_leave_the_groups_nearly_full(seed in any::<u64>()) {
            // Longer documents count as 512 tokens; the other lengths are uniform.
            let length = |i: u64| ((seed ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 40) % 800;
            let lengths: Vec<usize> = (0..4000).map(|i| length(i).clamp(16, 512) as usize).collect();
            let plan = plan_batches(&lengths, 16_896, 4224);
            let tokens: usize = lengths.iter().sum();
            // The plan has at most one group more than the minimum.
            prop_assert!(plan.len() <= tokens.div_ceil(16_896) + 1, "{}", plan.len());
        }
    }
}
