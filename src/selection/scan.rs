//! Scans the corpus in parallel as a threshold sees it: the documents with a score by its head, and
//! the selections of earlier thresholds that keep them.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::batch::{BatchRow, Corpus, ScanRequest, ScoreBatch};
use super::counts::{Amount, Histogram, Merge, Survey};
use super::plan::{Threshold, ThresholdKind};
use super::report::{Bound, Outcome, ThresholdReport, parent, split_logits, survivors};
use polysift_base::error::{Error, Result};

/// Number of shard groups per thread, which evens out shards of different sizes.
const GROUPS_PER_THREAD: usize = 4;

/// The corpus as one threshold sees it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) corpus: &'a dyn Corpus,
    pub(super) done: &'a [ThresholdReport],
    pub(super) threshold: &'a Threshold,
    /// Shards 0, `every`, 2 `every`... are scanned: all for 1. An incomplete last group has none.
    pub(super) every: usize,
}

/// Columns of the rows of a batch whose score by the threshold's head exists and is not NaN.
pub(super) struct Candidates<'a> {
    pub(super) logits: &'a [f32],
    pub(super) scores: &'a [f32],
    /// `None` if each weighs 1.
    pub(super) weights: Option<&'a [u64]>,
    /// The candidates' file, see [`Corpus::file`].
    pub(super) file: usize,
    /// Index of each candidate in the batch; `None` if all rows are candidates.
    rows: Option<&'a [usize]>,
    batch: &'a ScoreBatch<'a>,
    done: &'a [ThresholdReport],
    num_unscored: u64,
    num_nan: u64,
}

impl<'a> Candidates<'a> {
    /// Returns the weight of candidate `i`.
    pub(super) fn weight(&self, i: usize) -> u64 {
        self.weights.map_or(1, |weights| weights[i])
    }

    pub(super) fn row(&self, i: usize) -> BatchRow<'a> {
        BatchRow { batch: self.batch, at: self.rows.map_or(i, |rows| rows[i]) }
    }

    /// Returns a bit per selection so far that keeps candidate `i`, or `None` if none does.
    pub(super) fn alive(&self, i: usize) -> Option<u64> {
        survivors(self.done, &self.row(i), |_, _, _| {}).ok()
    }

    /// Calls `each` with every selection so far of each candidate, and its logit and weight.
    pub(super) fn for_each(&self, mut each: impl FnMut(usize, f32, u64)) {
        if self.done.is_empty() && self.weights.is_none() {
            return self.logits.iter().for_each(|&logit| each(0, logit, 1));
        }
        for (i, &logit) in self.logits.iter().enumerate() {
            let alive = self.alive(i).unwrap_or_default();
            for selection in 0..(u64::BITS - alive.leading_zeros()) as usize {
                if alive >> selection & 1 == 1 {
                    each(selection, logit, self.weight(i));
                }
            }
        }
    }
}

/// Memory for [`Gathered::candidates`].
#[derive(Default)]
struct Gathered {
    logits: Vec<f32>,
    scores: Vec<f32>,
    weights: Vec<u64>,
    rows: Vec<usize>,
}

impl Gathered {
    /// Returns the candidates of `batch`, copied only if some rows are not candidates.
    fn candidates<'a>(
        &'a mut self,
        view: &View<'a>,
        file: usize,
        batch: &'a ScoreBatch<'a>,
    ) -> Candidates<'a> {
        let mut found = Candidates {
            logits: &[],
            scores: &[],
            weights: None,
            file,
            rows: None,
            batch,
            done: view.done,
            num_unscored: 0,
            num_nan: 0,
        };
        let column = view.threshold.head.and_then(|head| batch.heads.get(head));
        let Some(column) = column.filter(|column| column.logits.len() == batch.len) else {
            return Candidates { num_unscored: batch.len as u64, ..found };
        };
        let (logits, scores) = (column.logits, column.scores);
        let removes = matches!(view.threshold.kind, ThresholdKind::Remove(_));
        let weights = batch.removal_weights.filter(|_| removes).or(batch.weights);
        // Folds without an early end are vectorised by the compiler.
        let all_present =
            column.present.is_none_or(|present| present.iter().fold(true, |all, &is| all & is));
        let any_nan = |values: &[f32]| values.iter().fold(false, |any, v| any | v.is_nan());
        if all_present && !any_nan(logits) && !any_nan(scores) {
            return Candidates { logits, scores, weights, ..found };
        }
        let Self { logits, scores, weights: gathered, rows } = self;
        logits.clear();
        scores.clear();
        gathered.clear();
        rows.clear();
        for i in 0..batch.len {
            let (logit, score) = (column.logits[i], column.scores[i]);
            if column.present.is_some_and(|present| !present[i]) {
                found.num_unscored += 1;
            } else if logit.is_nan() || score.is_nan() {
                found.num_nan += 1;
            } else {
                logits.push(logit);
                scores.push(score);
                rows.push(i);
            }
        }
        let weights = weights.map(|weights| {
            gathered.extend(rows.iter().map(|&i| weights[i]));
            gathered.as_slice()
        });
        Candidates { logits, scores, weights, rows: Some(rows), ..found }
    }
}

