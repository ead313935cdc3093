//! Chooses the documents of a round: first a random sample, then the documents so near to a
//! threshold that f32 may treat them differently.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use twox_hash::XxHash3_64;

use polysift_base::error::{Error, Result};
use polysift_base::sample::BottomKSample;
use polysift_config::{
    HeadOutput, REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE, REFINE_SAFETY, REFINE_SAMPLE_EVERY,
};
use polysift_corpus::context::Context;
use polysift_corpus::embedded::Embedded;
use polysift_corpus::heads::Heads;
use polysift_corpus::rows::{Row, RunRows};
use polysift_corpus::scan::{Rescored, ScoreFiles, ScoredCorpus};
use polysift_corpus::select::thresholds_of;
use polysift_data::input::{DocumentBatch, DocumentBuilder};
use polysift_data::parts::read_scores;
use polysift_heads::head::DocumentScore;
use polysift_runs::run::{RunDir, Shard, Stage};
use polysift_selection::{ScoredDocument, Selection, Threshold, select};

/// The stored scores of a run.
pub(super) struct RunScores<'a> {
    pub(super) context: Context<'a>,
    pub(super) embedded: &'a Embedded,
    pub(super) heads: &'a Heads,
    pub(super) rows: RunRows<'a>,
}

impl<'a> RunScores<'a> {
    pub(super) fn open(
        context: Context<'a>,
        embedded: &'a Embedded,
        heads: &'a Heads,
    ) -> Result<Self> {
        let rows = RunRows::open(context, Some(ScoreFiles::Scored), embedded.languages())?;
        Ok(Self { context, embedded, heads, rows })
    }

    pub(super) fn shards(&self) -> &'a [Shard] {
        &self.embedded.plan.shards
    }

    /// Returns true if one of `thresholds` depends on the encoder.
    fn depend_on_encoder(&self, thresholds: &[Threshold]) -> bool {
        let mut heads = thresholds.iter().filter_map(|threshold| threshold.head);
        heads.any(|head| self.heads.is_encoded(self.rows.heads[head]))
    }

    /// Calls `visit` with every row of `shard`, at index `place` of the plan, that the thresholds
    /// are computed over.
    fn for_each_row(
        &self,
        place: u64,
        shard: &Shard,
        mut visit: impl FnMut(&Row<'_>),
    ) -> Result<()> {
        self.rows.shard(place, shard)?.for_each(|row| {
            if row.is_counted() {
                visit(row);
            }
            Ok(())
        })
    }
}

pub(super) struct RoundDocuments<'a> {
    scores: &'a RunScores<'a>,
    round: usize,
    rule: Rule,
}

enum Rule {
    /// Ordinals of the sample.
    Sample(HashSet<u64>),
    /// Documents near a threshold, by language.
    Near(BTreeMap<String, Near>),
}

impl<'a> RoundDocuments<'a> {
    /// Chooses the documents: for round 0 a sample, later by the differences seen so far.
    pub(super) fn choose(scores: &'a RunScores<'a>, round: usize) -> Result<Self> {
        let mut thresholds = BTreeMap::new();
        for language in scores.heads.languages() {
            let of_language = thresholds_of(scores.context, language, scores.heads)?;
            if scores.depend_on_encoder(&of_language) {
                thresholds.insert(language.clone(), of_language);
            }
        }
        let rule = if round == 0 {
            Rule::Sample(sample(scores, &thresholds)?)
        } else {
            let seen = differences(scores, round)?;
            let near = thresholds.into_iter().map(|(language, thresholds)| {
                let seen = seen.get(&language).map(Vec::as_slice);
                Ok((language.clone(), Near::of(scores, round, &language, &thresholds, seen)?))
            });
            Rule::Near(near.collect::<Result<_>>()?)
        };
        Ok(Self { scores, round, rule })
    }

    /// Returns the documents of `shard`, at index `place` of the plan, with stored scores by head.
    pub(super) fn of_shard(
        &self,
        place: u64,
        shard: &Shard,
    ) -> Result<(DocumentBatch, Vec<Vec<Option<DocumentScore>>>)> {
        let Self { scores, round, rule } = self;
        let done = scored_again(scores, *round, shard)?;
        let mut documents = DocumentBuilder::default();
        let mut stored = vec![Vec::new(); scores.rows.heads.len()];
        scores.for_each_row(place, shard, |row| {
            let is_chosen = match rule {
                Rule::Sample(ordinals) => ordinals.contains(&row.scored.ordinal),
                Rule::Near(_) if done.contains_key(&row.info.row) => false,
                Rule::Near(languages) => {
                    languages.get(row.info.language).is_some_and(|near| near.is_near(row))
                }
            };
            if is_chosen {
                documents.push(&row.info);
                let scores = row.scored.logits.iter().zip(row.scored.scores);
                for (stored, (logit, score)) in stored.iter_mut().zip(scores) {
                    let score = logit.zip(*score);
                    stored.push(score.map(|(logit, score)| DocumentScore { logit, score }));
                }
            }
        })?;
        Ok((documents.finish(), stored))
    }
}

