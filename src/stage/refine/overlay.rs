//! The scores of a language with those of the rounds so far in their place.

use std::collections::BTreeMap;

use super::Job;
use crate::error::{Error, Result};
use crate::run::{RunDir, Shard, Stage};
use crate::select::{Corpus, Row};
use crate::stage::corpus::{ScoreFiles, ScoredCorpus, row_of};
use crate::store::read_scores;

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
                    return Err(Error::verify(&path, "holds other rows than the other heads"));
                }
                exact.logits.push(logit);
                exact.scores.push(score);
            }
        }
    }
    Ok(overlay)
}

/// A language's scores with those of the first `rounds` rounds in their place.
pub(super) struct MixedCorpus<'a> {
    scored: ScoredCorpus<'a>,
    job: &'a Job<'a>,
    rounds: usize,
}

impl<'a> MixedCorpus<'a> {
    pub(super) fn open(job: &'a Job<'a>, language: &'a str, rounds: usize) -> Result<Self> {
        let scored = ScoredCorpus::open(job.context, job.plan, language, ScoreFiles::Scored)?;
        Ok(Self { scored, job, rounds })
    }
}

impl Corpus for MixedCorpus<'_> {
    fn num_shards(&self) -> usize {
        self.scored.num_shards()
    }

    fn scan(
        &self,
        shard: usize,
        want_ids: bool,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let overlay = overlay(self.job, self.rounds, self.scored.shard(shard))?;
        self.scored.scan(shard, want_ids, &mut |row| match overlay.get(&row_of(row.ordinal)) {
            None => visit(row),
            Some(Exact { logits, scores }) => visit(&Row { logits, scores, ..*row }),
        })
    }
}
