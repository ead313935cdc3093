//! The result of a selection: the thresholds of a language, and what they decide of any one document.
//!
//! [`Selection`] is all that later stages need: it is read back from its serialised form and
//! decides every document alone, without another look at the corpus. JSON readers have to parse
//! floats exactly (`serde_json` with `float_roundtrip`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::batch::{RankedDocument, ScoredDocument};
use super::counts::{Amount, Histogram};
use super::plan::{Threshold, ThresholdKind};
use super::rank::RankKey;
use polysift_config::{FixedThreshold, Keep, Mode, Rate};

/// Thresholds of one language and what they select.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// How the thresholds were found.
    pub mode: Mode,
    /// Heads whose removal or fixed threshold was skipped because the language has no such head.
    pub skipped: Vec<String>,
    /// The thresholds in the order they were made.
    pub thresholds: Vec<ThresholdReport>,
    /// What a cascade left out, and what that costs; `None` where all documents were encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cascade: Option<CascadeAudit>,
}

/// What a cascade left out of a language, and what that costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CascadeAudit {
    /// The first pass.
    pub first_pass: String,
    /// Rows of the language.
    pub documents: u64,
    /// Documents that were not encoded.
    pub dropped: u64,
    /// Documents that were encoded though the first pass would have dropped them.
    pub audited: u64,
    /// Tokens of the dropped documents, estimated from the pilot.
    pub tokens_saved: u64,
    /// What they would take of one H200 at the speed that it had with an encoder of the base shape, roughly.
    pub gpu_hours_saved: f64,
    /// Floating-point operations of pilot, first pass and encoder, by those of a run without a cascade, estimated from the
    /// pilot.
    pub cost: f64,
    /// By head and rate.
    pub recalls: Vec<Recall>,
}

/// Which share of the documents that a run without a cascade would keep is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recall {
    /// The head.
    pub head: String,
    /// `None` for a fixed threshold.
    pub rate: Option<Rate>,
    /// Audited documents that are kept.
    pub audited_kept: u64,
    /// As the audit estimates it.
    pub estimate: f64,
    /// Lower bound by Clopper and Pearson, at the confidence of the settings.
    pub lower_bound: f64,
    /// Whether that is the recall that was asked for.
    pub is_proved: bool,
}

/// One threshold and what it keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdReport {
    /// The threshold.
    pub threshold: Threshold,
    /// All documents of the language with a score (infinite ones too), whatever became of them
    /// before: with those that were dropped the n that retention rates refer to. Of a removal, an audited
    /// document of a cascade weighs as much as the documents that it stands for.
    pub scored: Amount,
    /// Documents of the language that a cascade dropped, of which nothing is kept.
    #[serde(default, skip_serializing_if = "Amount::is_none")]
    pub dropped: Amount,
    /// Documents without a score.
    pub num_unscored: u64,
    /// Documents whose score is NaN.
    pub num_nan: u64,
    /// Distribution of the scores; `None` where no score is finite.
    pub scores: Option<Histogram>,
    /// One per selection: by rate of a retention, ascending; from a retention at several rates on, one
    /// for each of them.
    pub outcomes: Vec<Outcome>,
}

/// What a threshold does in one of the selections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Rates of the retentions so far, this one included, in the order of the thresholds.
    pub retentions: Vec<Rate>,
    /// The scored documents that the thresholds before keep.
    pub candidates: Amount,
    /// Those of them that are kept.
    pub kept: Amount,
    /// Of a retention or a budget: kept weight by the weight of all scored and dropped documents of the language; of a
    /// removal: removed by candidates; of a fixed threshold: kept by candidates. 0 where there are none.
    pub realised_rate: f64,
    /// Logit at the boundary: of the worst kept document of a retention or a budget, of the best removed one
    /// of a removal; `None` where the threshold is one on the score, keeps all or none, or where the
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
    /// Those up to this place in the threshold's order (retention, budget). Tie-breaks of all ones: every
    /// document of that logit.
    UpTo(RankKey),
    /// Those before this place (removal). Tie-breaks of all zeros: no document of that logit.
    Before(RankKey),
    /// Scores strictly above.
    Above(f64),
    /// Scores strictly below.
    Below(f64),
    /// This score and those above.
    AtLeast(f64),
    /// This score and those below.
    AtMost(f64),
}

