//! One parallel pass over the corpus, and the two looks that every threshold takes.

use rayon::prelude::*;

use super::block::{BlockRow, ScanRequest, ScoreBatch};
use super::counts::{Amount, Merge};
use super::report::{Boundary, Branches, Histogram, ThresholdReport, split_logits, survivors};
use super::stats::{Bins, Survey};
use super::{Corpus, Threshold};
use crate::error::{Error, Result};

/// Pieces a pass is threshold into per thread, so that uneven shards even out.
const PIECES_PER_THREAD: usize = 4;

/// The corpus as one threshold sees it.
pub(super) struct View<'a> {
    pub(super) corpus: &'a dyn Corpus,
    /// The thresholds before.
    pub(super) done: &'a [ThresholdReport],
    pub(super) threshold: &'a Threshold,
}

/// The rows of a block that have a score of the threshold's head which is not NaN, as columns.
pub(super) struct Candidates<'a> {
    pub(super) logits: &'a [f32],
    pub(super) scores: &'a [f32],
    /// `None`: each weighs 1.
    pub(super) weights: Option<&'a [u64]>,
    /// Where in the block each of them is; `None`: they are all rows of the block.
    rows: Option<&'a [usize]>,
    block: &'a ScoreBatch<'a>,
}

impl<'a> Candidates<'a> {
    pub(super) fn len(&self) -> usize {
        self.logits.len()
    }

    pub(super) fn weight(&self, i: usize) -> u64 {
        self.weights.map_or(1, |weights| weights[i])
    }

    /// All about the `i`-th of them.
    pub(super) fn row(&self, i: usize) -> BlockRow<'a> {
        BlockRow { block: self.block, at: self.rows.map_or(i, |rows| rows[i]) }
    }
}

/// The selections that keep the candidates of a block so far.
pub(super) enum Alive<'a> {
    /// There was no threshold yet: the one selection keeps them all.
    All,
    /// By candidate.
    Each(&'a [Branches]),
}

/// Rows that are no candidates.
#[derive(Clone, Copy, Default)]
struct Rejected {
    num_unscored: u64,
    num_nan: u64,
}

/// Memory of [`Gathered::candidates`].
#[derive(Default)]
struct Gathered {
    logits: Vec<f32>,
    scores: Vec<f32>,
    weights: Vec<u64>,
    rows: Vec<usize>,
}

impl Gathered {
    /// The candidates of `block`; they are copied together only where some rows are none.
    fn candidates<'a>(
        &'a mut self,
        threshold: &Threshold,
        block: &'a ScoreBatch<'a>,
    ) -> (Candidates<'a>, Rejected) {
        let column = threshold.head.and_then(|head| block.heads.get(head));
        let Some(column) = column.filter(|column| column.logits.len() == block.len) else {
            let rejected = Rejected { num_unscored: block.len as u64, num_nan: 0 };
            let (logits, scores) = (&[][..], &[][..]);
            return (Candidates { logits, scores, weights: None, rows: None, block }, rejected);
        };
        let (logits, scores, weights) = (column.logits, column.scores, block.weights);
        // Without an early end these are what compilers vectorise.
        let all_present =
            column.present.is_none_or(|present| present.iter().fold(true, |all, &is| all & is));
        let any_nan = |values: &[f32]| values.iter().fold(false, |any, v| any | v.is_nan());
        if all_present && !any_nan(logits) && !any_nan(scores) {
            let rejected = Rejected::default();
            return (Candidates { logits, scores, weights, rows: None, block }, rejected);
        }
        let mut rejected = Rejected::default();
        let Self { logits, scores, rows, .. } = self;
        logits.clear();
        scores.clear();
        rows.clear();
        self.weights.clear();
        for i in 0..block.len {
            let (logit, score) = (column.logits[i], column.scores[i]);
            if column.present.is_some_and(|present| !present[i]) {
                rejected.num_unscored += 1;
            } else if logit.is_nan() || score.is_nan() {
                rejected.num_nan += 1;
            } else {
                logits.push(logit);
                scores.push(score);
                rows.push(i);
            }
        }
        let weights = weights.map(|weights| {
            self.weights.extend(rows.iter().map(|&i| weights[i]));
            self.weights.as_slice()
        });
        (Candidates { logits, scores, weights, rows: Some(rows), block }, rejected)
    }
}

