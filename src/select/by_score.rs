//! Cuts at a value of the score: fixed thresholds, and the quantiles of reference mode.

use super::counts::Amount;
use super::reference::{Sample, rows_per_shard};
use super::report::{Bound, Boundary, CutReport};
use super::scan::View;
use super::{Corpus, Cut, CutKind, RankKey};
use crate::error::Result;

/// Makes a cut on the score in each of the selections so far.
pub(super) fn cut(corpus: &dyn Corpus, done: &[CutReport], cut: &Cut) -> Result<CutReport> {
    let view = View { corpus, done, cut };
    let sampled_rows = match cut.kind {
        CutKind::Threshold(_) => 0,
        CutKind::Retain(_) | CutKind::Remove(_) => rows_per_shard(corpus.num_shards())?,
    };
    let (survey, sample) = view.survey(Sample::default, |sample, shard, candidates, _| {
        sample.add(shard, sampled_rows, candidates.scores);
    })?;
    let bounds = match &cut.kind {
        CutKind::Threshold(threshold) => vec![Bound::strictly(cut.keep, *threshold)],
        CutKind::Retain(rates) => sample.bounds(cut, rates)?,
        CutKind::Remove(rate) => sample.bounds(cut, std::slice::from_ref(rate))?,
    };
    let num_outcomes = view.num_branches() * bounds.len();
    let (scores, kept) = view.histogram(
        &survey,
        || vec![Amount::default(); num_outcomes],
        |kept, candidates| {
            for (i, (&logit, &score)) in candidates.logits.iter().zip(candidates.scores).enumerate()
            {
                let row = candidates.row(i);
                let Some(alive) = view.alive(row) else {
                    continue;
                };
                let rank = RankKey::of_logit(logit, cut.keep);
                for (outcome, kept) in kept.iter_mut().enumerate() {
                    let (parent, nth) = (outcome / bounds.len(), outcome % bounds.len());
                    if alive.has(parent) && bounds[nth].keeps(rank, score, &row) {
                        kept.add(candidates.weight(i));
                    }
                }
            }
        },
    )?;
    let boundaries = (kept.into_iter().enumerate())
        .map(|(i, kept)| {
            let (parent, bound) = (i / bounds.len(), bounds[i % bounds.len()]);
            let candidates = survey.candidates[parent];
            Boundary { parent, candidates, kept, bound, threshold_score: bound.score() }
        })
        .collect();
    view.report(&survey, scores, boundaries)
}
