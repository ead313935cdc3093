//! The result of a selection: what was threshold where, and the fate of any one document.
//!
//! [`Selection`] is all that later stages need: it is read back from its serialised form and
//! decides every document alone, without another look at the corpus. JSON readers have to parse
//! floats exactly (`serde_json` with `float_roundtrip`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::block::Document;
use super::counts::Amount;
use super::plan::{Threshold, ThresholdKind};
use super::rank::RankKey;
use super::{Row, Value};
use crate::config::{Keep, Mode, Rate};

/// Thresholds of one language and what they select.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// How the thresholds were found.
    pub mode: Mode,
    /// Heads whose removal or threshold was skipped because the language has no such head.
    pub skipped: Vec<String>,
    /// The thresholds in the order they were made.
    pub thresholds: Vec<ThresholdReport>,
}

/// One threshold and its outcomes. Counts in the first part are over all documents of the language,
/// whatever earlier thresholds did to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdReport {
    /// The threshold.
    pub threshold: Threshold,
    /// Documents with a score (infinite ones too): the n that retention rates refer to.
    pub scored: Amount,
    /// Documents without a score.
    pub num_unscored: u64,
    /// Documents whose score is NaN.
    pub num_nan: u64,
    /// Distribution of the scores; `None` where no score is finite.
    pub scores: Option<Histogram>,
    /// One per selection that runs from here on: for each selection of the threshold before, one per
    /// rate of a retention, one for any other threshold.
    pub outcomes: Vec<Outcome>,
}

/// What a threshold does in one of the selections that run side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Index of the outcome of the threshold before that this one continues; 0 at the first threshold.
    pub parent: usize,
    /// Rates of the retentions so far, this one included, in the order of the thresholds.
    pub retentions: Vec<Rate>,
    /// Survivors of the thresholds before that have a score.
    pub candidates: Amount,
    /// Those of them that are kept.
    pub kept: Amount,
    /// Of a retention: kept weight by the weight of all scored documents of the language; of a
    /// removal: removed by candidates; of a fixed threshold: kept by candidates. 0 where there are none.
    pub realised_rate: f64,
    /// Logit at the boundary: of the worst kept document of a retention, of the best removed one
    /// of a removal; `None` where the threshold is made on the score, keeps all or none, or where the
    /// logit is infinite.
    pub threshold_logit: Option<f32>,
    /// Score there, or the score that kept documents have to pass. `None` as above.
    pub threshold_score: Option<f64>,
    /// Which candidates are kept.
    pub bound: Bound,
}

/// Which candidates of a threshold are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// All.
    All,
    /// None.
    Nothing,
    /// Those up to this place in the threshold's order (retention). Tie-breaks of all ones: every
    /// document of that logit.
    UpTo(RankKey),
    /// Those before this place (removal). Tie-breaks of all zeros: no document of that logit.
    Before(RankKey),
    /// Scores strictly above.
    Above(f64),
    /// Scores strictly below.
    Below(f64),
}

/// Distribution of the scores of a head over a language, with [`NUM_BINS`](super::NUM_BINS) bins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Least finite score.
    pub min: f32,
    /// Largest finite score.
    pub max: f32,
    /// Mean of the finite scores.
    pub mean: f64,
    /// Lower end of the first bin: 0 where all scores are in [0, 1], else `min`.
    pub low: f64,
    /// Upper end of the last bin: 1 where all scores are in [0, 1], else `max`.
    pub high: f64,
    /// Documents per bin of equal width, upper ends excluded but the last; infinite scores are in
    /// the end bins.
    pub counts: Vec<u64>,
}

/// Fate of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<'a> {
    /// In at least one of the final selections.
    Kept {
        /// For each retention, in the order of the thresholds, the smallest of its rates with a final
        /// selection that keeps the document.
        retentions: Vec<Rate>,
    },
    /// In none; displays as its reason.
    Removed {
        /// Head of the first threshold after which no selection had the document.
        head: &'a str,
        /// Why.
        why: Why,
    },
}