/// The thresholds of a language over the scores so far, and the margins around them.
struct Near {
    selection: Selection,
    /// Margin in logits and output, by head of the run; `None` without a threshold or this
    /// language.
    margins: Vec<Option<(f64, HeadOutput)>>,
}

impl Near {
    /// Computes the thresholds over the scores with those of the first `rounds` rounds in place;
    /// margins come from the differences `seen`, one per head.
    fn of(
        scores: &RunScores<'_>,
        rounds: usize,
        language: &str,
        thresholds: &[Threshold],
        seen: Option<&[Differences]>,
    ) -> Result<Self> {
        let rescored = |shard: &Shard| scored_again(scores, rounds, shard);
        let RunScores { context, embedded, .. } = *scores;
        let files = ScoreFiles::Scored;
        let corpus = ScoredCorpus::open(context, embedded, language, files, Some(&rescored))?;
        let selection = select(&corpus, thresholds, context.config.selection.mode)?;
        let margin = |(head, name): (usize, &&str)| {
            let output = scores.heads.get(name, language)?.spec().output;
            thresholds.iter().find(|threshold| threshold.head == Some(head))?;
            let seen = seen.map(|heads| heads[head]).unwrap_or_default();
            let width = if scores.heads.is_encoded(name) { seen.margin() } else { 0.0 };
            Some((width, output))
        };
        Ok(Self { selection, margins: scores.rows.heads.iter().enumerate().map(margin).collect() })
    }

    /// Returns true if a threshold could treat the document `row` differently for a logit within
    /// the margin. A document with a NaN logit is always near.
    fn is_near(&self, row: &Row<'_>) -> bool {
        let [mut low, mut high] = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        let stored = row.scored.logits.iter().zip(row.scored.scores);
        for ((logit, score), margin) in stored.zip(&self.margins) {
            let scores = logit.zip(*score).zip(*margin);
            if scores.is_some_and(|((logit, _), _)| logit.is_nan()) {
                return true;
            }
            for (end, sign) in [(&mut low, -1.0), (&mut high, 1.0)] {
                let score = scores.map(|((logit, score), (width, output))| {
                    if width == 0.0 {
                        return DocumentScore { logit, score };
                    }
                    DocumentScore::new((f64::from(logit) + sign * width) as f32, output)
                });
                end.0.push(score.map(|s| s.logit));
                end.1.push(score.map(|s| s.score));
            }
        }
        let document = ScoredDocument { logits: &low.0, scores: &low.1, ..row.scored };
        let other = ScoredDocument { logits: &high.0, scores: &high.1, ..document };
        !self.selection.treats_alike(&document, &other)
    }
}

/// Differences between the logits of the run and in f32, for one head and language.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Differences {
    /// Number of documents scored both ways.
    pub(super) documents: u64,
    /// Largest difference; `None` if no logit of the run was a number.
    pub(super) largest: Option<f64>,
}

impl Differences {
    fn add(&mut self, logit: f32, exact: Option<f32>) {
        self.documents += 1;
        // Documents that the run could not score are scored in f32 whatever the margin is.
        if logit.is_nan() {
            return;
        }
        let difference = exact.map_or(f64::NAN, |exact| f64::from(logit) - f64::from(exact)).abs();
        // No margin is wide enough for a number that f32 does not confirm.
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        self.largest = Some(self.largest.map_or(difference, |largest| largest.max(difference)));
    }

