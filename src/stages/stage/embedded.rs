//! A run whose embeddings are complete: what every stage after the embed stage begins with.

use std::collections::BTreeSet;

use super::work::score_keys;
use polysift_base::error::{Error, Result};
use polysift_runs::run::{Plan, RunDir, Shard, Stage, Summary};

/// Bits of an ordinal that count rows within a shard.
const ROW_BITS: u32 = 40;

/// Place of a row in the whole corpus, in plan order.
pub(crate) fn ordinal(shard: u64, row: u64) -> u64 {
    (shard << ROW_BITS) | row
}

/// Place in the plan of the shard of an [`ordinal`], and the row in it.
pub(crate) fn place_of(ordinal: u64) -> (u64, u64) {
    (ordinal >> ROW_BITS, ordinal & ((1 << ROW_BITS) - 1))
}

/// A run whose embeddings are complete: its plan, and what was embedded of each shard.
pub(crate) struct Embedded {
    /// The plan.
    pub(crate) plan: Plan,
    /// By shard of the plan.
    pub(crate) summaries: Vec<Summary>,
}

impl Embedded {
    /// Reads it; [`Error::Missing`] where shards are not embedded yet, since every later stage is about
    /// the whole corpus.
    pub(crate) fn of(run: &RunDir) -> Result<Self> {
        let plan = run.plan()?;
        let summaries = all_done(run, Stage::Embed, &plan.names(), "embedded")?;
        Ok(Self { plan, summaries })
    }

    /// The same, scored by all of `heads`; [`Error::Missing`] where one has not scored a shard.
    pub(crate) fn scored(run: &RunDir, heads: &[&str]) -> Result<Self> {
        let embedded = Self::of(run)?;
        all_done(run, Stage::Score, &score_keys(&embedded.plan, heads), "scored")?;
        Ok(embedded)
    }

    /// Languages of the documents.
    pub(crate) fn languages(&self) -> BTreeSet<String> {
        self.summaries.iter().flat_map(|summary| summary.counts.keys().cloned()).collect()
    }

    /// Shards with documents of `language`: place in the plan, shard, number of parts.
    pub(crate) fn shards_of(&self, language: &str) -> Vec<(u64, &Shard, usize)> {
        let shards = (0u64..).zip(&self.plan.shards).zip(&self.summaries);
        shards
            .filter(|(_, summary)| summary.counts.contains_key(language))
            .map(|((place, shard), summary)| (place, shard, summary.num_files))
            .collect()
    }
}

/// What is known of the items `keys` of `stage`; [`Error::Missing`] where one of them is not `done`.
pub(super) fn all_done(
    run: &RunDir,
    stage: Stage,
    keys: &[String],
    done: &str,
) -> Result<Vec<Summary>> {
    let summaries = run.summaries(stage, keys)?;
    let left = summaries.iter().filter(|summary| summary.is_none()).count();
    if let Some(first) = summaries.iter().position(Option::is_none) {
        let (first, stage) = (&keys[first], stage.name());
        let reason =
            format!("{left} shard(s) are not {done} yet, {first} for one; run `polysift {stage}`");
        return Err(Error::missing(run.root(), reason));
    }
    Ok(summaries.into_iter().flatten().collect())
}
