//! Sequences packed one after another without padding, and the plan of which go together.
//!
//! Pure. Invariant: `cu_seqlens` starts with 0, never falls and ends with the number of tokens.

/// `B` sequences, `N` tokens in all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedBatch {
    /// Token ids, `[N]`.
    pub input_ids: Vec<u32>,
    /// Where each sequence starts, and the end of the last one, `[B + 1]`.
    pub cu_seqlens: Vec<u32>,
}

impl Default for PackedBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl PackedBatch {
    /// No sequences.
    pub fn new() -> Self {
        Self { input_ids: Vec::new(), cu_seqlens: vec![0] }
    }

    /// Appends a sequence.
    pub fn push(&mut self, input_ids: &[u32]) {
        self.input_ids.extend_from_slice(input_ids);
        self.cu_seqlens.push(self.input_ids.len() as u32);
    }

    /// `B`.
    pub fn num_sequences(&self) -> usize {
        self.cu_seqlens.len().saturating_sub(1)
    }

    /// `N`.
    pub fn num_tokens(&self) -> usize {
        self.input_ids.len()
    }

    /// Tokens of the longest sequence; 0 without sequences.
    pub fn max_seqlen(&self) -> usize {
        self.cu_seqlens.windows(2).map(|w| (w[1] - w[0]) as usize).max().unwrap_or(0)
    }

    /// Token ids of sequence `i`.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn sequence(&self, i: usize) -> &[u32] {
        &self.input_ids[self.cu_seqlens[i] as usize..self.cu_seqlens[i + 1] as usize]
    }
}

/// Groups the sequences of the given `lengths` (tokens): longest first, ties by index, each group's
/// sum at most `batch_tokens`. A sequence that is longer than that is a group of its own. Every
/// index occurs exactly once.
pub fn plan_batches(lengths: &[usize], batch_tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lengths[i]), i));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut tokens = 0;
    for i in order {
        match groups.last_mut() {
            Some(group) if tokens + lengths[i] <= batch_tokens => {
                group.push(i);
                tokens += lengths[i];
            }
            _ => {
                groups.push(vec![i]);
                tokens = lengths[i];
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_batch_has_no_sequences_and_no_tokens() {
        let batch = PackedBatch::new();
        assert_eq!((batch.num_sequences(), batch.num_tokens(), batch.max_seqlen()), (0, 0, 0));
    }

    #[test]
    fn sequences_come_back_as_they_went_in() {
        let mut batch = PackedBatch::new();
        for sequence in [&[1, 2, 3][..], &[], &[4]] {
            batch.push(sequence);
        }
        assert_eq!(batch.cu_seqlens, [0, 3, 3, 4]);
        assert_eq!((batch.sequence(0), batch.sequence(1)), (&[1, 2, 3][..], &[][..]));
        assert_eq!((batch.sequence(2), batch.max_seqlen()), (&[4][..], 3));
    }

    #[test]
    fn a_sequence_longer_than_the_budget_is_alone() {
        assert_eq!(plan_batches(&[2, 9, 1], 4), [vec![1], vec![0, 2]]);
    }

    proptest! {
        #[test]
        fn a_plan_holds_every_index_once_within_the_budget_longest_first(
            lengths in prop::collection::vec(0usize..40, 0..60), budget in 1usize..100,
        ) {
            let plan = plan_batches(&lengths, budget);
            for group in &plan {
                let tokens: usize = group.iter().map(|&i| lengths[i]).sum();
                prop_assert!(!group.is_empty() && (tokens <= budget || group.len() == 1));
            }
            let order = plan.concat();
            prop_assert!(order.is_sorted_by_key(|&i| (std::cmp::Reverse(lengths[i]), i)));
            prop_assert_eq!(order.len(), lengths.len());
        }
    }
}
