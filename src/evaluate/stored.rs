//! The stored scores of a run: how they are distributed, and how far its heads agree. No text is
//! read and nothing is encoded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use serde::Serialize;
use twox_hash::XxHash3_64;

use super::agreement::{HeadLogits, Pair, add_means, pairs};
use crate::config::{Keep, Rate};
use crate::error::Result;
use crate::head::DocumentScore;
use crate::parts::ScoreRows;
use crate::sample::BottomKSample;
use crate::selection::RankKey;
use crate::stage::context::Context;
use crate::stage::corpus::{ScoreFiles, ordinal, read_part};
use crate::stage::embedded::Embedded;

/// Documents of a language that are looked at, at most.
pub const DEFAULT_SAMPLE: usize = 250_000;

/// Quantiles of the scores that are reported.
const QUANTILES: [(&str, f64); 7] = [
    ("q0.00", 0.0),
    ("q0.05", 0.05),
    ("q0.25", 0.25),
    ("q0.50", 0.5),
    ("q0.75", 0.75),
    ("q0.95", 0.95),
    ("q1.00", 1.0),
];

/// Tells the hash that draws the sample from the one that breaks ties.
const SAMPLE_SEED: u64 = 1;

/// The scores of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredReport {
    /// The run directory.
    pub run: String,
    /// The scores of each head in each language.
    pub scores: Vec<StoredScores>,
    /// Between the heads, over the sampled documents.
    pub agreement: Vec<Pair>,
}

/// The scores of one head in one language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredScores {
    /// Its name.
    pub head: String,
    /// The language.
    pub language: String,
    /// Documents.
    pub documents: usize,
    /// Documents with a score.
    pub scored: usize,
    /// Documents whose score is NaN.
    pub nan: usize,
    /// Documents without a score.
    pub unscored: usize,
    /// Documents that quantiles and agreement are taken from: all with a score of any head, or as
    /// many of them as were asked for, those with the least hashes of their ids.
    pub sampled: usize,
    /// Scores by quantile (nearest rank) of the sampled documents.
    #[serde(flatten)]
    pub quantiles: BTreeMap<&'static str, Option<f32>>,
}

/// Compares the heads of a run on their stored scores, those of the refine stage where there are
/// any. At most `sample` documents of a language are held in memory; which ones depends neither on
/// the order of files nor on threads.
///
/// # Errors
/// [`Error::Missing`](crate::Error::Missing) where a head has not scored everything;
/// [`Error::Stopped`](crate::Error::Stopped); errors of reading the scores.
pub fn evaluate_run(context: Context<'_>, top: Rate, sample: usize) -> Result<StoredReport> {
    let heads: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let embedded = Embedded::scored(context.run, &heads)?;
    let files = ScoreFiles::selected(context)?;
    let (mut scores, mut agreement) = (Vec::new(), Vec::new());
    let languages = embedded.languages();
    context.progress.begin("evaluate", Some(languages.len() as u64), "languages");
    let outcome = languages.into_iter().try_for_each(|language| -> Result<()> {
        let found = Scan::new(&heads, sample);
        let shards = embedded.shards_of(&language).into_par_iter();
        shards.try_for_each(|(place, shard, num_parts)| -> Result<()> {
            (0..num_parts).try_for_each(|index| {
                context.stop.check()?;
                if !heads.is_empty() {
                    found.add_part(
                        &read_part(context, files, &heads, shard, index)?,
                        place,
                        &language,
                    );
                }
                Ok(())
            })
        })?;
        let (rows, documents) = found.finish(&language);
        scores.extend(rows);
        agreement.extend(agreement_of(&language, &heads, &documents, top));
        context.progress.advance(1, 0);
        Ok(())
    });
    context.progress.end();
    outcome?;
    add_means(&mut agreement);
    Ok(StoredReport { run: context.run.root().display().to_string(), scores, agreement })
}

/// A sampled document.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SampledDocument {
    /// What breaks ties of the logit.
    tie: RankKey,
    /// Bits of logit and score, by head.
    scores: Box<[Option<[u32; 2]>]>,
}

impl SampledDocument {
    fn score(&self, head: usize) -> Option<DocumentScore> {
        let [logit, score] = self.scores[head]?.map(f32::from_bits);
        Some(DocumentScore { logit, score })
    }
}

/// A look at the scores of one language, by any number of threads.
struct Scan<'a> {
    heads: &'a [&'a str],
    sample: BottomKSample<SampledDocument>,
    documents: AtomicUsize,
    /// Documents scored, NaN and without a score, by head.
    counts: Vec<[AtomicUsize; 3]>,
}

