//! Estimates shares of selections of a run from labelled texts with known inclusion probabilities.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::Calls;
use polysift_base::error::{Error, Result};
use polysift_base::metrics::WeightedText;
use polysift_config::{HeadConfig, Keep, Mode, Rate};
use polysift_corpus::scan::ScoredCorpus;
use polysift_corpus::select::{scored_run, stored_selections};
use polysift_corpus::{Context, Embedded, RunRows, ScoreFiles};
use polysift_data::input::LabelledText;
use polysift_heads::head::{DocumentScore, HeadSpec};
use polysift_selection::{
    Decision, Outcome, ScoredDocument, Selection, Threshold, ThresholdKind, ThresholdReport, select,
};

/// Probabilities above this count as 1: they were rounded when they were written.
const CERTAIN: f64 = 1.0 - 1e-12;

/// Returns how `samples` were drawn: from a column of weights if `is_weighted`, else from their
/// inclusion probabilities; `None` if no sample has one, [`Error::Config`] if only some have. None
/// is selected or positive yet.
pub(super) fn weigh_texts(
    samples: &[LabelledText],
    is_weighted: bool,
) -> Result<Option<Vec<WeightedText>>> {
    let text = |weight, probability, copies| WeightedText {
        weight,
        probability,
        copies,
        is_selected: false,
        is_positive: false,
    };
    if is_weighted {
        let of_sample = |sample: &LabelledText| text(sample.weight.into(), 0.0, 1.0);
        return Ok(Some(samples.iter().map(of_sample).collect()));
    }
    let of_sample = |sample: &LabelledText| {
        // The reciprocal of this probability is the weight of all copies together.
        let (probability, copies) = (sample.inclusion_probability?, f64::from(sample.copies));
        let of_each = copies * probability;
        Some(text(1.0 / probability, if of_each > CERTAIN { 1.0 } else { of_each }, copies))
    };
    let drawn: Vec<WeightedText> = samples.iter().filter_map(of_sample).collect();
    match samples.len() - drawn.len() {
        0 => Ok(Some(drawn)),
        others if others == samples.len() => Ok(None),
        others => {
            let reason = format!(
                "{others} of {} texts have no inclusion probability; evaluate them alone, or name \
                 a column of weights (--weight-column)",
                samples.len()
            );
            Err(Error::config("--data", reason))
        }
    }
}

pub(super) struct EstimatedRun<'a> {
    embedded: Embedded,
    scores: ScoreFiles,
    /// Documents without scores.
    documents: RunRows<'a>,
}

