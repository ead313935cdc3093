//! Thresholds at a value of the score: fixed thresholds, and the quantiles of published mode.

use super::counts::Amount;
use super::quantile::{Sample, rows_per_shard};
use super::report::{Bound, Boundary, ThresholdReport};
use super::scan::View;
use super::{Corpus, RankKey, Threshold, ThresholdKind};
use crate::error::Result;

/// Makes a threshold on the score in each of the selections so far.
pub(super) fn threshold(
    corpus: &dyn Corpus,
    done: &[ThresholdReport],
    threshold: &Threshold,
) -> Result<ThresholdReport> {
    let view = View { corpus, done, threshold };
    let sampled_rows = match threshold.kind {
        ThresholdKind::Fixed(_) => 0,
        ThresholdKind::Retain(_) | ThresholdKind::Remove(_) => rows_per_shard(corpus.num_shards())?,
    };
    let (survey, sample) = view.survey(Sample::default, |sample, shard, candidates, _| {
        sample.add(shard, sampled_rows, candidates.scores);
    })?;
    let bounds = match &threshold.kind {
        ThresholdKind::Fixed(score) => vec![Bound::strictly(threshold.keep, *score)],
        ThresholdKind::Retain(rates) => sample.bounds(threshold, rates)?,
        ThresholdKind::Remove(rate) => sample.bounds(threshold, std::slice::from_ref(rate))?,
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
                let rank = RankKey::of_logit(logit, threshold.keep);
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
