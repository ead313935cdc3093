//! From the scores of one language's documents to exact thresholds and a decision per document.
//!
//! Owns the thresholds, the order of documents, the search and the record of what was selected. Reads and writes no file: scores come through [`Corpus`], which is scanned a few
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
//!   language, those included that an earlier threshold removed or a cascade dropped: the rate asked for is the rate
//!   got. With documents as weight, that is exactly ceil(rate · n) documents.
//! - **Removal** at a rate removes the smallest set of worst survivors whose weight reaches
//!   ceil(rate · W'), W' being the weight of the scored survivors.
//! - A **budget** keeps the smallest set of best survivors whose weight reaches it, all survivors if none does.
//! - A **threshold** keeps scores strictly on its good side, compared as f64.
//! - One retention may have several rates. They are so many selections, and every later threshold is
//!   made in each of them on its own; a document's retention is the smallest rate whose final selection
//!   has it.
//! - Documents of weight zero count for nothing: they are kept where they stand before the last
//!   document needed (retention), and removed where they stand behind the best one removed.
//!
//! [`Mode::Published`] finds its thresholds as FineWeb2-HQ does (see `by_score`).
//!
//! # How
//!
//! ```text
//! plan ──Threshold──▶ search (rates) or by_score ──ThresholdReport──▶ report: Selection, Decision
//!                        │ View: scans the Corpus, batch by batch
//!                        ▼
//!                     counts that merge in any order, by digits of the rank (RankKey)
//! ```
//!
//! Radix search on a 160-bit key (logit, id hash, ordinal), 16 bits per scan, from the top: weights
//! are summed by the next digit of the documents that share the digits found so far, the digit
//! in which the running sum reaches the target is the next one found. Two scans complete the
//! logit, or one where a sample of the shards (every 64th) tells which first digits to look into; ids are
//! asked for only where the boundary then falls among equal logits. All sums are exact integers, so the answer
//! does not depend on shards, their order or threads.

mod batch;
mod by_score;
mod counts;
mod plan;
mod rank;
mod report;
mod scan;
mod search;

pub use batch::{Corpus, HeadColumn, ScanRequest, ScoreBatch, ScoredDocument};
pub use counts::{Amount, Histogram, NUM_BINS};
pub use plan::{MAX_RATES, Threshold, ThresholdKind, plan_thresholds};
pub use rank::RankKey;
pub use report::{Bound, CascadeAudit, Decision, Outcome, Recall, Selection, ThresholdReport, Why};

use self::scan::View;
use polysift_base::error::Result;
use polysift_config::Mode;

/// Finds where `thresholds` (see [`plan_thresholds`]) lie in `corpus`; the semantics are the module's.
///
/// Scans the corpus once or twice per threshold, at most ten times with ids, in parallel over shards.
///
/// ```
/// use polysift_config::{LanguageThresholds, Mode};
/// use polysift_heads::head::HeadSpec;
/// use polysift_selection::{
///     Corpus, Decision, HeadColumn, ScanRequest, ScoreBatch, ScoredDocument, plan_thresholds, select,
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
///         visit: &mut dyn FnMut(&ScoreBatch<'_>) -> polysift_base::Result<()>,
///     ) -> polysift_base::Result<()> {
///         let heads = [HeadColumn { logits: &self.0, scores: &self.0, present: None }];
///         visit(&ScoreBatch { len: 3, ids: &IDS, ordinals: &[0, 1, 2], heads: &heads, ..ScoreBatch::default() })
///     }
/// }
///
/// fn document(ordinal: u64, values: &[Option<f32>]) -> ScoredDocument<'_> {
///     ScoredDocument { id: IDS[ordinal as usize], ordinal, logits: values, scores: values }
/// }
///
/// let rate: polysift_config::Rate = "0.5".parse()?;
/// let settings = LanguageThresholds {
///     retention: [("quality".to_owned(), vec![rate])].into(),
///     ..LanguageThresholds::default()
/// };
/// let head = HeadSpec::default(); // keeps high scores
/// let thresholds = plan_thresholds(&settings, &[("quality", Some(&head))], &[])?;
/// let selection = select(&Logits([0.5, -1.0, 2.0]), &thresholds, Mode::Default)?;
/// // ceil(0.5 · 3) = 2 documents
/// assert_eq!(selection.decide(&document(0, &[Some(0.5)])), Decision::Kept { retentions: vec![rate] });
/// assert_eq!(selection.decide(&document(1, &[Some(-1.0)])).to_string(), "quality");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What the corpus returns; [`Error::Config`](polysift_base::Error::Config) for thresholds that [`plan_thresholds`]
/// refuses, for a corpus that weighs 2^64 or more, and in published mode for more than a million
/// shards or a quantile that is not finite; [`Error::Shape`](polysift_base::Error::Shape) for a corpus that
/// changes between scans.
pub fn select(corpus: &dyn Corpus, thresholds: &[Threshold], mode: Mode) -> Result<Selection> {
    plan::check(thresholds)?;
    let mut selection =
        Selection { mode, skipped: Vec::new(), thresholds: Vec::new(), cascade: None };
    for threshold in thresholds {
        let selects = matches!(threshold.kind, ThresholdKind::Retain(_) | ThresholdKind::Budget(_));
        if threshold.head.is_none() && !selects {
            selection.skipped.push(threshold.head_name.clone());
            continue;
        }
        let view = View { corpus, done: &selection.thresholds, threshold };
        let report = match (mode, &threshold.kind) {
            (_, ThresholdKind::Budget(_)) => search::by_rank(&view)?,
            (_, ThresholdKind::Fixed(_)) | (Mode::Published, _) => by_score::by_score(&view)?,
            (Mode::Default, _) => search::by_rank(&view)?,
        };
        selection.thresholds.push(report);
    }
    Ok(selection)
}
