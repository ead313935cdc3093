//! Computes thresholds on the score: fixed ones, and those of FineWeb2-HQ's filters, which are
//! quantiles of the first scores of each file.
//!
//! The sample has the first floor(1,000,000 / F) scored rows, at least one, of each of the F input
//! files, regardless of shards. The threshold is the quantile of these scores at 1 − rate (or at
//! rate, see [`quantile_bound`]), interpolated linearly and bit by bit as in numpy. Scores strictly
//! above it are kept (`mlp.py`, `cs.py`), or strictly below it for heads whose low scores are good
//! (`toxic_filter.py`). Rates count documents, whatever the weight. As in the reference, every
//! threshold samples all scored documents, not the survivors of earlier ones.
//!
//! One deviation: NaN scores are left out. In the reference one NaN silently drops every document.

use std::collections::{BTreeMap, HashSet};

use super::batch::Corpus;
use super::counts::{Amount, Merge};
use super::plan::{Threshold, ThresholdKind};
use super::rank::RankKey;
use super::report::{Bound, ThresholdReport};
use super::scan::View;
use polysift_base::error::{Error, Result};
use polysift_config::{Keep, Rate};

/// Number of rows sampled over all files (`mlp.py`).
const SAMPLE_ROWS: usize = 1_000_000;

/// Computes a fixed threshold, or the quantile at each rate, and counts what it keeps.
pub(super) fn by_score(view: &View<'_>) -> Result<ThresholdReport> {
    let threshold = view.threshold;
    let limit = match threshold.kind {
        ThresholdKind::Fixed(_) => 0,
        _ => sampled_rows_per_file(view.corpus),
    };
    let new = || {
        let sample = QuantileSample { limit, by_file: BTreeMap::new() };
        (vec![Amount::default(); view.num_before()], sample)
    };
    let (survey, (candidates, sample)) = view.survey(new, |(amounts, sample), candidates| {
        sample.add(candidates.file, candidates.scores);
        candidates.for_each(|selection, _, weight| amounts[selection].add(weight));
    })?;
    let mut bounds = match &threshold.kind {
        ThresholdKind::Fixed(score) => vec![Bound::fixed(threshold.keep, *score)],
        _ => sample.bounds(threshold)?,
    };
    let parents = view.parents();
    bounds.resize(parents.len(), bounds[0]);
    let (scores, kept) = view.histogram(
        &survey,
        || vec![Amount::default(); bounds.len()],
        |kept, candidates| {
            for (i, &score) in candidates.scores.iter().enumerate() {
                let Some(alive) = candidates.alive(i) else { continue };
                let rank = RankKey::of_logit(candidates.logits[i], threshold.keep);
                for (kept, (bound, parent)) in kept.iter_mut().zip(bounds.iter().zip(&parents)) {
                    if alive >> parent & 1 == 1 && bound.keeps(rank, score, &candidates.row(i)) {
                        kept.add(candidates.weight(i));
                    }
                }
            }
        },
    )?;
    let found = bounds.iter().zip(kept).map(|(bound, kept)| (*bound, None, kept));
    Ok(view.report(&survey, scores, &candidates, found))
}

/// Returns how many scored rows at the beginning of each file are sampled.
fn sampled_rows_per_file(corpus: &dyn Corpus) -> usize {
    let files: HashSet<usize> = (0..corpus.num_shards()).map(|shard| corpus.file(shard)).collect();
    (SAMPLE_ROWS / files.len().max(1)).max(1)
}

/// Scores from the beginnings of files, sampled from consecutive shards.
#[derive(Debug)]
struct QuantileSample {
    limit: usize,
    by_file: BTreeMap<usize, Vec<f32>>,
}

impl QuantileSample {
    /// Adds `scores` until the sample of `file` is full.
    fn add(&mut self, file: usize, scores: &[f32]) {
        let taken = self.by_file.entry(file).or_default();
        taken.extend_from_slice(&scores[..scores.len().min(self.limit - taken.len())]);
    }

    /// Returns the bound of `threshold` at each of its rates; without a sample, nothing is kept.
    fn bounds(self, threshold: &Threshold) -> Result<Vec<Bound>> {
        let mut scores: Vec<f32> = self.by_file.into_values().flatten().collect();
        if scores.is_empty() {
            return Ok(vec![Bound::Nothing; threshold.rates().len()]);
        }
        scores.sort_unstable_by(f32::total_cmp);
        threshold.rates().iter().map(|rate| quantile_bound(&scores, threshold, *rate)).collect()
    }
}

/// Returns the bound at the quantile of the ascending `scores` for `rate`; [`Error::Config`] if
/// that quantile is not finite.
fn quantile_bound(scores: &[f32], threshold: &Threshold, rate: Rate) -> Result<Bound> {
    // `q` is the share of the scores, counted from the lowest, that lies below the threshold.
    let is_removal = matches!(threshold.kind, ThresholdKind::Remove(_));
    let from_top = is_removal == (threshold.keep == Keep::Below);
    let q = if from_top { 1.0 - rate.as_f64() } else { rate.as_f64() };
    let score = quantile(scores, q);
    let score = if threshold.output.is_probability() { f64::from(score as f32) } else { score };
    if !score.is_finite() {
        let reason = format!(
            "`published`: the quantile {q} of the scores of head `{}` is {score}, \
             infinite scores are in the sample",
            threshold.head_name
        );
        return Err(Error::config("selection.mode", reason));
    }
    Ok(Bound::strictly(threshold.keep, score))
}

impl Merge for QuantileSample {
    /// Adds the sample of the shards that follow.
    fn merge(&mut self, other: Self) {
        other.by_file.into_iter().for_each(|(file, scores)| self.add(file, &scores));
    }
}

/// Computes `numpy.quantile(sorted, q)` of f32 values taken as f64, bit by bit. `sorted` is
/// ascending, not empty and without NaN; `q` is in [0, 1].
fn quantile(sorted: &[f32], q: f64) -> f64 {
    let last = sorted.len() - 1;
    let place = last as f64 * q;
    let index = (place as usize).min(last);
    let (a, b) = (f64::from(sorted[index]), f64::from(sorted[(index + 1).min(last)]));
    let t = place - index as f64;
    // Like numpy's `_lerp`, this starts from the nearer end.
    if t >= 0.5 { b - (b - a) * (1.0 - t) } else { a + (b - a) * t }
}