/// Why a threshold removed a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// By its score.
    Threshold,
    /// It has no score.
    Unscored,
    /// Its score is NaN.
    Nan,
}

impl fmt::Display for Decision<'_> {
    /// `kept`, or the reason: `<head>`, `<head>_unscored` or `<head>_nan`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept { .. } => f.write_str("kept"),
            Self::Removed { head, why: Why::Threshold } => f.write_str(head),
            Self::Removed { head, why: Why::Unscored } => write!(f, "{head}_unscored"),
            Self::Removed { head, why: Why::Nan } => write!(f, "{head}_nan"),
        }
    }
}

impl Selection {
    /// The final selections: outcomes of the last threshold; empty without thresholds.
    pub fn selections(&self) -> &[Outcome] {
        self.thresholds.last().map_or(&[], |report| &report.outcomes)
    }

    /// Whether [`decide`](Self::decide) looks at ids at all.
    pub fn needs_ids(&self) -> bool {
        !split_logits(&self.thresholds).is_empty()
    }

    /// Whether every threshold treats a document alike with the scores of `one` and with those of `other`,
    /// and so with any between them.
    pub fn treats_alike(&self, one: &Row<'_>, other: &Row<'_>) -> bool {
        let upto =
            |n| (survivors(&self.thresholds[..n], one), survivors(&self.thresholds[..n], other));
        (1..=self.thresholds.len()).map(upto).all(|(one, other)| one == other)
    }

    /// Fate of a document of the corpus the selection was made of; pure.
    pub fn decide(&self, row: &Row<'_>) -> Decision<'_> {
        let alive = match survivors(&self.thresholds, row) {
            Ok(alive) => alive,
            Err((threshold, why)) => {
                return Decision::Removed {
                    head: &self.thresholds[threshold].threshold.head_name,
                    why,
                };
            }
        };
        let mut retentions: Vec<Rate> = Vec::new();
        for (_, outcome) in self.selections().iter().enumerate().filter(|(i, _)| alive.has(*i)) {
            if retentions.is_empty() {
                retentions.clone_from(&outcome.retentions);
            }
            for (least, rate) in retentions.iter_mut().zip(&outcome.retentions) {
                *least = (*least).min(*rate);
            }
        }
        Decision::Kept { retentions }
    }
}

/// A set of the selections that run side by side, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Branches(u64);

impl Branches {
    pub(super) fn has(self, branch: usize) -> bool {
        self.0.checked_shr(branch as u32).is_some_and(|bits| bits & 1 == 1)
    }

    fn insert(&mut self, branch: usize) {
        self.0 |= 1u64.checked_shl(branch as u32).unwrap_or(0);
    }
}

/// The selections that keep the document after all of `thresholds`; where there are none, the index of
/// the threshold that removed it from the last.
pub(super) fn survivors(
    thresholds: &[ThresholdReport],
    row: &impl Document,
) -> Result<Branches, (usize, Why)> {
    let mut alive = Branches(1);
    for (index, report) in thresholds.iter().enumerate() {
        let (logit, score) = match Value::of(&report.threshold, row) {
            Value::Scored { logit, score } => (logit, score),
            Value::Unscored => return Err((index, Why::Unscored)),
            Value::Nan => return Err((index, Why::Nan)),
        };
        let rank = RankKey::of_logit(logit, report.threshold.keep);
        let mut next = Branches(0);
        for (branch, outcome) in report.outcomes.iter().enumerate() {
            if alive.has(outcome.parent) && outcome.bound.keeps(rank, score, row) {
                next.insert(branch);
            }
        }
        if next == Branches(0) {
            return Err((index, Why::Threshold));
        }
        alive = next;
    }
    Ok(alive)
}

/// The heads and logits of which documents end up on both sides of a threshold: there, and only there, ids
/// matter to [`survivors`].
pub(super) fn split_logits(thresholds: &[ThresholdReport]) -> Vec<(usize, f32)> {
    let of_threshold = |report: &ThresholdReport| {
        let Threshold { head, keep, .. } = report.threshold;
        let bounds = report.outcomes.iter().map(|outcome| outcome.bound);
        let split = bounds.filter(Bound::splits_ties).filter_map(move |bound| bound.key());
        let logits: Vec<f32> = split.map(|key| key.logit(keep)).collect();
        logits.into_iter().filter_map(move |logit| Some((head?, logit)))
    };
    thresholds.iter().flat_map(of_threshold).collect()
}

impl Bound {
    /// Scores strictly on the good side of `threshold`.
    pub(super) fn strictly(keep: Keep, threshold: f64) -> Self {
        match keep {
            Keep::Above => Self::Above(threshold),
            Keep::Below => Self::Below(threshold),
        }
    }