impl<'a> Scan<'a> {
    fn new(heads: &'a [&'a str], sample: usize) -> Self {
        let counts = heads.iter().map(|_| Default::default()).collect();
        Self { heads, sample: BottomKSample::new(sample), documents: AtomicUsize::new(0), counts }
    }

    /// Looks at one part of the scores of the shard at `place`, head by head.
    fn add_part(&self, heads: &[ScoreRows], place: u64, language: &str) {
        for (row, document) in heads[0].documents.iter().enumerate() {
            if document.language == language {
                let score = |head: &ScoreRows| Some([head.logits[row]?, head.scores[row]?]);
                let scores: Vec<_> = heads.iter().map(score).collect();
                self.add(document.id, ordinal(place, document.row), &scores);
            }
        }
    }

    /// `ordinal` tells documents of one id apart.
    fn add(&self, id: &str, ordinal: u64, scores: &[Option<[f32; 2]>]) {
        let is_nan = |score: &[f32; 2]| score.iter().any(|value| value.is_nan());
        self.documents.fetch_add(1, Ordering::Relaxed);
        for (counts, score) in self.counts.iter().zip(scores) {
            let kind = score.as_ref().map_or(2, |score| usize::from(is_nan(score)));
            counts[kind].fetch_add(1, Ordering::Relaxed);
        }
        if scores.iter().flatten().any(|score| !is_nan(score)) {
            let hash = XxHash3_64::oneshot_with_seed(SAMPLE_SEED, id.as_bytes());
            self.sample.offer(u128::from(hash) << 64 | u128::from(ordinal), || SampledDocument {
                tie: RankKey::of_logit(0.0, Keep::Above).with_id(id, ordinal),
                scores: scores.iter().map(|score| Some((*score)?.map(f32::to_bits))).collect(),
            });
        }
    }

    /// A row of each head, and the sampled documents.
    fn finish(self, language: &str) -> (Vec<StoredScores>, Vec<SampledDocument>) {
        let documents = self.sample.into_items();
        let row = |(head, name): (usize, &&str)| {
            let [scored, nan, unscored] =
                [0, 1, 2].map(|kind: usize| self.counts[head][kind].load(Ordering::Relaxed));
            StoredScores {
                head: (*name).to_owned(),
                language: language.to_owned(),
                documents: self.documents.load(Ordering::Relaxed),
                scored,
                nan,
                unscored,
                sampled: documents.len(),
                quantiles: quantiles(&documents, head),
            }
        };
        let rows = self.heads.iter().enumerate().map(row).collect();
        (rows, documents)
    }
}

/// How far the heads agree on `documents`.
fn agreement_of(
    language: &str,
    heads: &[&str],
    documents: &[SampledDocument],
    top: Rate,
) -> Vec<Pair> {
    let ties: Vec<RankKey> = documents.iter().map(|document| document.tie).collect();
    let logit = |score: Option<DocumentScore>| score.map_or(f32::NAN, |score| score.logit);
    let columns: Vec<HeadLogits<'_>> = (heads.iter().enumerate())
        .map(|(head, name)| {
            (*name, documents.iter().map(|document| logit(document.score(head))).collect())
        })
        .collect();
    pairs(language, &columns, &ties, top)
}

fn quantiles(documents: &[SampledDocument], head: usize) -> BTreeMap<&'static str, Option<f32>> {
    let scores = documents.iter().filter_map(|document| document.score(head));
    let mut scores: Vec<f32> = scores.filter(|s| !s.is_nan()).map(|s| s.score).collect();
    scores.sort_unstable_by(f32::total_cmp);
    let last = scores.len().saturating_sub(1) as f64;
    QUANTILES.map(|(name, q)| (name, scores.get((q * last).round() as usize).copied())).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Adds row `i`: NaN for 0, no score from 5 on.
    fn add(scan: &Scan<'_>, i: usize, (id, logit): (u8, i8)) {
        let logit = if logit == 0 { f32::NAN } else { f32::from(logit) };
        let score = (logit < 5.0 || logit.is_nan()).then_some([logit; 2]);
        scan.add(&id.to_string(), i as u64, &[score]);
    }

    fn scan(rows: impl Iterator<Item = (usize, (u8, i8))>, sample: usize) -> Scan<'static> {
        let scan = Scan::new(&["h"], sample);
        rows.for_each(|(i, row)| add(&scan, i, row));
        scan
    }

    proptest! {
        #[test]
        fn the_sample_does_not_depend_on_the_order_of_the_documents(
            rows in prop::collection::vec((any::<u8>(), -6i8..7), 0..80),
            start in 0usize..80,
            sample in 0usize..20,
        ) {
            let (one, mut documents) =
                scan(rows.iter().copied().enumerate(), sample).finish("und");
            let turned = (0..rows.len()).map(|i| (start + i) % rows.len()).map(|i| (i, rows[i]));
            let (other, mut others) = scan(turned, sample).finish("und");
            documents.sort_unstable();
            others.sort_unstable();
            prop_assert_eq!((one, &documents), (other, &others));
            prop_assert!(documents.len() <= sample);
        }
    }

    #[test]
    fn every_document_is_counted_once() {
        let rows = [(1, 0), (2, 1), (3, 6), (4, -3)];
        let (rows, _) = scan(rows.into_iter().enumerate(), 1).finish("und");
        let row = &rows[0];
        assert_eq!((row.documents, row.scored, row.nan, row.unscored), (4, 2, 1, 1));
        assert_eq!(row.sampled, 1);
    }

    #[test]
    fn quantiles_are_scores_that_there_are() {
        let rows = [(1, 1), (2, 2), (3, 3), (4, 4)];
        let (rows, _) = scan(rows.into_iter().enumerate(), 10).finish("und");
        assert_eq!(
            (rows[0].quantiles["q0.00"], rows[0].quantiles["q1.00"]),
            (Some(1.0), Some(4.0))
        );
        let (none, _) = scan(std::iter::empty(), 10).finish("und");
        assert!(none[0].quantiles.values().all(Option::is_none));
    }
}