    fn merge(&mut self, other: &Self) {
        self.documents += other.documents;
        self.largest = match (self.largest, other.largest) {
            (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
    }

    /// Returns the margin; infinite, for all documents, if no difference is known.
    pub(super) fn margin(&self) -> f64 {
        self.largest.map_or(f64::INFINITY, |largest| REFINE_SAFETY * largest)
    }
}

/// Returns the differences seen in the first `rounds` rounds, by language, one per head of the run.
pub(super) fn differences(
    scores: &RunScores<'_>,
    rounds: usize,
) -> Result<BTreeMap<String, Vec<Differences>>> {
    let none = || vec![Differences::default(); scores.rows.heads.len()];
    let of_shard = |(place, shard): (u64, &Shard)| {
        let done = scored_again(scores, rounds, shard)?;
        let mut by_language: BTreeMap<String, Vec<Differences>> = BTreeMap::new();
        if done.is_empty() {
            return Ok(by_language);
        }
        scores.for_each_row(place, shard, |row| {
            let Some(precise) = done.get(&row.info.row) else { return };
            let seen = by_language.entry(row.info.language.to_owned()).or_insert_with(none);
            for ((seen, logit), precise) in seen.iter_mut().zip(row.scored.logits).zip(precise) {
                if let Some(logit) = logit {
                    seen.add(*logit, precise.map(|score| score.logit));
                }
            }
        })?;
        Ok::<_, Error>(by_language)
    };
    let shards: Vec<_> = (0u64..).zip(scores.shards()).collect();
    shards.into_par_iter().map(of_shard).try_reduce(BTreeMap::new, |mut all, shard| {
        for (language, heads) in shard {
            let known = all.entry(language).or_insert_with(none);
            known.iter_mut().zip(&heads).for_each(|(mine, theirs)| mine.merge(theirs));
        }
        Ok(all)
    })
}

/// Samples documents with text from every language with `thresholds`; returns ordinals.
fn sample(
    scores: &RunScores<'_>,
    thresholds: &BTreeMap<String, Vec<Threshold>>,
) -> Result<HashSet<u64>> {
    let seed = scores.context.config.seed.0;
    // Number of documents of each language, and the ones with the smallest hashes.
    let empty = || (AtomicU64::new(0), BottomKSample::new(REFINE_MAX_SAMPLE as usize));
    let samples: BTreeMap<&str, _> =
        thresholds.keys().map(|language| (language.as_str(), empty())).collect();
    let shards: Vec<_> = (0u64..).zip(scores.shards()).collect();
    shards.into_par_iter().try_for_each(|(place, shard)| {
        scores.for_each_row(place, shard, |row| {
            let Some((documents, sample)) = samples.get(row.info.language) else { return };
            if row.info.num_bytes == 0 {
                return;
            }
            documents.fetch_add(1, Ordering::Relaxed);
            let ordinal = row.scored.ordinal;
            let hash = XxHash3_64::oneshot_with_seed(seed, &ordinal.to_le_bytes());
            sample.offer(u128::from(hash) << 64 | u128::from(ordinal), || ordinal);
        })
    })?;
    let of_language = |(documents, sample): (AtomicU64, BottomKSample<u64>)| {
        let size = documents.into_inner() / REFINE_SAMPLE_EVERY;
        let size = size.clamp(REFINE_MIN_SAMPLE, REFINE_MAX_SAMPLE) as usize;
        sample.into_items().into_iter().take(size)
    };
    Ok(samples.into_values().flat_map(of_language).collect())
}

/// Reads the f32 scores of `shard` from the first `rounds` rounds, by row, one entry per head.
pub(super) fn scored_again(
    scores: &RunScores<'_>,
    rounds: usize,
    shard: &Shard,
) -> Result<Rescored> {
    let run = scores.context.run;
    let mut scored = Rescored::new();
    for round in 0..rounds {
        if run.shard_marker(Stage::Refine, &RunDir::round_shard_key(round, shard))?.is_none() {
            continue;
        }
        for (index, name) in scores.rows.heads.iter().enumerate() {
            let path = run.round_part(round, name, shard);
            let part = read_scores(&path)?;
            for ((row, logit), score) in
                part.documents.rows().iter().zip(part.logits).zip(part.scores)
            {
                let by_head = scored.entry(*row).or_default();
                if by_head.len() != index {
                    return Err(Error::corrupt(&path, "holds other rows than the other heads"));
                }
                let score = logit.zip(score).map(|(logit, score)| DocumentScore { logit, score });
                by_head.push(score);
            }
        }
    }
    Ok(scored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_follows_the_largest_difference_in_either_direction() {
        let mut seen = Differences::default();
        assert!(seen.margin().is_infinite());
        seen.add(1.0, Some(1.25));
        seen.add(-3.0, Some(-3.5));
        assert_eq!((seen.documents, seen.margin()), (2, REFINE_SAFETY * 0.5));
    }

    #[test]
    fn a_number_that_f32_does_not_confirm_asks_for_all_documents_and_a_nan_for_none() {
        let mut seen = Differences::default();
        seen.add(f32::NAN, Some(1.0));
        seen.add(1.0, Some(1.0));
        assert_eq!(seen.largest, Some(0.0));
        seen.add(1.0, Some(f32::NAN));
        assert!(seen.margin().is_infinite());
    }
}
