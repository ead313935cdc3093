//! From the scores of one language's documents to exact thresholds and a decision per document.
//!
//! Owns the thresholds, the order of documents, the search for thresholds and the record of what was
//! selected. Reads and writes no file: scores come through [`Corpus`], which is scanned a few
//! times; memory does not depend on the number of documents.
//!
//! # What is selected
//!
//! Thresholds are made one after another, each among the survivors of those before it. A document
//! without a score of a threshold's head, or with a NaN, is rejected there: never selected, never
//! counted in a rate. Infinite logits are scores like others.
//!
//! - The **order** of a threshold is total: best logit first (−0.0 equals +0.0), equal logits by the
//!   xxh3-64 of the id, equal hashes by position in the plan. So a rate is met to the document.
//! - **Retention** at a rate keeps the smallest set of best survivors whose weight reaches
//!   ceil(rate · W), all survivors if none does. W is the weight of *all* scored documents of the
//!   language, also of those that an earlier threshold removed: the rate asked for is the rate got. With
//!   documents as weight, that is exactly ceil(rate · n) documents.
//! - **Removal** at a rate removes the smallest set of worst survivors whose weight reaches
//!   ceil(rate · W'), W' being the weight of the scored survivors.
//! - A **threshold** keeps scores strictly on its good side, compared as f64.
//! - Several rates of a retention are so many selections, and every later threshold is made in each of
//!   them on its own; a document's retention is the smallest rate whose final selection has it.
//! - Documents of weight zero count for nothing: they are kept where they stand before the last
//!   document needed (retention), and removed where they stand behind the best one removed.
//!
//! [`Mode::Published`] finds its thresholds as FineWeb2-HQ does (see `quantile`).
//!
//! # How
//!
//! Radix search on a 160-bit key (logit, id hash, ordinal), 16 bits per scan, from the top: weights
//! are summed by the next digit of the documents that share the digits found so far, the digit
//! in which the running sum reaches the target is the next one found. Two scans complete the
//! logit; ids are asked for only where the boundary then falls among equal logits. All sums are
//! exact integers, so the answer does not depend on shards, their order or threads.

mod block;
mod by_rank;
mod by_score;
mod counts;
mod plan;
mod quantile;
mod rank;
mod report;
mod scan;
mod stats;

pub use block::{HeadColumn, ScanRequest, ScoreBatch};
pub use counts::Amount;
pub use plan::{
    HeadInfo, MAX_BRANCHES, QuantilePrecision, Threshold, ThresholdKind, plan_thresholds,
};
pub use rank::RankKey;
pub use report::{Bound, Decision, Histogram, Outcome, Selection, ThresholdReport, Why};
pub use stats::NUM_BINS;

use self::block::Document;
use crate::config::Mode;
use crate::error::Result;

/// One document as the selection sees it.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Id.
    pub id: &'a str,
    /// Position in plan order, unique in the corpus: the last tie-break.
    pub ordinal: u64,
    /// What the rates count: 1, bytes or tokens.
    pub weight: u64,
    /// By head: `None` without a score (no text, or no such head), NaN for a reject. Heads
    /// beyond the slice have no score.
    pub logits: &'a [Option<f32>],
    /// By head, beside `logits`: the score, a non-decreasing function of the logit.
    pub scores: &'a [Option<f32>],
}

/// The documents of one language, which can be scanned any number of times.
pub trait Corpus: Sync {
    /// Number of shards (input files).
    fn num_shards(&self) -> usize;

