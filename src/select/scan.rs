//! One parallel pass over the corpus, and the two looks that every cut takes.

use rayon::prelude::*;

use super::counts::{Amount, Merge};
use super::report::{Boundary, Branches, CutReport, Histogram, needs_ids, survivors};
use super::stats::{Bins, Survey};
use super::{Corpus, Cut, Row, Value};
use crate::error::{Error, Result};

/// Pieces a pass is cut into per thread, so that uneven shards even out.
const PIECES_PER_THREAD: usize = 4;

/// The corpus as one cut sees it.
pub(super) struct View<'a> {
    pub(super) corpus: &'a dyn Corpus,
    /// The cuts before.
    pub(super) done: &'a [CutReport],
    pub(super) cut: &'a Cut,
}

impl View<'_> {
    /// Number of selections that run side by side before the cut.
    pub(super) fn num_branches(&self) -> usize {
        self.done.last().map_or(1, |report| report.outcomes.len())
    }

    /// The selections that keep `row` so far.
    pub(super) fn alive(&self, row: &Row<'_>) -> Option<Branches> {
        survivors(self.done, row).ok()
    }

    /// Visits all rows, with their shard; the visits of a shard come in row order, to one `A`.
    pub(super) fn pass<A: Merge + Send>(
        &self,
        want_ids: bool,
        new: impl Fn() -> A + Send + Sync,
        visit: impl Fn(&mut A, usize, &Row<'_>) + Send + Sync,
    ) -> Result<A> {
        let want_ids = want_ids || needs_ids(self.done);
        let num_shards = self.corpus.num_shards();
        let pieces = PIECES_PER_THREAD * rayon::current_num_threads();
        let merged = (0..num_shards)
            .into_par_iter()
            .with_min_len(num_shards.div_ceil(pieces).max(1))
            .try_fold(&new, |mut counted, shard| {
                self.corpus.scan(shard, want_ids, &mut |row| {
                    visit(&mut counted, shard, row);
                    Ok(())
                })?;
                Ok::<A, Error>(counted)
            })
            .try_reduce_with(|mut counted, other| {
                counted.merge(other);
                Ok(counted)
            });
        merged.unwrap_or_else(|| Ok(new()))
    }

    /// First look: what the scores are like, and how many candidates each selection has. `each`
    /// is called for every scored row with the selections that keep it so far, if any does.
    pub(super) fn survey<A: Merge + Send>(
        &self,
        new: impl Fn() -> A + Send + Sync,
        each: impl Fn(&mut A, usize, &Scored<'_>, Option<Branches>) + Send + Sync,
    ) -> Result<(Survey, A)> {
        let num_branches = self.num_branches();
        self.pass(
            false,
            || (Survey::new(num_branches), new()),
            |(survey, counted), shard, row| match Value::of(self.cut, row) {
                Value::Scored { logit, score } => {
                    survey.add(row.weight, score);
                    let alive = self.alive(row);
                    for (branch, candidates) in survey.candidates.iter_mut().enumerate() {
                        if alive.is_some_and(|alive| alive.has(branch)) {
                            candidates.add(row.weight);
                        }
                    }
                    each(counted, shard, &Scored { row, logit, score }, alive);
                }
                Value::Unscored => survey.num_unscored += 1,
                Value::Nan => survey.num_nan += 1,
            },
        )
    }

    /// Second look: the histogram, and what `each` counts of every scored row.
    pub(super) fn histogram<A: Merge + Send>(
        &self,
        survey: &Survey,
        new: impl Fn() -> A + Send + Sync,
        each: impl Fn(&mut A, &Scored<'_>) + Send + Sync,
    ) -> Result<(Option<Histogram>, A)> {
        let range = survey.range();
        let (low, high) = match range {
            Some((min, max, _)) if min < 0.0 || max > 1.0 => (f64::from(min), f64::from(max)),
            _ => (0.0, 1.0),
        };
        let (bins, counted) = self.pass(
            false,
            || (Bins::new(low, high), new()),
            |(bins, counted), _, row| {
                if let Value::Scored { logit, score } = Value::of(self.cut, row) {
                    bins.add(score);
                    each(counted, &Scored { row, logit, score });
                }
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
            let head = &self.cut.head_name;
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
    ) -> Result<CutReport> {
        let scored = self.scored(survey)?;
        let before = self.done.last().map_or(&[][..], |report| &report.outcomes);
        let per_parent = boundaries.len() / self.num_branches();
        let outcomes = (boundaries.into_iter().enumerate())
            .map(|(i, boundary)| boundary.into_outcome(self.cut, i % per_parent, before, scored))
            .collect();
        Ok(CutReport {
            cut: self.cut.clone(),
            scored,
            num_unscored: survey.num_unscored,
            num_nan: survey.num_nan,
            scores,
            outcomes,
        })
    }
}

/// A row with a score of the cut's head.
pub(super) struct Scored<'a> {
    pub(super) row: &'a Row<'a>,
    pub(super) logit: f32,
    pub(super) score: f32,
}
