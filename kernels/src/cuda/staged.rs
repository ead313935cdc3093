//! The integers of a batch that the kernels read, in one block that takes one copy.
//!
//! ```text
//!  counts 4 | input_ids T | position_ids T | cu_seqlens T/4+1, up to a multiple of 4 | tiles
//!  counts = num_sequences, num_tiles, 0, 0
//!  tile   = first token of the sequence, its length, first query of the tile, 0
//! ```
//!
//! T is the number of tokens that the buffers are made for. Tokens after the end of the batch are
//! padding that belongs to no sequence and no tile.

use std::ops::Range;

use super::error::{CudaError, Result};
use super::memory::{Buffer, Pinned};
use super::stream::{BufferPlace, Stream};

/// Token counts that the encoder computes with: multiples of 528 = 4 x 132, so that from 4,224 on
/// the blocks of the matrix products divide evenly over 132 multiprocessors.
pub const BUCKETS: [usize; 8] = [528, 1_056, 2_112, 4_224, 8_448, 16_896, 33_792, 67_584];

/// Queries per attention tile.
pub(super) const TILE_QUERIES: usize = 128;

/// Integers per tile, and the alignment of all offsets: kernels read a tile in one access.
const TILE: usize = 4;

/// Returns the maximum sequences of a batch of `tokens` tokens: few sequences have under 4 tokens.
pub fn max_sequences(tokens: usize) -> usize {
    tokens / 4
}

/// Returns the smallest bucket that holds a batch, or `None` if the batch is too large.
pub fn bucket_for(num_tokens: usize, num_sequences: usize) -> Option<usize> {
    BUCKETS.into_iter().find(|&t| num_tokens <= t && num_sequences <= max_sequences(t))
}

/// Limits of the integers of a batch: the sizes of the embedding tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of token ids.
    pub vocab_size: usize,
    /// Number of positions.
    pub num_positions: usize,
    /// Maximum tokens per sequence; `None` if only the number of positions limits it.
    pub max_tokens: Option<usize>,
}

/// Where the parts of the block for `tokens` tokens begin, each up to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchLayout {
    pub(super) tokens: usize,
    pub(super) input_ids: usize,
    pub(super) position_ids: usize,
    pub(super) cu_seqlens: usize,
    pub(super) tiles: usize,
    /// Upper bound of the number of tiles: a sequence of `n` tokens has `(n + 127) / 128` tiles, so
    /// all have at most `T / 128` and one more per sequence.
    pub(super) max_tiles: usize,
    len: usize,
}

impl BatchLayout {
    /// Lays out the block for batches of up to `tokens` tokens, a multiple of 8.
    fn new(tokens: usize) -> Self {
        let (input_ids, position_ids) = (TILE, TILE + tokens);
        let cu_seqlens = position_ids + tokens;
        let tiles = cu_seqlens + (max_sequences(tokens) + 1).next_multiple_of(TILE);
        let max_tiles = tokens / TILE_QUERIES + max_sequences(tokens);
        let len = tiles + TILE * max_tiles;
        Self { tokens, input_ids, position_ids, cu_seqlens, tiles, max_tiles, len }
    }