impl View<'_> {
    /// Visits the candidates among the rows of the scanned shards. `ties` restricts them to
    /// candidates with one of these logits (others may be among them); only these have ids then.
    /// Candidates come in the order of shards and rows, and each `A` counts consecutive shards,
    /// which are merged in order.
    pub(super) fn pass<A: Merge + Send>(
        &self,
        ties: Option<&[f32]>,
        new: impl Fn() -> A + Send + Sync,
        visit: impl Fn(&mut A, &Candidates<'_>) + Send + Sync,
    ) -> Result<A> {
        let thresholds = self.done.iter().map(|report| &report.threshold).chain([self.threshold]);
        let heads: BTreeSet<usize> = thresholds.filter_map(|threshold| threshold.head).collect();
        let mut ids = split_logits(self.done);
        if let Some(head) = self.threshold.head {
            ids.extend(ties.unwrap_or_default().iter().map(|&logit| (head, logit)));
        }
        let heads = heads.into_iter().collect();
        let request = ScanRequest { heads, ids, others: ties.is_none() };
        let num_shards = self.corpus.num_shards() / self.every;
        let groups = GROUPS_PER_THREAD * rayon::current_num_threads();
        let merged = (0..num_shards)
            .into_par_iter()
            .with_min_len(num_shards.div_ceil(groups).max(1))
            .try_fold(
                || (new(), Gathered::default()),
                |(mut counted, mut gathered), shard| {
                    let shard = shard * self.every;
                    let file = self.corpus.file(shard);
                    self.corpus.scan(shard, &request, &mut |batch| {
                        visit(&mut counted, &gathered.candidates(self, file, batch));
                        Ok(())
                    })?;
                    Ok::<_, Error>((counted, gathered))
                },
            )
            .map(|group| group.map(|(counted, _)| counted))
            .try_reduce_with(|mut counted, other| {
                counted.merge(other);
                Ok(counted)
            });
        merged.unwrap_or_else(|| Ok(new()))
    }

    /// Runs the first scan: surveys the scores, and counts candidates with `visit`.
    pub(super) fn survey<A: Merge + Send>(
        &self,
        new: impl Fn() -> A + Send + Sync,
        visit: impl Fn(&mut A, &Candidates<'_>) + Send + Sync,
    ) -> Result<(Survey, A)> {
        let start = || (Survey::default(), new());
        self.pass(None, start, |(survey, counted), candidates| {
            survey.num_unscored += candidates.num_unscored;
            survey.num_nan += candidates.num_nan;
            survey.dropped.merge(candidates.batch.dropped);
            survey.add(candidates.scores, candidates.weights);
            visit(counted, candidates);
        })
    }

    /// Runs the second scan: builds the histogram, and counts candidates with `visit`.
    pub(super) fn histogram<A: Merge + Send>(
        &self,
        survey: &Survey,
        new: impl Fn() -> A + Send + Sync,
        visit: impl Fn(&mut A, &Candidates<'_>) + Send + Sync,
    ) -> Result<(Option<Histogram>, A)> {
        let range = survey.range();
        let (min, max) = range.unwrap_or((0.0, 1.0));
        let start = || (Histogram::new(min, max), new());
        let (histogram, counted) = self.pass(None, start, |(histogram, counted), candidates| {
            histogram.add(candidates.scores);
            visit(counted, candidates);
        })?;
        Ok((range.map(|_| histogram), counted))
    }

    /// Returns the number of selections so far: one before the first threshold.
    pub(super) fn num_before(&self) -> usize {
        self.done.last().map_or(1, |report| report.outcomes.len())
    }

    /// Returns, for each selection after this threshold, the earlier selection that it continues.
    pub(super) fn parents(&self) -> Vec<usize> {
        let num_before = self.num_before();
        let num_after = num_before.max(self.threshold.rates().len());
        (0..num_after).map(|i| parent(i, num_before)).collect()
    }

    /// Builds the report from `candidates`, one amount per earlier selection, and from the bound,
    /// the score there and the kept amount of each selection after this threshold.
    pub(super) fn report(
        &self,
        survey: &Survey,
        scores: Option<Histogram>,
        candidates: &[Amount],
        found: impl IntoIterator<Item = (Bound, Option<f32>, Amount)>,
    ) -> ThresholdReport {
        let threshold = self.threshold;
        let all = survey.whole();
        let before = self.done.last().map_or(&[][..], |report| &report.outcomes);
        let outcome = |(i, (bound, score, kept)): (usize, (Bound, Option<f32>, Amount))| {
            let parent = parent(i, self.num_before());
            let candidates = candidates[parent];
            let mut retentions = before.get(parent).map_or(Vec::new(), |o| o.retentions.clone());
            if matches!(threshold.kind, ThresholdKind::Retain(_)) {
                retentions.extend(threshold.rate(i));
            }
            let (part, whole) = match threshold.kind {
                ThresholdKind::Retain(_) | ThresholdKind::Budget(_) => (kept, all),
                ThresholdKind::Remove(_) => (candidates.without(kept), candidates),
                ThresholdKind::Fixed(_) => (kept, candidates),
            };
            let realised_rate =
                if whole.weight == 0 { 0.0 } else { part.weight as f64 / whole.weight as f64 };
            let logit = bound.key().map(|key| key.logit(threshold.keep));
            let score = bound.score().or(score.map(f64::from));
            Outcome {
                retentions,
                candidates,
                kept,
                realised_rate,
                threshold_logit: logit.filter(|logit| logit.is_finite()),
                threshold_score: score.filter(|score| score.is_finite()),
                bound,
            }
        };
        ThresholdReport {
            threshold: threshold.clone(),
            scored: survey.scored,
            dropped: survey.dropped,
            num_unscored: survey.num_unscored,
            num_nan: survey.num_nan,
            scores,
            outcomes: found.into_iter().enumerate().map(outcome).collect(),
        }
    }
}