impl<'a> EstimatedRun<'a> {
    /// Opens the run to evaluate `heads` on `texts`; the inner error says why that is impossible.
    pub(super) fn open(
        context: Context<'a>,
        heads: &BTreeMap<String, HeadConfig>,
        texts: &[LabelledText],
    ) -> Result<std::result::Result<Self, String>> {
        if !heads.keys().eq(context.config.heads.keys()) {
            return Ok(Err("it needs all heads of the run".to_owned()));
        }
        let columns: Vec<&str> = heads.values().filter_map(|head| head.score.as_deref()).collect();
        let is_missing = |column: &usize| texts.iter().all(|text| text.scores[*column].is_none());
        if let Some(column) = (0..columns.len()).find(is_missing) {
            return Ok(Err(format!("the texts have no column `{}`", columns[column])));
        }
        let opened = || {
            let (embedded, _) = scored_run(context)?;
            stored_selections(context.run, embedded.languages())?;
            let scores = ScoreFiles::selected(context)?;
            let documents = RunRows::open(context, None, embedded.languages())?;
            Ok(Self { embedded, scores, documents })
        };
        match opened() {
            Ok(run) => Ok(Ok(run)),
            Err(Error::Mismatch { .. }) => Ok(Err("the run has other heads".to_owned())),
            Err(error @ Error::Missing { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Returns which `texts` are selected by the run, and by the head `name` alone at each of
    /// `rates`. Texts that a cascade dropped never are, nor are those without a score or with NaN.
    pub(super) fn call_selected(
        &self,
        language: &str,
        (name, spec): (&str, &HeadSpec),
        (selection, rates): (Option<&Selection>, &[Rate]),
        texts: &ScoredTexts<'_>,
    ) -> Result<Vec<Calls>> {
        let mut calls = Vec::new();
        if let Some(selection) = selection {
            calls.extend(match spec.keep {
                Keep::Above => kept_by_run(selection, name, texts),
                Keep::Below => removed_by_head(selection, name, texts),
            });
        }
        let (context, embedded) = (self.documents.context, &self.embedded);
        let rates: BTreeSet<Rate> = rates.iter().copied().collect();
        if !rates.is_empty() {
            let threshold = Threshold {
                head: context.config.heads.keys().position(|head| head == name),
                head_name: name.to_owned(),
                // The class with high scores is positive, whatever the head keeps.
                keep: Keep::Above,
                kind: ThresholdKind::Retain(rates.iter().copied().collect()),
                output: spec.output,
            };
            let corpus = ScoredCorpus::open(context, embedded, language, self.scores, None, None)?;
            let ladder = select(&corpus, &[threshold], Mode::Default)?;
            let smallest = texts.smallest_rates(&ladder, 0);
            for rate in rates.into_iter().rev() {
                let outcome = |outcome: &&Outcome| outcome.retentions.last() == Some(&rate);
                let outcome = ladder.outcomes().iter().find(outcome);
                let threshold = outcome.and_then(|outcome| outcome.threshold_score);
                calls.push(Calls::new(format!("rate {rate}"), threshold, kept_at(rate, &smallest)));
            }
        }
        // The run has no score for these documents, whatever their score is here.
        for calls in calls.iter_mut().filter(|_| !texts.dropped.is_empty()) {
            for (positive, id) in calls.positive.iter_mut().zip(&texts.ids) {
                *positive &= !texts.dropped.contains(*id);
            }
        }
        Ok(calls)
    }

    /// Returns the ids in `ids` that belong to documents of `language` dropped by a cascade.
    pub(super) fn find_dropped(&self, language: &str, ids: &[&str]) -> Result<BTreeSet<String>> {
        let ids: BTreeSet<&str> = ids.iter().copied().collect();
        let mut dropped = BTreeSet::new();
        for (place, shard, _) in self.embedded.shards_with(&[language]) {
            let mut shard = self.documents.shard(place, shard)?;
            if shard.left_out.dropped.is_empty() {
                continue;
            }
            shard.for_each(|row| {
                if row.is_dropped && ids.contains(row.info.id) {
                    dropped.insert(row.info.id.to_owned());
                }
                Ok(())
            })?;
        }
        Ok(dropped)
    }
}

/// Texts of a language with their scores by the run's heads.
pub(super) struct ScoredTexts<'a> {
    pub(super) ids: Vec<&'a str>,
    /// By text, a score for each head of the run.
    pub(super) scores: Vec<Vec<Option<DocumentScore>>>,
    /// Ids of the texts that a cascade dropped.
    pub(super) dropped: BTreeSet<String>,
}

impl ScoredTexts<'_> {
    /// Applies `take` to the decision of `selection` on each text. The ordinals of texts only break
    /// ties of equal ids.
    fn map_decisions<T>(&self, selection: &Selection, take: impl Fn(Decision<'_>) -> T) -> Vec<T> {
        let texts = self.ids.iter().zip(&self.scores);
        let decide = |(&id, scores): (&&str, &Vec<_>)| {
            take(selection.decide(&ScoredDocument { id, ordinal: 0, scores }))
        };
        texts.map(decide).collect()
    }

    /// Returns the smallest rate with which the retention at `place` keeps each text, if one does.
    fn smallest_rates(&self, selection: &Selection, place: usize) -> Vec<Option<Rate>> {
        self.map_decisions(selection, |decision| match decision {
            Decision::Kept { retentions } => retentions.get(place).copied(),
            Decision::Removed { .. } => None,
        })
    }
}

/// Returns which texts are kept at `rate`, by the smallest rates that keep them.
fn kept_at(rate: Rate, smallest: &[Option<Rate>]) -> Vec<bool> {
    smallest.iter().map(|own| own.is_some_and(|own| own <= rate)).collect()
}

/// Applies `selection` at each rate of the head `name`, or whole if that has no rates; empty if the
/// head has no threshold.
fn kept_by_run(selection: &Selection, name: &str, texts: &ScoredTexts<'_>) -> Vec<Calls> {
    let mut own = selection.thresholds.iter().filter(|report| report.threshold.head_name == name);
    let Some(place) = selection.retention_heads().position(|head| head == name) else {
        let is_kept = |decision: Decision<'_>| matches!(decision, Decision::Kept { .. });
        let positive = || texts.map_decisions(selection, is_kept);
        let whole = own.next().map(|_| Calls::new("run: selection".to_owned(), None, positive()));
        return whole.into_iter().collect();
    };
    let smallest = texts.smallest_rates(selection, place);
    let retention = own.find(|report| matches!(report.threshold.kind, ThresholdKind::Retain(_)));
    let outcomes = retention.map_or(&[][..], |report| &report.outcomes);
    let call = |outcome: &Outcome| {
        let rate = *outcome.retentions.get(place)?;
        let rule = format!("run: selection at {rate}");
        Some(Calls::new(rule, outcome.threshold_score, kept_at(rate, &smallest)))
    };
    let mut calls: Vec<Calls> = outcomes.iter().filter_map(call).collect();
    calls.dedup_by(|a, b| a.rule == b.rule);
    calls
}

/// Returns the texts that each threshold of the head `name`, which keeps low scores, removes.
fn removed_by_head(selection: &Selection, name: &str, texts: &ScoredTexts<'_>) -> Vec<Calls> {
    let own = selection.thresholds.iter().filter(|report| report.threshold.head_name == name);
    let call = |report: &ThresholdReport| {
        let rule = match &report.threshold.kind {
            ThresholdKind::Remove(rate) => format!("run: removal {rate}"),
            ThresholdKind::Fixed(threshold) => format!("run: threshold {threshold}"),
            ThresholdKind::Retain(_) => "run: not retained".to_owned(),
            ThresholdKind::Budget(budget) => format!("run: beyond the budget {budget}"),
        };
        let alone = Selection { thresholds: vec![report.clone()], ..selection.clone() };
        let threshold = report.outcomes.last().and_then(|outcome| outcome.threshold_score);
        // Texts without a score are not removed by it.
        let is_removed =
            |decision: Decision<'_>| matches!(decision, Decision::Removed { why: "", .. });
        Calls::new(rule, threshold, texts.map_decisions(&alone, is_removed))
    };
    own.map(call).collect()
}
