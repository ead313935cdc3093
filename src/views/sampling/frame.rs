//! The frame: the documents of a language that a sample is drawn from, with their scores.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use polysift_kernels::{Isa, mean_rows};
use rayon::prelude::*;

use super::draws::Draws;
use polysift_base::error::Result;
use polysift_base::sample::BottomKSample;
use polysift_corpus::embedded::{Embedded, place_of};
use polysift_corpus::rows::RunRows;
use polysift_data::parts::EmbeddingScan;
use polysift_heads::head::normalised;

/// Documents per thread with embeddings in memory.
const BLOCK_DOCUMENTS: usize = 1024;

/// Stored documents of a run, with their scores if it has any.
pub(super) struct StoredDocuments<'a> {
    pub(super) embedded: &'a Embedded,
    pub(super) rows: RunRows<'a>,
}

#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) struct FrameDocument {
    /// Place of the document in the corpus.
    pub(super) ordinal: u64,
    /// Logit and score by head.
    scores: Box<[Option<[f32; 2]>]>,
}

impl FrameDocument {
    /// Returns logit and score of the head at place `head`; neither is NaN.
    pub(super) fn score(&self, head: usize) -> Option<[f32; 2]> {
        self.scores.get(head).copied().flatten()
    }
}

/// All documents of a language with text, or a uniform sample of them.
#[derive(Debug)]
pub(super) struct Frame {
    /// Number of documents with text, without those that filters remove before the thresholds and
    /// those of earlier rounds.
    pub(super) population: u64,
    /// Number of documents of earlier rounds.
    pub(super) excluded: u64,
    /// Documents in random order.
    pub(super) documents: Vec<FrameDocument>,
}

impl Frame {
    /// Draws at most `limit` documents of `language` with ids not in `excluded`: those with the
    /// smallest random numbers.
    pub(super) fn draw(
        stored: &StoredDocuments<'_>,
        language: &str,
        excluded: &BTreeSet<String>,
        limit: usize,
        draws: Draws,
    ) -> Result<Self> {
        let (population, left_out) = (AtomicU64::new(0), AtomicU64::new(0));
        let sample = BottomKSample::new(limit);
        let shards = stored.embedded.shards_of(language).into_par_iter();
        shards.try_for_each(|(place, shard, _)| {
            stored.rows.shard(place, shard)?.for_each(|row| {
                let document = row.info;
                if document.language != language || document.num_bytes == 0 || row.is_removed {
                    return Ok(());
                }
                if excluded.contains(document.id) {
                    left_out.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                population.fetch_add(1, Ordering::Relaxed);
                let ordinal = row.scored.ordinal;
                let rank = u128::from(draws.of(ordinal)) << 64 | u128::from(ordinal);
                let score = |head| row.number(head).map(<[f32; 2]>::from);
                let scores = 0..row.scored.logits.len();
                sample
                    .offer(rank, || FrameDocument { ordinal, scores: scores.map(score).collect() });
                Ok(())
            })
        })?;
        Ok(Self {
            population: population.into_inner(),
            excluded: left_out.into_inner(),
            documents: sample.into_items(),
        })
    }

    /// Applies `make` to the normalised mean embedding of each of the first `count` documents;
    /// `None` if the mean is zero or not finite.
    pub(super) fn map_embeddings<T: Clone + Send>(
        &self,
        stored: &StoredDocuments<'_>,
        language: &str,
        count: usize,
        make: impl Fn(&[f32]) -> T + Sync,
    ) -> Result<Vec<Option<T>>> {
        let wanted = self.documents.iter().take(count).enumerate();
        let mut wanted: Vec<(u64, usize)> = wanted.map(|(i, d)| (d.ordinal, i)).collect();
        wanted.sort_unstable();
        let shards = stored.embedded.shards_of(language).into_par_iter();
        let found = shards.map(|(place, shard, num_parts)| -> Result<Vec<(usize, T)>> {
            let start = wanted.partition_point(|(ordinal, _)| place_of(*ordinal).0 < place);
            let end = wanted.partition_point(|(ordinal, _)| place_of(*ordinal).0 <= place);
            let mut wanted = wanted[start..end].iter().map(|&(o, i)| (place_of(o).1, i)).peekable();
            let mut found = Vec::new();
            for index in 0..num_parts {
                stored.rows.context.stop.check()?;
                if wanted.peek().is_none() {
                    break;
                }
                let path = stored.rows.context.run.embeddings_part(shard, index);
                let mut scan = EmbeddingScan::open(&path)?;
                let rows = scan.documents().rows().to_vec();
                if wanted.peek().is_none_or(|(row, _)| rows.last().is_none_or(|last| last < row)) {
                    continue;
                }
                let width = scan.hidden_size();
                let (mut offsets, mut values) = (Vec::new(), Vec::new());
                for block in rows.chunks(BLOCK_DOCUMENTS) {
                    scan.next(BLOCK_DOCUMENTS, &mut offsets, &mut values)?;
                    for (at, row) in block.iter().enumerate() {
                        let Some((_, i)) = wanted.next_if(|(wanted, _)| wanted == row) else {
                            continue;
                        };
                        let mut mean = vec![0.0; width];
                        let chunks = offsets[at] * width..offsets[at + 1] * width;
                        mean_rows(Isa::detect(), &values[chunks], &mut mean);
                        found.extend(normalised(&mean).map(|mean| (i, make(&mean))));
                    }
                }
            }
            Ok(found)
        });
        let mut made = vec![None; count.min(self.documents.len())];
        for (i, value) in found.collect::<Result<Vec<_>>>()?.into_iter().flatten() {
            made[i] = Some(value);
        }
        Ok(made)
    }
}