    /// Calls `visit` for all rows of a shard, some at a time in row order, and passes on its error.
    /// Shards are scanned from several threads. Only what is `wanted` is looked at.
    fn scan(
        &self,
        shard: usize,
        wanted: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// Finds the thresholds of `thresholds` (see [`plan_thresholds`]) over `corpus`; the semantics are the module's.
///
/// Scans the corpus at least twice per threshold, at most ten times, in parallel over shards.
///
/// ```
/// use polysift::config::{Activation, Keep, LanguageThresholds, Mode};
/// use polysift::selection::{
///     ScoreBatch, Corpus, Decision, HeadColumn, HeadInfo, Row, ScanRequest, plan_thresholds, select,
/// };
///
/// const IDS: [&str; 3] = ["a", "b", "c"];
///
/// struct Logits([f32; 3]);
///
/// impl Corpus for Logits {
///     fn num_shards(&self) -> usize {
///         1
///     }
///     fn scan(
///         &self,
///         _shard: usize,
///         _request: &ScanRequest,
///         visit: &mut dyn FnMut(&ScoreBatch<'_>) -> polysift::Result<()>,
///     ) -> polysift::Result<()> {
///         let heads = [HeadColumn { logits: &self.0, scores: &self.0, present: None }];
///         visit(&ScoreBatch { len: 3, ids: &IDS, ordinals: &[0, 1, 2], weights: None, heads: &heads })
///     }
/// }
///
/// fn row(ordinal: u64, values: &[Option<f32>]) -> Row<'_> {
///     Row { id: IDS[ordinal as usize], ordinal, weight: 1, logits: values, scores: values }
/// }
///
/// let rate: polysift::config::Rate = "0.5".parse()?;
/// let settings = LanguageThresholds {
///     retention: [("quality".to_owned(), vec![rate])].into(),
///     ..LanguageThresholds::default()
/// };
/// let head = HeadInfo { name: "quality".into(), keep: Keep::Above, activation: Activation::Raw };
/// let thresholds = plan_thresholds(&settings, &[head], &[])?;
/// let selection = select(&Logits([0.5, -1.0, 2.0]), &thresholds, Mode::Default)?;
/// // ceil(0.5 · 3) = 2 documents
/// assert_eq!(selection.decide(&row(0, &[Some(0.5)])), Decision::Kept { retentions: vec![rate] });
/// assert_eq!(selection.decide(&row(1, &[Some(-1.0)])).to_string(), "quality");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What the corpus returns; [`Error::Config`](crate::Error::Config) for thresholds that [`plan_thresholds`]
/// refuses, for a corpus that weighs 2^64 or more, and in published mode for more than a million
/// shards or a quantile that is not finite; [`Error::Shape`](crate::Error::Shape) for a corpus that
/// changes between scans.
pub fn select(corpus: &dyn Corpus, thresholds: &[Threshold], mode: Mode) -> Result<Selection> {
    plan::check(thresholds)?;
    let mut selection = Selection { mode, skipped: Vec::new(), thresholds: Vec::new() };
    for threshold in thresholds {
        let is_retention = matches!(threshold.kind, ThresholdKind::Retain(_));
        if threshold.head.is_none() && !is_retention {
            selection.skipped.push(threshold.head_name.clone());
            continue;
        }
        let done = &selection.thresholds;
        let report = match (mode, &threshold.kind) {
            (_, ThresholdKind::Fixed(_)) | (Mode::Published, _) => {
                by_score::threshold(corpus, done, threshold)?
            }
            (Mode::Default, ThresholdKind::Retain(rates)) => {
                by_rank::threshold(corpus, done, threshold, rates)?
            }
            (Mode::Default, ThresholdKind::Remove(rate)) => {
                by_rank::threshold(corpus, done, threshold, std::slice::from_ref(rate))?
            }
        };
        selection.thresholds.push(report);
    }
    Ok(selection)
}

/// What a document is to a threshold.
enum Value {
    /// A candidate; neither number is NaN.
    Scored { logit: f32, score: f32 },
    /// It has no score.
    Unscored,
    /// Its score is NaN.
    Nan,
}

impl Value {
    fn of(threshold: &Threshold, row: &impl Document) -> Self {
        match threshold.head.and_then(|head| row.scored(head)) {
            Some((logit, score)) if logit.is_nan() || score.is_nan() => Self::Nan,
            Some((logit, score)) => Self::Scored { logit, score },
            None => Self::Unscored,
        }
    }
}