    /// Whether documents of one logit end up on both sides.
    fn splits_ties(&self) -> bool {
        match self {
            Self::UpTo(last) => (last.id_hash, last.ordinal) != (u64::MAX, u64::MAX),
            Self::Before(first) => (first.id_hash, first.ordinal) != (0, 0),
            Self::All | Self::Nothing | Self::Above(_) | Self::Below(_) => false,
        }
    }

    /// Whether a candidate is kept; `rank` holds its logit only.
    pub(super) fn keeps(&self, rank: RankKey, score: f32, row: &impl Document) -> bool {
        let ranked = || rank.with_id(row.id(), row.ordinal());
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::UpTo(last) if rank.logit == last.logit && self.splits_ties() => ranked() <= *last,
            Self::UpTo(last) => rank.logit <= last.logit,
            Self::Before(first) if rank.logit == first.logit && self.splits_ties() => {
                ranked() < *first
            }
            Self::Before(first) => rank.logit < first.logit,
            Self::Above(threshold) => f64::from(score) > *threshold,
            Self::Below(threshold) => f64::from(score) < *threshold,
        }
    }

    /// The score that kept documents have to pass, if the threshold is made on scores.
    pub(super) fn score(&self) -> Option<f64> {
        match self {
            Self::Above(threshold) | Self::Below(threshold) => Some(*threshold),
            Self::All | Self::Nothing | Self::UpTo(_) | Self::Before(_) => None,
        }
    }

    /// The logit at the boundary, if the threshold has one.
    pub(super) fn logit(&self, keep: Keep) -> Option<f32> {
        self.key().map(|key| key.logit(keep)).filter(|logit| logit.is_finite())
    }

    /// The place at the boundary, if the threshold has one.
    fn key(&self) -> Option<RankKey> {
        match self {
            Self::UpTo(key) | Self::Before(key) => Some(*key),
            Self::All | Self::Nothing | Self::Above(_) | Self::Below(_) => None,
        }
    }
}

/// A candidate set and a bound, from which [`ThresholdReport::outcomes`] are made.
pub(super) struct Boundary {
    pub(super) parent: usize,
    pub(super) candidates: Amount,
    pub(super) kept: Amount,
    pub(super) bound: Bound,
    pub(super) threshold_score: Option<f64>,
}

impl Boundary {
    /// The outcome of `threshold` in the `nth` of the selections that continue the same parent.
    pub(super) fn into_outcome(
        self,
        threshold: &Threshold,
        nth: usize,
        before: &[Outcome],
        scored: Amount,
    ) -> Outcome {
        let Self { parent, candidates, kept, bound, threshold_score } = self;
        let mut retentions =
            before.get(parent).map(|outcome| outcome.retentions.clone()).unwrap_or_default();
        let (part, whole) = match &threshold.kind {
            ThresholdKind::Retain(rates) => {
                retentions.extend(rates.get(nth));
                (kept, scored)
            }
            ThresholdKind::Remove(_) => (candidates.without(kept), candidates),
            ThresholdKind::Fixed(_) => (kept, candidates),
        };
        let realised_rate =
            if whole.weight == 0 { 0.0 } else { part.weight as f64 / whole.weight as f64 };
        Outcome {
            parent,
            retentions,
            candidates,
            kept,
            realised_rate,
            threshold_logit: bound.logit(threshold.keep),
            threshold_score: threshold_score.filter(|score| score.is_finite()),
            bound,
        }
    }
}