/// What becomes of one document.
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
        /// Head of the first threshold after which no selection has the document.
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
    pub fn outcomes(&self) -> &[Outcome] {
        self.thresholds.last().map_or(&[], |report| &report.outcomes)
    }

    /// Whether [`decide`](Self::decide) looks at ids at all.
    pub fn needs_ids(&self) -> bool {
        !split_logits(&self.thresholds).is_empty()
    }

    /// Whether every threshold treats a document alike with the scores of `one` and with those of
    /// `other`, and so with any between them.
    pub fn treats_alike(&self, one: &ScoredDocument<'_>, other: &ScoredDocument<'_>) -> bool {
        let upto = |n| {
            let before = &self.thresholds[..n];
            survivors(before, one) == survivors(before, other)
        };
        (1..=self.thresholds.len()).all(upto)
    }

    /// The final selections that keep a document, a bit each; at every bound that it comes to, of the outcome `i` of the
    /// threshold `at`, `at_bound(at, i, passes)` is told whether it passes.
    pub fn kept(
        &self,
        document: &ScoredDocument<'_>,
        at_bound: impl FnMut(usize, usize, bool),
    ) -> u64 {
        survivors_watched(&self.thresholds, document, at_bound).map_or(0, |alive| alive.0)
    }

    /// Decides a document of the corpus the selection was made of; pure.
    pub fn decide(&self, document: &ScoredDocument<'_>) -> Decision<'_> {
        match survivors(&self.thresholds, document) {
            Ok(alive) => {
                // Rates ascend, so the first selection is that of the smallest.
                let outcome = self.outcomes().get(alive.first());
                Decision::Kept { retentions: outcome.map_or(Vec::new(), |o| o.retentions.clone()) }
            }
            Err((at, why)) => {
                Decision::Removed { head: &self.thresholds[at].threshold.head_name, why }
            }
        }
    }
}

/// A set of selections, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Selections(u64);

impl Selections {
    /// The one that all documents are in before the first threshold.
    pub(super) const ALL: Self = Self(1);

    pub(super) fn has(self, selection: usize) -> bool {
        self.0 >> selection & 1 == 1
    }

    fn first(self) -> usize {
        self.0.trailing_zeros() as usize
    }
}

/// The selections that keep the document after all of `thresholds`; where there are none, the index of
/// the threshold that removed it from the last, and why.
pub(super) fn survivors(
    thresholds: &[ThresholdReport],
    document: &impl RankedDocument,
) -> Result<Selections, (usize, Why)> {
    survivors_watched(thresholds, document, |_, _, _| {})
}

/// The same; `at_bound` is that of [`Selection::kept`].
fn survivors_watched(
    thresholds: &[ThresholdReport],
    document: &impl RankedDocument,
    mut at_bound: impl FnMut(usize, usize, bool),
) -> Result<Selections, (usize, Why)> {
    let mut alive = Selections::ALL;
    let mut num_before = 1;
    for (at, report) in thresholds.iter().enumerate() {
        let scored = report.threshold.head.and_then(|head| document.scored(head));
        let (logit, score) = scored.ok_or((at, Why::Unscored))?;
        if logit.is_nan() || score.is_nan() {
            return Err((at, Why::Nan));
        }
        let rank = RankKey::of_logit(logit, report.threshold.keep);
        let mut next = 0;
        for (i, outcome) in report.outcomes.iter().enumerate() {
            if alive.has(parent(i, num_before)) {
                let passes = outcome.bound.keeps(rank, score, document);
                at_bound(at, i, passes);
                next |= u64::from(passes) << i;
            }
        }
        if next == 0 {
            return Err((at, Why::Threshold));
        }
        (alive, num_before) = (Selections(next), report.outcomes.len());
    }
    Ok(alive)
}

/// Which of the selections before, of which there are `num_before`, the selection `i` continues: the
/// only one, or that of the same rate.
pub(super) fn parent(i: usize, num_before: usize) -> usize {
    if num_before == 1 { 0 } else { i }
}

