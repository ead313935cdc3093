//! Computes exact thresholds from the scores of one language's documents, and decides each
//! document. This crate reads and writes no file: [`Corpus`] provides the scores and is scanned a
//! few times. Memory does not depend on the number of documents.
//!
//! # What is selected
//!
//! Thresholds are computed one after another, each among the documents that the earlier ones keep.
//! A document without a score by a threshold's head, or with NaN, is rejected there: it is never
//! selected and never counted in a rate. Infinite logits are scores like others.
//!
//! - The **order** of a threshold is total: best logit first (−0.0 equals +0.0), equal logits by
//!   the xxh3-64 of the id, equal hashes by position in the plan. So every rate is met exactly.
//! - **Retention** at a rate keeps the smallest set of best survivors whose weight reaches
//!   ceil(rate · W), all survivors if none does. W is the weight of *all* scored documents of the
//!   language, including those that an earlier threshold removed or a cascade dropped: the
//!   requested rate is realised, with exactly ceil(rate · n) documents if documents are the weight.
//! - **Removal** at a rate removes the smallest set of worst survivors whose weight reaches
//!   ceil(rate · W'), where W' is the weight of the scored survivors.
//! - A **budget** keeps the smallest set of best survivors that reaches its weight, or else all.
//! - A **threshold**, rounded to f32, keeps scores on its good side. Only `at_least` and `at_most`
//!   keep equal scores.
//! - One retention may have several rates. Each makes a selection with its own later thresholds. A
//!   document's retention is the smallest rate whose final selection has it.
//! - Documents of weight zero do not count. A retention keeps those that rank before the last
//!   document needed; a removal removes those that rank behind the best document removed.
//!
//! [`Mode::Published`] computes its thresholds as FineWeb2-HQ does (see `by_score`).
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
//! Two scans complete the logit of a threshold, or one if a sample of shards predicts its first
//! digits. Ids are read only if the boundary falls among equal logits. All sums are exact integers,
//! so the result is independent of shards, their order and threads.

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
pub use report::{Bound, CascadeAudit, Decision, Outcome, Recall, Selection, ThresholdReport};

use self::scan::View;
use polysift_base::error::Result;
use polysift_config::Mode;

/// Computes `thresholds` (see [`plan_thresholds`]) for `corpus`, as the [crate] defines them. Scans it
/// once or twice per threshold, at most ten times with ids, in parallel over shards. Refuses a corpus
/// that changes between scans and, in published mode, a quantile that is not finite.
pub fn select(corpus: &dyn Corpus, thresholds: &[Threshold], mode: Mode) -> Result<Selection> {
    plan::check("", thresholds)?;
    let mut selection =
        Selection { mode, skipped: Vec::new(), thresholds: Vec::new(), cascade: None };
    for threshold in thresholds {
        let selects = matches!(threshold.kind, ThresholdKind::Retain(_) | ThresholdKind::Budget(_));
        if threshold.head.is_none() && !selects {
            selection.skipped.push(threshold.head_name.clone());
            continue;
        }
        let view = View { corpus, done: &selection.thresholds, threshold, every: 1 };
        let report = match (mode, &threshold.kind) {
            (_, ThresholdKind::Budget(_)) => search::by_rank(&view)?,
            (_, ThresholdKind::Fixed(_)) | (Mode::Published, _) => by_score::by_score(&view)?,
            (Mode::Default, _) => search::by_rank(&view)?,
        };
        selection.thresholds.push(report);
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use polysift_config::{LanguageThresholds, Rate};
    use polysift_heads::head::{DocumentScore, HeadSpec};

    use super::*;

    const IDS: [&str; 3] = ["a", "b", "c"];

    struct Logits([f32; 3]);

    impl Corpus for Logits {
        fn num_shards(&self) -> usize {
            1
        }

        fn scan(
            &self,
            _shard: usize,
            _request: &ScanRequest,
            visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
        ) -> Result<()> {
            let heads = [HeadColumn { logits: &self.0, scores: &self.0, present: None }];
            let batch = ScoreBatch { ids: &IDS, ordinals: &[0, 1, 2], ..ScoreBatch::default() };
            visit(&ScoreBatch { len: 3, heads: &heads, ..batch })
        }
    }

    fn decided(selection: &Selection, ordinal: u64, logit: f32) -> Decision<'_> {
        let scores = &[Some(DocumentScore { logit, score: logit })];
        selection.decide(&ScoredDocument { id: IDS[ordinal as usize], ordinal, scores })
    }

    #[test]
    fn half_of_three_documents_are_the_two_best() -> std::result::Result<(), String> {
        let rate: Rate = "0.5".parse()?;
        let settings = LanguageThresholds {
            retention: [("quality".to_owned(), vec![rate])].into(),
            ..LanguageThresholds::default()
        };
        let head = HeadSpec::default(); // keeps high scores
        let selection = plan_thresholds("deu_Latn", &settings, &[("quality", Some(&head))], &[])
            .and_then(|thresholds| select(&Logits([0.5, -1.0, 2.0]), &thresholds, Mode::Default))
            .map_err(|e| e.to_string())?;
        let kept = Decision::Kept { retentions: vec![rate] };
        assert_eq!(decided(&selection, 0, 0.5), kept);
        assert_eq!(decided(&selection, 1, -1.0).to_string(), "quality");
        Ok(())
    }
}
