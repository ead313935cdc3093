//! The result of a selection: the thresholds of a language, and their decision on each document.
//!
//! Read back from its serialised form, [`Selection`] decides each document without another scan of
//! the corpus. JSON readers must parse floats exactly (`serde_json` with `float_roundtrip`).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::batch::{RankedDocument, ScoredDocument};
use super::counts::{Amount, Histogram};
use super::plan::{Threshold, ThresholdKind};
use super::rank::RankKey;
use polysift_config::{FixedThreshold, Keep, Mode, Rate, is_default};
use polysift_heads::head::DocumentScore;

/// The thresholds of one language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// How the thresholds were found.
    pub mode: Mode,
    /// Heads whose removal or fixed threshold was skipped because the language has no such head.
    pub skipped: Vec<String>,
    /// The thresholds in the order they were made.
    pub thresholds: Vec<ThresholdReport>,
    /// Effects of a cascade; `None` if all documents were encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cascade: Option<CascadeAudit>,
}

/// How much a cascade left out of a language, and what that costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CascadeAudit {
    /// Name of the first pass.
    pub first_pass: String,
    /// Number of documents of the language with text, those that filters remove included.
    pub documents: u64,
    /// Number of these documents that were not encoded.
    pub dropped: u64,
    /// Number of documents that were encoded although the first pass would have dropped them.
    pub audited: u64,
    /// Number of tokens in the dropped documents, estimated from the pilot.
    pub tokens_saved: u64,
    /// Rough time that an H200 needs for these tokens at its speed with a base-shaped encoder.
    pub gpu_hours_saved: f64,
    /// Floating-point operations of pilot, first pass and encoder, divided by those of a run
    /// without a cascade, estimated from the pilot.
    pub cost: f64,
    /// One recall per head and rate.
    pub recalls: Vec<Recall>,
}

/// The share that is kept of the documents that a run without a cascade would keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recall {
    /// Name of the head.
    pub head: String,
    /// Rate of the retention; `None` for a fixed threshold.
    pub rate: Option<Rate>,
    /// Number of audited documents that are kept.
    pub audited_kept: u64,
    /// Clopper-Pearson lower bound of the recall, at the confidence in the settings.
    pub lower_bound: f64,
    /// Whether the lower bound reaches the required recall.
    pub is_proved: bool,
}

/// A threshold and what it keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdReport {
    /// The threshold.
    pub threshold: Threshold,
    /// All documents of the language with a score (infinite ones too), including those that were
    /// removed before; with `dropped`, they are the n of retention rates. For a removal, an audited
    /// document weighs as much as all documents that it stands for.
    pub scored: Amount,
    /// Documents of the language that a cascade dropped; none of them is kept.
    #[serde(default, skip_serializing_if = "is_default")]
    pub dropped: Amount,
    /// Number of documents without a score.
    pub num_unscored: u64,
    /// Number of documents with the score NaN.
    pub num_nan: u64,
    /// Distribution of the scores; `None` if no score is finite.
    pub scores: Option<Histogram>,
    /// One outcome per selection: one per rate (ascending) of a retention, and of each threshold
    /// after a retention with several rates.
    pub outcomes: Vec<Outcome>,
}

/// The effect of a threshold on one of the selections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Rates of the retentions so far, including this one, in the order of the thresholds.
    pub retentions: Vec<Rate>,
    /// Scored documents that the earlier thresholds keep.
    pub candidates: Amount,
    /// Candidates that are kept.
    pub kept: Amount,
    /// Weight kept by a retention or budget, divided by all scored and dropped documents; weight
    /// removed by a removal or kept by a fixed threshold, divided by the candidates. 0 if the
    /// divisor is 0.
    pub realised_rate: f64,
    /// Logit at the boundary: of the worst document that a retention or budget keeps, or of the
    /// best one that a removal removes. `None` if the threshold is on the score, all or no
    /// documents are kept, or the logit is infinite.
    pub threshold_logit: Option<f32>,
    /// Score at the boundary, or the threshold on the score; `None` in the other cases above.
    pub threshold_score: Option<f64>,
    /// Which candidates are kept.
    pub bound: Bound,
}

/// Which candidates of a threshold are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Keeps all candidates.
    All,
    /// Keeps no candidate.
    Nothing,
    /// Keeps candidates up to this place in the threshold's order (retention, budget). Tie-breaks
    /// of all ones include every document of that logit.
    UpTo(RankKey),
    /// Keeps candidates before this place (removal). Tie-breaks of zero exclude all of that logit.
    Before(RankKey),
    /// Keeps scores strictly above this one.
    Above(f64),
    /// Keeps scores strictly below this one.
    Below(f64),
    /// Keeps this score and higher ones.
    AtLeast(f64),
    /// Keeps this score and lower ones.
    AtMost(f64),
}

/// The decision on a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<'a> {
    /// At least one of the final selections has the document.
    Kept {
        /// For each retention, in the order of the thresholds, the smallest of its rates with a
        /// final selection that keeps the document.
        retentions: Vec<Rate>,
    },
    /// No final selection has the document; displays as the reason.
    Removed {
        /// Head of the first threshold after which no selection has the document.
        head: &'a str,
        /// `_unscored` without a score, `_nan` for NaN, else nothing.
        why: &'static str,
    },
}

impl fmt::Display for Decision<'_> {
    /// Writes `kept`, or the reason: `<head>`, `<head>_unscored` or `<head>_nan`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept { .. } => f.write_str("kept"),
            Self::Removed { head, why } => write!(f, "{head}{why}"),
        }
    }
}

