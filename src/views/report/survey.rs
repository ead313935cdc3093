//! First pass: counts, a uniform sample, and the documents next to ends of orders and thresholds.

use std::collections::BTreeMap;

use twox_hash::XxHash3_64;

use super::counts::ScoreCounts;
use super::limits::ReportLimits;
use super::stored::{HeadRank, KeptDocument, StoredThresholds};
use polysift_corpus::rows::Row;
use polysift_runs::run::DocumentAmount;
use polysift_selection::RankKey;

/// Returns the hash that draws a sample of ids, smallest first.
pub(super) fn sampling_hash(id: &str) -> u64 {
    let seed = XxHash3_64::oneshot(b"report");
    XxHash3_64::oneshot_with_seed(seed, id.as_bytes())
}

/// The first documents, at most `most`, of an order by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends {
    most: usize,
    pub(super) kept: BTreeMap<RankKey, KeptDocument>,
}

impl Ends {
    /// Keeps the document that `make` makes if its key is among the first; drops the last for it.
    fn offer(&mut self, key: RankKey, make: impl FnOnce() -> KeptDocument) {
        let is_first = || self.kept.last_key_value().is_some_and(|(last, _)| key < *last);
        if self.kept.len() >= self.most && !is_first() {
            return;
        }
        self.kept.insert(key, make());
        if self.kept.len() > self.most {
            self.kept.pop_last();
        }
    }

    /// Adds the documents that `other` keeps of the same order.
    fn merge(&mut self, other: Self) {
        for (key, document) in other.kept {
            self.offer(key, || document);
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct HeadSurvey {
    pub(super) counts: ScoreCounts,
    pub(super) nan: u64,
    pub(super) unscored: u64,
    pub(super) top: Ends,
    pub(super) bottom: Ends,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ThresholdSurvey {
    /// The last candidates that pass; `below` holds the first that do not.
    pub(super) above: Ends,
    pub(super) below: Ends,
    /// The first of all documents that would not pass, candidates or not.
    pub(super) first_out: Option<RankKey>,
}

/// What the first pass finds of a language.
#[derive(Debug, Clone, Default)]
pub(super) struct LanguageSurvey {
    pub(super) totals: DocumentAmount,
    /// Documents with text and without a token count.
    pub(super) without_tokens: u64,
    pub(super) heads: Vec<HeadSurvey>,
    pub(super) thresholds: Vec<ThresholdSurvey>,
}

impl LanguageSurvey {
    pub(super) fn new(thresholds: &StoredThresholds, limits: &ReportLimits) -> Self {
        let ends = Ends { most: limits.examples, kept: BTreeMap::new() };
        let head = HeadSurvey { top: ends.clone(), bottom: ends.clone(), ..HeadSurvey::default() };
        let survey = ThresholdSurvey { above: ends.clone(), below: ends, first_out: None };
        Self {
            heads: vec![head; thresholds.keeps.len()],
            thresholds: vec![survey; thresholds.placed.len()],
            ..Self::default()
        }
    }

    /// Counts a document of the language with these `thresholds`.
    pub(super) fn add(&mut self, document: &Row<'_>, thresholds: &StoredThresholds) {
        self.totals.add(document.info.into());
        let is_uncounted = document.info.num_tokens.is_none() && document.info.num_bytes > 0;
        self.without_tokens += u64::from(is_uncounted);
        let ranked = thresholds.head_ranks(&document.scored);
        for (head, (survey, ranked)) in self.heads.iter_mut().zip(&ranked).enumerate() {
            match ranked {
                Some((key, number)) => {
                    survey.counts.add(*number);
                    survey.top.offer(*key, || KeptDocument::of(document));
                    survey.bottom.offer(key.reversed(), || KeptDocument::of(document));
                }
                None if document.scored.scores[head].is_some() => survey.nan += 1,
                None => survey.unscored += 1,
            }
        }
        let of_threshold =
            |at: usize| -> Option<HeadRank> { *ranked.get(thresholds.placed[at].head)? };
        for (at, survey) in self.thresholds.iter_mut().enumerate() {
            let Some(ranked) = of_threshold(at) else { continue };
            let is_first = survey.first_out.is_none_or(|first| ranked.0 < first);
            if is_first && !thresholds.placed[at].bound.keeps_key(ranked.0, ranked.1.score) {
                survey.first_out = Some(ranked.0);
            }
        }
        thresholds.selections_of(&document.scored, |at, passes| {
            let Some((key, _)) = of_threshold(at) else { return };
            let ThresholdSurvey { above, below, .. } = &mut self.thresholds[at];
            let (side, key) = if passes { (above, key.reversed()) } else { (below, key) };
            side.offer(key, || KeptDocument::of(document));
        });
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.totals.add(other.totals);
        self.without_tokens += other.without_tokens;
        for (mine, theirs) in self.heads.iter_mut().zip(other.heads) {
            mine.counts.merge(theirs.counts);
            mine.nan += theirs.nan;
            mine.unscored += theirs.unscored;
            mine.top.merge(theirs.top);
            mine.bottom.merge(theirs.bottom);
        }
        for (mine, theirs) in self.thresholds.iter_mut().zip(other.thresholds) {
            mine.above.merge(theirs.above);
            mine.below.merge(theirs.below);
            mine.first_out = mine.first_out.into_iter().chain(theirs.first_out).min();
        }
    }
}
