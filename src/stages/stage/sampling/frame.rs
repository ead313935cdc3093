//! The frame: the documents of a language that a sample is drawn from, with their scores.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use polysift_kernels::{Isa, mean_rows};
use rayon::prelude::*;

use super::draws::Draws;
use crate::stage::context::Context;
use crate::stage::corpus::{ScoreFiles, read_part};
use crate::stage::embedded::{Embedded, ordinal, place_of};
use crate::stage::verdicts::removed_rows;
use polysift_base::error::Result;
use polysift_base::sample::BottomKSample;
use polysift_data::input::DocumentBatch;
use polysift_data::parts::{EmbeddingScan, ScoreRows, read_documents};
use polysift_heads::head::normalised;
use polysift_runs::run::Shard;

/// Documents per thread with embeddings in memory.
const BLOCK_DOCUMENTS: usize = 1024;

/// Stored documents of a run, with their scores if it has any.
pub(super) struct StoredDocuments<'a> {
    pub(super) context: Context<'a>,
    pub(super) embedded: &'a Embedded,
    /// The score files; `None` if the run has no scores or none are needed.
    pub(super) scores: Option<ScoreFiles>,
    /// Names of the heads of the run, in the order in which scores are read.
    pub(super) heads: &'a [&'a str],
}

/// The documents of a part, with the scores of each head.
pub(super) struct StoredPart {
    pub(super) documents: DocumentBatch,
    /// Scores by head; empty if there are none.
    pub(super) scores: Vec<ScoreRows>,
}

impl StoredDocuments<'_> {
    pub(super) fn part(&self, shard: &Shard, index: usize) -> Result<StoredPart> {
        self.context.stop.check()?;
        let mut scores = Vec::new();
        if let Some(files) = self.scores {
            scores = read_part(self.context, files, self.heads, shard, index)?;
        }
        let documents = match scores.first() {
            Some(first) => first.documents.clone(),
            None => read_documents(&self.context.run.embeddings_part(shard, index))?,
        };
        Ok(StoredPart { documents, scores })
    }
}

impl StoredPart {
    /// Returns logit and score of document `at` by head; `None` if absent or NaN.
    pub(super) fn values(&self, at: usize) -> impl Iterator<Item = Option<[f32; 2]>> {
        self.scores.iter().map(move |head| {
            let [logit, score] = [head.logits[at]?, head.scores[at]?];
            (!logit.is_nan() && !score.is_nan()).then_some([logit, score])
        })
    }
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
        shards.try_for_each(|(place, shard, num_parts)| -> Result<()> {
            let removed = removed_rows(stored.context, shard)?;
            for index in 0..num_parts {
                let part = stored.part(shard, index)?;
                for (at, document) in part.documents.iter().enumerate() {
                    let is_removed = removed.binary_search(&document.row).is_ok();
                    if document.language != language || document.num_bytes == 0 || is_removed {
                        continue;
                    }
                    if excluded.contains(document.id) {
                        left_out.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    population.fetch_add(1, Ordering::Relaxed);
                    let ordinal = ordinal(place, document.row);
                    let rank = u128::from(draws.of(ordinal)) << 64 | u128::from(ordinal);
                    sample.offer(rank, || FrameDocument {
                        ordinal,
                        scores: part.values(at).collect(),
                    });
                }
            }
            Ok(())
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
                stored.context.stop.check()?;
                if wanted.peek().is_none() {
                    break;
                }
                let path = stored.context.run.embeddings_part(shard, index);
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
