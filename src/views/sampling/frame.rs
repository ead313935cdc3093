//! The frame: the documents of a language that a sample is drawn from, with their scores.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use polysift_base::error::Result;
use polysift_base::sample::{BottomKSample, ordinal_rank};
use polysift_corpus::embedded::Embedded;
use polysift_corpus::rows::RunRows;
use polysift_heads::head::DocumentScore;

#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) struct FrameDocument {
    pub(super) ordinal: u64,
    /// Score by the head that `--near` looks at; never NaN.
    pub(super) score: Option<DocumentScore>,
}

/// All documents of a language with text, or a uniform sample of them.
#[derive(Debug)]
pub(super) struct Frame {
    /// Documents with text, without those of earlier rounds or removed before the thresholds.
    pub(super) population: u64,
    pub(super) excluded: u64,
    /// Documents in random order.
    pub(super) documents: Vec<FrameDocument>,
}

impl Frame {
    /// Draws at most `limit` documents without `excluded` ids; `head` is a place among the heads.
    pub(super) fn draw(
        (embedded, rows): (&Embedded, &RunRows<'_>),
        (language, head): (&str, Option<usize>),
        excluded: &BTreeSet<String>,
        limit: usize,
        seed: u64,
    ) -> Result<Self> {
        let (population, left_out) = (AtomicU64::new(0), AtomicU64::new(0));
        let sample = BottomKSample::new(limit);
        let shards = embedded.shards_of(language).into_par_iter();
        shards.try_for_each(|(place, shard, _)| {
            rows.shard(place, shard)?.for_each(|row| {
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
                let rank = ordinal_rank(seed, ordinal);
                let score = || head.and_then(|head| row.score(head));
                sample.offer(rank, || FrameDocument { ordinal, score: score() });
                Ok(())
            })
        })?;
        Ok(Self {
            population: population.into_inner(),
            excluded: left_out.into_inner(),
            documents: sample.into_items(),
        })
    }
}
