//! A run with complete embeddings, from which every stage after the embed stage starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::work::score_keys;
use polysift_base::error::{Error, Result};
use polysift_runs::run::{Plan, RunDir, Shard, Stage, Summary};

/// Number of bits of an ordinal that hold the row within a shard.
const ROW_BITS: u32 = 40;
/// Maximum documents in memory of a group of languages.
const GROUP_DOCUMENTS: u64 = 1 << 22;

/// Returns the ordinal of a row: its position in the whole corpus, in plan order.
pub fn ordinal(shard: u64, row: u64) -> u64 {
    (shard << ROW_BITS) | row
}

/// Splits an [`ordinal`] into the index of the shard in the plan and the row.
pub fn place_of(ordinal: u64) -> (u64, u64) {
    (ordinal >> ROW_BITS, ordinal & ((1 << ROW_BITS) - 1))
}

/// A run with complete embeddings: its plan and a summary of each embedded shard.
pub struct Embedded {
    /// The plan of the run.
    pub plan: Plan,
    /// By shard of the plan.
    pub summaries: Vec<Summary>,
}

impl Embedded {
    /// Reads the plan and the summaries; [`Error::Missing`] if a shard is not embedded yet.
    pub fn of(run: &RunDir) -> Result<Self> {
        let plan = run.plan()?;
        let summaries = require_done(run, Stage::Embed, &plan.names(), "embedded")?;
        Ok(Self { plan, summaries })
    }

    /// Reads a run that all of `heads` have scored; [`Error::Missing`] if scores of a shard lack,
    /// or if the score stage has not run at all: without heads it writes no scores.
    pub fn scored<S: Display>(run: &RunDir, heads: impl IntoIterator<Item = S>) -> Result<Self> {
        let embedded = Self::of(run)?;
        require_done(run, Stage::Score, &score_keys(&embedded.plan, heads), "scored")?;
        if run.frozen_settings(Stage::Score)?.is_none() {
            let reason = "the score stage has not run yet; run `polysift score`";
            return Err(Error::missing(run.root(), reason));
        }
        Ok(embedded)
    }

    /// Returns the languages that have documents.
    pub fn languages(&self) -> BTreeSet<String> {
        self.summaries.iter().flat_map(|summary| summary.counts.keys().cloned()).collect()
    }

    /// Returns shards with documents of sorted `languages`: index in the plan, shard, number of
    /// parts.
    pub fn shards_with(&self, languages: &[&str]) -> Vec<(u64, &Shard, usize)> {
        let shards = (0u64..).zip(&self.plan.shards).zip(&self.summaries);
        // Many languages are looked up by a shard's few, or the other way round.
        let has_one = |counts: &BTreeMap<String, u64>| {
            if counts.len() < languages.len() {
                counts.keys().any(|code| languages.binary_search(&code.as_str()).is_ok())
            } else {
                languages.iter().any(|code| counts.contains_key(*code))
            }
        };
        shards
            .filter(|(_, summary)| has_one(&summary.counts))
            .map(|((place, shard), summary)| (place, shard, summary.num_files))
            .collect()
    }

    /// As [`Embedded::shards_with`], of the shards that have several languages.
    pub fn mixed_shards_with(&self, languages: &[&str]) -> Vec<(u64, &Shard, usize)> {
        let mut shards = self.shards_with(languages);
        shards.retain(|(place, ..)| self.summaries[*place as usize].counts.len() > 1);
        shards
    }

    /// Returns the number of documents of each language.
    pub fn num_documents(&self) -> BTreeMap<&str, u64> {
        let mut documents: BTreeMap<&str, u64> = BTreeMap::new();
        for (language, count) in self.summaries.iter().flat_map(|summary| &summary.counts) {
            *documents.entry(language).or_default() += count;
        }
        documents
    }

    /// Groups those `languages` that have documents so that one pass can read a group, of which up
    /// to `most` documents of each language stay in memory, and about four million of all.
    pub fn language_groups(&self, languages: &BTreeSet<String>, most: u64) -> Vec<Vec<&str>> {
        let counts = self.num_documents().into_iter();
        let counts = counts.filter(|(language, _)| languages.contains(*language));
        grouped(counts.map(|(language, count)| (language, count.min(most))), GROUP_DOCUMENTS)
    }
}

/// Splits languages, given with their documents, into consecutive groups of up to `most` documents;
/// a language with more is a group of its own.
pub(crate) fn grouped<'l>(
    counts: impl Iterator<Item = (&'l str, u64)>,
    most: u64,
) -> Vec<Vec<&'l str>> {
    let (mut groups, mut sum): (Vec<Vec<&str>>, u64) = (Vec::new(), 0);
    for (language, count) in counts {
        sum += count;
        match groups.last_mut() {
            Some(group) if sum <= most => group.push(language),
            _ => {
                sum = count;
                groups.push(vec![language]);
            }
        }
    }
    groups
}

/// Returns the summaries of the `keys` of `stage`; [`Error::Missing`] if a unit is not `done`.
pub fn require_done(
    run: &RunDir,
    stage: Stage,
    keys: &[String],
    done: &str,
) -> Result<Vec<Summary>> {
    let summaries = run.summaries(stage, keys)?;
    let mut left = keys.iter().zip(&summaries).filter(|(_, summary)| summary.is_none());
    if let Some((first, _)) = left.next() {
        let (left, stage) = (1 + left.count(), stage.name());
        let reason = format!(
            "{left} unit(s) of work are not {done} yet, {first} for one; run `polysift {stage}`"
        );
        return Err(Error::missing(run.root(), reason));
    }
    Ok(summaries.into_iter().flatten().collect())
}