    /// Checks a batch and writes its block, see [`Staged::put`]; an error may leave a part of it.
    pub(super) fn fill(
        self,
        block: &mut [i32],
        limits: Limits,
        input_ids: &[u32],
        positions: impl IntoIterator<Item = usize>,
        cu_seqlens: &[u32],
    ) -> Result<()> {
        let fail = |reason: String| Err(CudaError::shape("batch", reason));
        let Limits { vocab_size, num_positions, max_tokens } = limits;
        if block.len() != self.len || i32::try_from(self.len.max(vocab_size)).is_err() {
            return fail(format!("{} integers for {} tokens", block.len(), self.tokens));
        }
        // The padding has the token id 0 and the position 0.
        if vocab_size == 0 || num_positions == 0 {
            return fail(format!("{vocab_size} token ids and {num_positions} positions"));
        }
        let (found, most) = (input_ids.len(), self.tokens);
        let (sequences, most_sequences) = (cu_seqlens.len().saturating_sub(1), max_sequences(most));
        if found > most || sequences > most_sequences {
            return fail(format!(
                "{found} tokens in {sequences} sequences; at most {most} in {most_sequences} fit"
            ));
        }
        let whole = cu_seqlens.first() == Some(&0)
            && cu_seqlens.last().is_some_and(|&end| end as usize == input_ids.len())
            && cu_seqlens.is_sorted_by(|a, b| a < b);
        if !whole {
            return fail("cu_seqlens does not rise from 0 to the number of tokens".into());
        }
        if let Some(id) = input_ids.iter().find(|&&id| id as usize >= vocab_size) {
            return fail(format!("token id {id}; there are {vocab_size}"));
        }
        let longest = max_tokens.unwrap_or(usize::MAX);
        if let Some(span) = spans(cu_seqlens).find(|span| span.len() > longest) {
            return fail(format!("a sequence of {} tokens; at most {longest}", span.len()));
        }

        let ids = &mut block[self.input_ids..self.position_ids];
        for (to, &id) in ids.iter_mut().zip(input_ids) {
            *to = id as i32;
        }
        ids[input_ids.len()..].fill(0);
        let places = &mut block[self.position_ids..self.cu_seqlens];
        places.fill(0);
        for (to, position) in places.iter_mut().zip(positions) {
            if position >= num_positions {
                return fail(format!("position {position}; there are {num_positions}"));
            }
            *to = position as i32;
        }
        let starts = &mut block[self.cu_seqlens..self.tiles];
        for (to, &start) in starts.iter_mut().zip(cu_seqlens) {
            *to = start as i32;
        }
        let tiles = list_tiles(cu_seqlens);
        block[..TILE].copy_from_slice(&[(cu_seqlens.len() - 1) as i32, tiles.len() as i32, 0, 0]);
        for (to, tile) in block[self.tiles..].chunks_exact_mut(TILE).zip(&tiles) {
            to.copy_from_slice(tile);
        }
        Ok(())
    }
}

/// Returns the place of each sequence among the tokens.
fn spans(cu_seqlens: &[u32]) -> impl Iterator<Item = Range<usize>> + '_ {
    cu_seqlens.windows(2).map(|w| w[0] as usize..w[1] as usize)
}

/// Returns the tiles of all sequences, most work first, so that a launch ends with short ones.
fn list_tiles(cu_seqlens: &[u32]) -> Vec<[i32; TILE]> {
    let mut tiles = Vec::new();
    for span in spans(cu_seqlens) {
        for first in (0..span.len()).step_by(TILE_QUERIES) {
            tiles.push([span.start as i32, span.len() as i32, first as i32, 0]);
        }
    }
    // The work of a tile is its keys times its queries.
    let work = |&[_, length, first, _]: &[i32; TILE]| {
        i64::from(length) * i64::from((length - first).min(TILE_QUERIES as i32))
    };
    tiles.sort_by_key(|tile| std::cmp::Reverse(work(tile)));
    tiles
}

/// The token ids, positions, sequences and tiles of one batch on a GPU.
///
/// The contents obey the [`Limits`]: at first an empty batch, then the one of [`Staged::put`].
pub struct Staged {
    pub(super) layout: BatchLayout,
    limits: Limits,
    host: Pinned<i32>,
    device: Buffer<i32>,
}

impl Staged {
    /// Allocates memory for batches of up to `tokens` tokens, with an empty batch in it.
    pub fn new(stream: &Stream, tokens: usize, limits: Limits) -> Result<Self> {
        let layout = BatchLayout::new(tokens);
        if tokens == 0 || !tokens.is_multiple_of(8) {
            return Err(CudaError::shape("batch", format!("{tokens} tokens, no multiple of 8")));
        }
        let device = stream.device();
        let mut this = Self {
            layout,
            limits,
            host: device.alloc_pinned(layout.len)?,
            device: device.alloc(layout.len, "the numbers of a batch")?,
        };
        this.put(stream, &[], [], &[0])?;
        Ok(this)
    }