impl Selection {
    /// Returns the final selections: the last threshold's outcomes, or none without thresholds.
    pub fn outcomes(&self) -> &[Outcome] {
        self.thresholds.last().map_or(&[], |report| &report.outcomes)
    }

    /// Returns the heads of the retentions, in the order of [`Decision::Kept`].
    pub fn retention_heads(&self) -> impl Iterator<Item = &str> {
        self.thresholds.iter().filter_map(|ThresholdReport { threshold, .. }| {
            let retains = matches!(threshold.kind, ThresholdKind::Retain(_));
            retains.then_some(threshold.head_name.as_str())
        })
    }

    /// Returns true if every threshold treats `one` and `other`, and so any scores between, alike.
    pub fn treats_alike(&self, one: &ScoredDocument<'_>, other: &ScoredDocument<'_>) -> bool {
        let kept = |n: usize, document: &ScoredDocument<'_>| {
            survivors(&self.thresholds[..n], document, |_, _, _| {})
        };
        (1..=self.thresholds.len()).all(|n| kept(n, one) == kept(n, other))
    }

    /// Returns a bit per final selection that keeps the document. Calls `at_bound(at, i, passes)`
    /// for each bound that the document reaches, of outcome `i` of threshold `at`.
    pub fn kept(
        &self,
        document: &ScoredDocument<'_>,
        at_bound: impl FnMut(usize, usize, bool),
    ) -> u64 {
        survivors(&self.thresholds, document, at_bound).unwrap_or_default()
    }

    /// Decides a document of the corpus from which the selection was made. This is a pure function.
    pub fn decide(&self, document: &ScoredDocument<'_>) -> Decision<'_> {
        match survivors(&self.thresholds, document, |_, _, _| {}) {
            Ok(alive) => {
                // Rates ascend, so the first selection has the smallest rate.
                let outcome = self.outcomes().get(alive.trailing_zeros() as usize);
                Decision::Kept { retentions: outcome.map_or(Vec::new(), |o| o.retentions.clone()) }
            }
            Err((at, why)) => {
                Decision::Removed { head: &self.thresholds[at].threshold.head_name, why }
            }
        }
    }
}

/// Returns a bit per selection that keeps the document after all `thresholds`. If there are none,
/// returns the index of the threshold that removed it from the last one, and the reason.
/// [`Selection::kept`] explains `at_bound`.
pub(super) fn survivors(
    thresholds: &[ThresholdReport],
    document: &impl RankedDocument,
    mut at_bound: impl FnMut(usize, usize, bool),
) -> Result<u64, (usize, &'static str)> {
    // One selection has all documents before the first threshold.
    let (mut alive, mut num_before) = (1, 1);
    for (at, report) in thresholds.iter().enumerate() {
        let scored = report.threshold.head.and_then(|head| document.scored(head));
        let scored = scored.ok_or((at, "_unscored"))?;
        if scored.is_nan() {
            return Err((at, "_nan"));
        }
        let DocumentScore { logit, score } = scored;
        let rank = RankKey::of_logit(logit, report.threshold.keep);
        let mut next = 0;
        for (i, outcome) in report.outcomes.iter().enumerate() {
            if alive >> parent(i, num_before) & 1 == 1 {
                let passes = outcome.bound.keeps(rank, score, document);
                at_bound(at, i, passes);
                next |= u64::from(passes) << i;
            }
        }
        if next == 0 {
            return Err((at, ""));
        }
        (alive, num_before) = (next, report.outcomes.len());
    }
    Ok(alive)
}

/// Returns the earlier selection that selection `i` continues: the only one, or that of its rate.
pub(super) fn parent(i: usize, num_before: usize) -> usize {
    if num_before == 1 { 0 } else { i }
}

/// Returns the heads and logits with documents on both sides of a threshold; they need ids.
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
    /// Returns the bound that keeps what is better than `score`, but not `score`.
    pub(super) fn strictly(keep: Keep, score: f64) -> Self {
        if keep == Keep::Above { Self::Above(score) } else { Self::Below(score) }
    }

    /// Returns the bound of a fixed threshold.
    pub fn fixed(keep: Keep, threshold: FixedThreshold) -> Self {
        let score = f64::from(threshold.score() as f32);
        match threshold {
            FixedThreshold::Beyond(_) => Self::strictly(keep, score),
            FixedThreshold::AtLeast { .. } => Self::AtLeast(score),
            FixedThreshold::AtMost { .. } => Self::AtMost(score),
        }
    }

    /// Returns true if documents of one logit end up on both sides.
    fn splits_ties(&self) -> bool {
        match self {
            Self::UpTo(last) => (last.id_hash, last.ordinal) != (u64::MAX, u64::MAX),
            Self::Before(first) => (first.id_hash, first.ordinal) != (0, 0),
            _ => false,
        }
    }

    /// Returns true if a candidate is kept; `rank` holds only its logit.
    pub(super) fn keeps(&self, rank: RankKey, score: f32, document: &impl RankedDocument) -> bool {
        let is_tie = self.key().is_some_and(|key| key.logit == rank.logit) && self.splits_ties();
        let key = if is_tie { document.tied(rank) } else { rank };
        self.keeps_key(key, score)
    }

    /// Returns true if a candidate at this place in the threshold's order is kept.
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

    /// Returns the threshold on the score, if the bound is one.
    pub(super) fn score(&self) -> Option<f64> {
        match self {
            Self::Above(x) | Self::Below(x) | Self::AtLeast(x) | Self::AtMost(x) => Some(*x),
            _ => None,
        }
    }

    /// Returns the place in the threshold's order, if the bound is one.
    pub(super) fn key(&self) -> Option<RankKey> {
        match self {
            Self::UpTo(key) | Self::Before(key) => Some(*key),
            _ => None,
        }
    }
}
