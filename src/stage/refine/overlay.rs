//! The scores of a language with those of the rounds so far in their place.

use std::collections::BTreeMap;

use super::Job;
use crate::error::{Error, Result};
use crate::parts::{ScoreRows, read_scores};
use crate::run::{RunDir, Shard, Stage};
use crate::selection::{Corpus, HeadColumn, ScanRequest, ScoreBatch};
use crate::stage::corpus::{ScoreFiles, ordinal, read_part, weight_of};

/// What f32 gives a document, one entry per head of the run.
#[derive(Debug, Clone, Default)]
pub(super) struct Exact {
    pub(super) logits: Vec<Option<f32>>,
    pub(super) scores: Vec<Option<f32>>,
}

/// The documents of a shard that the first rounds scored, by row.
pub(super) type Overlay = BTreeMap<u64, Exact>;

/// The documents of `shard` that the first `rounds` rounds scored.
pub(super) fn overlay(job: &Job<'_>, rounds: usize, shard: &Shard) -> Result<Overlay> {
    let run = job.context.run;
    let mut overlay = Overlay::new();
    for round in 0..rounds {
        if run.shard_marker(Stage::Refine, &RunDir::round_shard_key(round, shard))?.is_none() {
            continue;
        }
        for (index, name) in job.names.iter().enumerate() {
            let path = run.round_part(round, name, shard);
            let part = read_scores(&path)?;
            for ((row, logit), score) in part.rows.iter().zip(part.logits).zip(part.scores) {
                let exact = overlay.entry(*row).or_default();
                if exact.logits.len() != index {
                    return Err(Error::corrupt(&path, "holds other rows than the other heads"));
                }
                exact.logits.push(logit);
                exact.scores.push(score);
            }
        }
    }
    Ok(overlay)
}

/// Calls `visit` with every part of the scores of `shard`, one entry per head of the run.
pub(super) fn for_each_part(
    job: &Job<'_>,
    shard: &Shard,
    mut visit: impl FnMut(&[ScoreRows]) -> Result<()>,
) -> Result<()> {
    for index in 0..job.context.run.num_parts(shard)? {
        job.context.stop.check()?;
        visit(&read_part(job.context, ScoreFiles::Scored, &job.names, shard, index)?)?;
    }
    Ok(())
}

/// A language's scores with those of the first `rounds` rounds in their place.
pub(super) struct MixedCorpus<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) language: &'a str,
    pub(super) rounds: usize,
}

impl Corpus for MixedCorpus<'_> {
    fn num_shards(&self) -> usize {
        self.job.plan.shards.len()
    }

    fn scan(
        &self,
        place: usize,
        _request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let shard = &self.job.plan.shards[place];
        let embedded = self.job.context.run.shard_marker(Stage::Embed, &shard.name)?;
        if !embedded.is_some_and(|marker| marker.counts.contains_key(self.language)) {
            return Ok(());
        }
        let overlay = overlay(self.job, self.rounds, shard)?;
        let weight = self.job.context.config.selection.weight;
        let mut columns = vec![Column::default(); self.job.names.len()];
        for_each_part(self.job, shard, |heads| {
            let Some(first) = heads.first() else { return Ok(()) };
            columns.iter_mut().for_each(Column::clear);
            let (mut ids, mut ordinals, mut weights) = (Vec::new(), Vec::new(), Vec::new());
            for (at, row) in first.rows.iter().enumerate() {
                if first.languages[at] != self.language {
                    continue;
                }
                ids.push(first.ids[at].as_str());
                ordinals.push(ordinal(place as u64, *row));
                let num_tokens = first.num_tokens.as_ref().map(|counts| counts[at]);
                weights.push(weight_of(weight, first.num_bytes[at], num_tokens)?);
                let exact = overlay.get(row);
                for (head, (column, part)) in columns.iter_mut().zip(heads).enumerate() {
                    column.push(match exact {
                        Some(exact) => exact.logits[head].zip(exact.scores[head]),
                        None => part.logits[at].zip(part.scores[at]),
                    });
                }
            }
            let heads: Vec<HeadColumn<'_>> = columns.iter().map(Column::view).collect();
            let (len, ids, ordinals) = (ids.len(), &ids, &ordinals);
            visit(&ScoreBatch { len, ids, ordinals, weights: Some(&weights), heads: &heads })
        })
    }
}

/// Logit and score of some rows by one head.
#[derive(Debug, Clone, Default)]
struct Column {
    logits: Vec<f32>,
    scores: Vec<f32>,
    present: Vec<bool>,
}

impl Column {
    fn clear(&mut self) {
        self.logits.clear();
        self.scores.clear();
        self.present.clear();
    }

    fn push(&mut self, scored: Option<(f32, f32)>) {
        let (logit, score) = scored.unwrap_or((f32::NAN, f32::NAN));
        self.logits.push(logit);
        self.scores.push(score);
        self.present.push(scored.is_some());
    }

    fn view(&self) -> HeadColumn<'_> {
        let Self { logits, scores, present } = self;
        HeadColumn { logits, scores, present: Some(present) }
    }
}