/// The heads and logits of which documents end up on both sides of a threshold: there, and only there,
/// ids matter to a decision.
pub(super) fn split_logits(thresholds: &[ThresholdReport]) -> Vec<(usize, f32)> {
    let of_report = |report: &ThresholdReport| {
        let Threshold { head, keep, .. } = report.threshold;
        let bounds = report.outcomes.iter().map(|outcome| outcome.bound);
        let split = bounds.filter(Bound::splits_ties).filter_map(|bound| bound.key());
        split.filter_map(|key| Some((head?, key.logit(keep)))).collect::<Vec<_>>()
    };
    thresholds.iter().flat_map(of_report).collect()
}

impl Bound {
    /// Scores strictly on the good side of `score`.
    pub(super) fn strictly(keep: Keep, score: f64) -> Self {
        match keep {
            Keep::Above => Self::Above(score),
            Keep::Below => Self::Below(score),
        }
    }

    /// Scores on the good side of `threshold`.
    pub(super) fn fixed(keep: Keep, threshold: FixedThreshold) -> Self {
        let score = f64::from(threshold.score() as f32);
        match threshold {
            FixedThreshold::Beyond(_) => Self::strictly(keep, score),
            FixedThreshold::AtLeast { .. } => Self::AtLeast(score),
            FixedThreshold::AtMost { .. } => Self::AtMost(score),
        }
    }

    /// Whether documents of one logit end up on both sides.
    fn splits_ties(&self) -> bool {
        match self {
            Self::UpTo(last) => (last.id_hash, last.ordinal) != (u64::MAX, u64::MAX),
            Self::Before(first) => (first.id_hash, first.ordinal) != (0, 0),
            _ => false,
        }
    }

    /// Whether a candidate is kept; `rank` holds its logit only.
    pub(super) fn keeps(&self, rank: RankKey, score: f32, document: &impl RankedDocument) -> bool {
        let is_tie = self.key().is_some_and(|key| key.logit == rank.logit) && self.splits_ties();
        let key = if is_tie { rank.with_id(document.id(), document.ordinal()) } else { rank };
        self.keeps_key(key, score)
    }

    /// Whether a candidate at this place in the threshold's order is kept.
    pub fn keeps_key(&self, key: RankKey, score: f32) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::UpTo(last) => key <= *last,
            Self::Before(first) => key < *first,
            Self::Above(least) => f64::from(score) > *least,
            Self::Below(most) => f64::from(score) < *most,
            Self::AtLeast(least) => f64::from(score) >= *least,
            Self::AtMost(most) => f64::from(score) <= *most,
        }
    }

    /// The score that kept documents have to pass, of a threshold on scores.
    fn score(&self) -> Option<f64> {
        match self {
            Self::Above(score)
            | Self::Below(score)
            | Self::AtLeast(score)
            | Self::AtMost(score) => Some(*score),
            Self::All | Self::Nothing | Self::UpTo(_) | Self::Before(_) => None,
        }
    }

    /// The place at the boundary, if there is one.
    fn key(&self) -> Option<RankKey> {
        match self {
            Self::UpTo(key) | Self::Before(key) => Some(*key),
            _ => None,
        }
    }
}

impl Outcome {
    /// What `threshold` keeps at its rate for the selection `i`, after `retentions`: of `candidates`
    /// among all `scored` documents. `score` is that of the document at the boundary.
    pub fn new(
        (threshold, i, mut retentions): (&Threshold, usize, Vec<Rate>),
        (bound, score): (Bound, Option<f32>),
        [all, candidates, kept]: [Amount; 3],
    ) -> Self {
        let (part, whole) = match &threshold.kind {
            ThresholdKind::Retain(_) => {
                retentions.extend(threshold.rate(i));
                (kept, all)
            }
            ThresholdKind::Remove(_) => (candidates.without(kept), candidates),
            ThresholdKind::Fixed(_) => (kept, candidates),
            ThresholdKind::Budget(_) => (kept, all),
        };
        let realised_rate =
            if whole.weight == 0 { 0.0 } else { part.weight as f64 / whole.weight as f64 };
        let logit = bound.key().map(|key| key.logit(threshold.keep));
        let score = bound.score().or(score.map(f64::from));
        Self {
            retentions,
            candidates,
            kept,
            realised_rate,
            threshold_logit: logit.filter(|logit| logit.is_finite()),
            threshold_score: score.filter(|score| score.is_finite()),
            bound,
        }
    }
}