impl View<'_> {
    /// Number of selections that run side by side before the threshold.
    pub(super) fn num_branches(&self) -> usize {
        self.done.last().map_or(1, |report| report.outcomes.len())
    }

    /// The selections that keep a row so far.
    pub(super) fn alive(&self, row: BlockRow<'_>) -> Option<Branches> {
        survivors(self.done, &row).ok()
    }

    /// Visits the candidates with one of `logits` (by the threshold's head), with all that is known of them;
    /// other candidates may be among them.
    pub(super) fn ties<A: Merge + Send>(
        &self,
        logits: &[f32],
        new: impl Fn() -> A + Send + Sync,
        visit: impl Fn(&mut A, &Candidates<'_>) + Send + Sync,
    ) -> Result<A> {
        self.pass(Some(logits), new, |counted, _, candidates, _| visit(counted, candidates))
    }

    /// Visits the candidates of all rows, or those of `ties` alone, with their shard, and hears of the
    /// rows that are no candidates. Those of a shard come in row order, to one `A`.
    fn pass<A: Merge + Send>(
        &self,
        ties: Option<&[f32]>,
        new: impl Fn() -> A + Send + Sync,
        visit: impl Fn(&mut A, usize, &Candidates<'_>, Rejected) + Send + Sync,
    ) -> Result<A> {
        let mut heads: Vec<usize> = (self.done.iter().map(|report| &report.threshold))
            .chain([self.threshold])
            .filter_map(|threshold| threshold.head)
            .collect();
        heads.sort_unstable();
        heads.dedup();
        let own = ties.unwrap_or_default().iter();
        let own =
            self.threshold.head.into_iter().flat_map(|head| own.clone().map(move |&l| (head, l)));
        let ids = split_logits(self.done).into_iter().chain(own).collect();
        let wanted = ScanRequest { heads, ids, others: ties.is_none() };
        let num_shards = self.corpus.num_shards();
        let pieces = PIECES_PER_THREAD * rayon::current_num_threads();
        let merged = (0..num_shards)
            .into_par_iter()
            .with_min_len(num_shards.div_ceil(pieces).max(1))
            .try_fold(
                || (new(), Gathered::default()),
                |(mut counted, mut gathered), shard| {
                    self.corpus.scan(shard, &wanted, &mut |block| {
                        let (candidates, rejected) = gathered.candidates(self.threshold, block);
                        visit(&mut counted, shard, &candidates, rejected);
                        Ok(())
                    })?;
                    Ok::<_, Error>((counted, gathered))
                },
            )
            .map(|piece| piece.map(|(counted, _)| counted))
            .try_reduce_with(|mut counted, other| {
                counted.merge(other);
                Ok(counted)
            });
        merged.unwrap_or_else(|| Ok(new()))
    }

    /// First look: what the scores are like, and how many candidates each selection has. `each`
    /// is called for all candidates with the selections that keep them so far.
    pub(super) fn survey<A: Merge + Send>(
        &self,
        new: impl Fn() -> A + Send + Sync,
        each: impl Fn(&mut A, usize, &Candidates<'_>, &Alive<'_>) + Send + Sync,
    ) -> Result<(Survey, A)> {
        let num_branches = self.num_branches();
        self.pass(
            None,
            || (Survey::new(num_branches), new()),
            |(survey, counted), shard, candidates, rejected| {
                survey.num_unscored += rejected.num_unscored;
                survey.num_nan += rejected.num_nan;
                survey.add(candidates.scores, candidates.weights);
                if self.done.is_empty() {
                    survey.candidates[0].add_all(candidates.len(), candidates.weights);
                    each(counted, shard, candidates, &Alive::All);
                    return;
                }
                let alive: Vec<Branches> = (0..candidates.len())
                    .map(|i| self.alive(candidates.row(i)).unwrap_or_default())
                    .collect();
                for (i, alive) in alive.iter().enumerate() {
                    for (branch, amount) in survey.candidates.iter_mut().enumerate() {
                        if alive.has(branch) {
                            amount.add(candidates.weight(i));
                        }
                    }
                }
                each(counted, shard, candidates, &Alive::Each(&alive));
            },
        )
    }

    /// Second look: the histogram, and what `each` counts of the candidates.
    pub(super) fn histogram<A: Merge + Send>(
        &self,
        survey: &Survey,
        new: impl Fn() -> A + Send + Sync,
        each: impl Fn(&mut A, &Candidates<'_>) + Send + Sync,
    ) -> Result<(Option<Histogram>, A)> {
        let range = survey.range();
        let (low, high) = match range {
            Some((min, max, _)) if min < 0.0 || max > 1.0 => (f64::from(min), f64::from(max)),
            _ => (0.0, 1.0),
        };
        let (bins, counted) = self.pass(
            None,
            || (Bins::new(low, high), new()),
            |(bins, counted), _, candidates, _| {
                bins.add(candidates.scores);
                each(counted, candidates);
            },
        )?;
        let histogram = range.map(|(min, max, mean)| Histogram {
            min,
            max,
            mean,
            low,
            high,
            counts: bins.counts.to_vec(),
        });
        Ok((histogram, counted))
    }

    /// All scored documents of the language.
    pub(super) fn scored(&self, survey: &Survey) -> Result<Amount> {
        survey.scored().ok_or_else(|| {
            let head = &self.threshold.head_name;
            Error::config(
                "selection.weight",
                format!("the documents scored by head `{head}` weigh 2^64 or more"),
            )
        })
    }

    /// Puts the report together; `boundaries` are in the order of parents, then of rates.
    pub(super) fn report(
        &self,
        survey: &Survey,
        scores: Option<Histogram>,
        boundaries: Vec<Boundary>,
    ) -> Result<ThresholdReport> {
        let scored = self.scored(survey)?;
        let before = self.done.last().map_or(&[][..], |report| &report.outcomes);
        let per_parent = boundaries.len() / self.num_branches();
        let outcomes = (boundaries.into_iter().enumerate())
            .map(|(i, boundary)| {
                boundary.into_outcome(self.threshold, i % per_parent, before, scored)
            })
            .collect();
        Ok(ThresholdReport {
            threshold: self.threshold.clone(),
            scored,
            num_unscored: survey.num_unscored,
            num_nan: survey.num_nan,
            scores,
            outcomes,
        })
    }
}
