//! A batch cut into tasks, so that threads that take them in order end together.

use std::ops::Range;

/// Most tokens of a task of several sequences: enough rows for the matrix kernels, few enough that
/// the states of a base-sized model stay near the second-level cache.
const MOST_TOKENS: usize = 512;
/// Fewest tokens that a task is cut down to.
const FEWEST_TOKENS: usize = 64;

/// Consecutive ranges of whole sequences. A task has at most half of the share that each of
/// `threads` has in what is left, so the tasks get smaller towards the end.
pub(super) fn split(cu_seqlens: &[u32], threads: usize) -> Vec<Range<usize>> {
    let num_sequences = cu_seqlens.len() - 1;
    let tokens = |range: Range<usize>| (cu_seqlens[range.end] - cu_seqlens[range.start]) as usize;
    let mut ranges = Vec::new();
    let mut start = 0;
    while start < num_sequences {
        let share = tokens(start..num_sequences) / (2 * threads);
        let most = share.clamp(FEWEST_TOKENS, MOST_TOKENS);
        let mut end = start + 1;
        while end < num_sequences && tokens(start..end + 1) <= most {
            end += 1;
        }
        ranges.push(start..end);
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(lengths: &[u32]) -> Vec<u32> {
        let sums = lengths.iter().scan(0, |sum, length| {
            *sum += length;
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }

    #[test]
    fn tasks_hold_whole_sequences_up_to_their_size() {
        assert!(split(&[0], 2).is_empty());
        // 2,600 tokens: tasks of 512 at first; a longer sequence is a task of its own.
        let lengths = [600, 300, 200, 300, 200, 300, 200, 300, 200];
        assert_eq!(split(&starts(&lengths), 1), [0..1, 1..3, 3..5, 5..7, 7..8, 8..9]);
    }

    #[test]
    fn a_small_batch_has_work_for_every_thread_and_small_tasks_at_the_end() {
        let ranges = split(&starts(&[64; 16]), 2);
        assert_eq!(
            ranges.iter().map(Range::len).collect::<Vec<_>>(),
            [4, 3, 2, 1, 1, 1, 1, 1, 1, 1]
        );
        assert_eq!(split(&starts(&[20; 6]), 4), [0..3, 3..6]);
    }
}