    /// Queues a copy of a batch to the GPU: `input_ids` `[N]` and their `positions` (0 where there
    /// are fewer), and `cu_seqlens` `[B + 1]` from 0 to N. Nothing is copied if it does not fit, a
    /// sequence is empty or a number is outside the limits.
    pub fn put(
        &mut self,
        stream: &Stream,
        input_ids: &[u32],
        positions: impl IntoIterator<Item = usize>,
        cu_seqlens: &[u32],
    ) -> Result<()> {
        let block = self.host.values_mut()?;
        self.layout.fill(block, self.limits, input_ids, positions, cu_seqlens)?;
        stream.copy_in(&mut self.host, &mut self.device)
    }

    /// Returns the maximum number of tokens of a batch; the kernels compute this many rows.
    pub fn tokens(&self) -> usize {
        self.layout.tokens
    }

    /// Returns the limits of the batch's integers.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the block on the GPU, which begins with the counts.
    pub(super) fn counts(&self) -> &Buffer<i32> {
        &self.device
    }

    /// Returns the address of a `part` of the block, such as [`BatchLayout::tiles`], on the GPU.
    pub(super) fn start(&self, part: usize) -> BufferPlace<'_> {
        BufferPlace { memory: Some(&self.device.memory), address: self.device.address(part) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { vocab_size: 100, num_positions: 514, max_tokens: None };

    fn starts(lengths: &[usize]) -> Vec<u32> {
        let ends = lengths.iter().scan(0, |end, &length| {
            *end += length as u32;
            Some(*end)
        });
        [0].into_iter().chain(ends).collect()
    }

    fn fill(
        limits: Limits,
        input_ids: &[u32],
        positions: &[usize],
        cu_seqlens: &[u32],
    ) -> Result<Vec<i32>> {
        let layout = BatchLayout::new(528);
        let mut block = vec![-7; layout.len];
        layout.fill(&mut block, limits, input_ids, positions.iter().copied(), cu_seqlens)?;
        Ok(block)
    }

    #[test]
    fn a_batch_goes_into_the_smallest_bucket_that_holds_it() {
        let mut smaller = 0;
        for bucket in BUCKETS {
            assert_eq!(bucket % 528, 0);
            assert_eq!(bucket_for(smaller + 1, 1), Some(bucket));
            assert_eq!(bucket_for(bucket, 1), Some(bucket));
            assert_eq!(bucket_for(1, max_sequences(smaller) + 1), Some(bucket));
            assert_eq!(bucket_for(1, max_sequences(bucket)), Some(bucket));
            smaller = bucket;
        }
        assert_eq!(bucket_for(0, 0), Some(528));
        assert_eq!(bucket_for(smaller + 1, 1), None);
        assert_eq!(bucket_for(1, max_sequences(smaller) + 1), None);
    }

    #[test]
    fn the_parts_of_the_block_follow_each_other_on_multiples_of_16_bytes() {
        for tokens in BUCKETS {
            let BatchLayout { input_ids, position_ids, cu_seqlens, tiles, max_tiles, len, .. } =
                BatchLayout::new(tokens);
            let parts = [input_ids, position_ids, cu_seqlens, tiles];
            assert!(parts.iter().all(|part| part % 4 == 0));
            assert_eq!(parts[..3], [TILE, TILE + tokens, TILE + 2 * tokens]);
            assert!(tiles - cu_seqlens > max_sequences(tokens));
            assert_eq!(len - tiles, TILE * max_tiles);
        }
        assert_eq!(BatchLayout::new(528).len, 4 + 2 * 528 + 136 + 4 * (4 + 132));
    }

    #[test]
    fn every_part_is_written_to_its_end() -> Result<()> {
        let positions = [2, 3, 1, 4, 5, 2, 3];
        let block = fill(LIMITS, &[0, 5, 1, 6, 2, 0, 2], &positions, &[0, 5, 7])?;
        let BatchLayout { input_ids, position_ids, cu_seqlens, tiles, .. } = BatchLayout::new(528);
        assert_eq!(block[..4], [2, 2, 0, 0]);
        assert_eq!(block[input_ids..][..9], [0, 5, 1, 6, 2, 0, 2, 0, 0]);
        assert_eq!(block[position_ids..][..9], [2, 3, 1, 4, 5, 2, 3, 0, 0]);
        assert!(block[position_ids..cu_seqlens][7..].iter().all(|&p| p == 0));
        assert_eq!(block[cu_seqlens..][..3], [0, 5, 7]);
        assert_eq!(block[tiles..][..8], [0, 5, 0, 0, 5, 2, 0, 0]);
        Ok(())
    }

    #[test]
    fn positions_that_are_not_given_are_zeros_and_sequences_are_limited_alone() -> Result<()> {
        let limits = Limits { num_positions: 1, max_tokens: Some(3), ..LIMITS };
        let block = fill(limits, &[0, 5, 1, 6, 2], &[], &[0, 3, 5])?;
        assert_eq!(block[BatchLayout::new(528).position_ids..][..6], [0; 6]);
        let error = fill(limits, &[5; 4], &[], &[0, 4]).err();
        assert!(error.is_some_and(|e| e.to_string().contains("4 tokens; at most 3")));
        Ok(())
    }

    #[test]
    fn an_empty_batch_has_no_sequences_and_no_tiles() -> Result<()> {
        let block = fill(LIMITS, &[], &[], &[0])?;
        assert_eq!(block[..4], [0; 4]);
        Ok(())
    }

    #[test]
    fn a_batch_that_would_lead_a_kernel_astray_is_refused() {
        for (ids, starts, expected) in [
            (&[5, 100][..], &[0, 2][..], "token id 100; there are 100"),
            (&[5, 5], &[0, 3], "cu_seqlens"),
            (&[5, 5], &[1, 2], "cu_seqlens"),
            (&[5, 5], &[0, 2, 2], "cu_seqlens"),
            (&[5, 5], &[], "cu_seqlens"),
            (&[5; 529], &[0, 529], "529 tokens in 1 sequences; at most 528 in 132 fit"),
            (&[5; 133], &(0..134).collect::<Vec<_>>(), "133 tokens in 133 sequences"),
        ] {
            let message = fill(LIMITS, ids, &[], starts).map_err(|e| e.to_string());
            assert!(message.as_ref().is_err_and(|m| m.contains(expected)), "{message:?}");
        }
        let positions: Vec<usize> = (2..515).collect();
        for (limits, expected) in [
            (LIMITS, "position 514; there are 514"),
            (Limits { num_positions: 0, ..LIMITS }, "100 token ids and 0 positions"),
            (Limits { vocab_size: 0, ..LIMITS }, "0 token ids and 514 positions"),
        ] {
            let message = fill(limits, &[5; 513], &positions, &[0, 513]).map_err(|e| e.to_string());
            assert!(message.as_ref().is_err_and(|m| m.contains(expected)), "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn every_query_is_in_exactly_one_tile_the_heavy_ones_first(
            lengths in prop::collection::vec(1usize..600, 0..40),
        ) {
            let starts = starts(&lengths);
            let tokens = (*starts.last().unwrap_or(&0) as usize).max(4 * lengths.len());
            let mut seen = vec![0; tokens];
            let tiles = list_tiles(&starts);
            let mut lightest = usize::MAX;
            for &[start, length, first, _] in &tiles {
                let rows = (length - first).min(128) as usize;
                prop_assert!(first % 128 == 0 && rows > 0);
                let spans = starts.windows(2).map(|w| (w[0] as i32, (w[1] - w[0]) as i32));
                prop_assert!(spans.into_iter().any(|span| span == (start, length)));
                for row in 0..rows {
                    seen[start as usize + first as usize + row] += 1;
                }
                let work = rows * length as usize;
                prop_assert!(work <= lightest);
                lightest = work;
            }
            let own = *starts.last().unwrap_or(&0) as usize;
            prop_assert!(seen[..own].iter().all(|&n| n == 1) && seen[own..].iter().all(|&n| n == 0));
            prop_assert!(tiles.len() <= BatchLayout::new(tokens).max_tiles);
        }
    }
}
