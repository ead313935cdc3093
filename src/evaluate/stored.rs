//! The stored scores of a run: how they are distributed, and how far its heads agree. No text is
//! read and nothing is encoded.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::agreement::{Agreement, Column, Pair, pairs};
use crate::config::{Keep, Rate};
use crate::error::Result;
use crate::head::DocumentScore;
use crate::run::Shard;
use crate::selection::RankKey;
use crate::stage::context::Context;
use crate::stage::corpus::{ScoreFiles, ordinal, read_part};
use crate::stage::embedded::Embedded;

/// Documents of a language that are looked at, at most.
pub const DEFAULT_SAMPLE: usize = 250_000;

/// Quantiles of the scores that are told.
const QUANTILES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];

/// Tells the hash that draws the sample from the one that breaks ties.
const SAMPLE_SEED: u64 = 1;

/// The scores of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredReport {
    /// The run directory.
    pub run: String,
    /// By language.
    pub languages: BTreeMap<String, StoredLanguage>,
    /// Between the heads, over the sampled documents.
    pub agreement: Agreement,
}

/// The scores of one language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredLanguage {
    /// Documents.
    pub documents: usize,
    /// Those that quantiles and agreement are taken from: all with a score of any head, or as many
    /// of them as were asked for, those with the least hashes of their ids.
    pub sampled: usize,
    /// By name.
    pub heads: BTreeMap<String, StoredHead>,
}

/// The scores of one head in one language.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredHead {
    /// Documents with a score.
    pub scored: usize,
    /// Documents whose score is NaN.
    pub nan: usize,
    /// Documents without a score.
    pub unscored: usize,
    /// Scores by quantile (nearest rank) of the sampled documents; empty without any.
    pub quantiles: BTreeMap<String, f32>,
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
    let mut languages = BTreeMap::new();
    let mut agreements = BTreeMap::new();
    let found = embedded.languages();
    context.progress.begin("evaluate", Some(found.len() as u64), "languages");
    let outcome = found.into_iter().try_for_each(|language| {
        let seen =
            Scan { context, files, heads: &heads, language: &language, sample }.all(&embedded)?;
        agreements.insert(language.clone(), seen.pairs(&heads, top));
        languages.insert(language, seen.report(&heads));
        context.progress.advance(1, 0);
        Ok(())
    });
    context.progress.end();
    outcome.map(|()| StoredReport {
        run: context.run.root().display().to_string(),
        languages,
        agreement: Agreement::new(top, agreements),
    })
}

/// A look at the scores of one language.
struct Scan<'a> {
    context: Context<'a>,
    files: ScoreFiles,
    heads: &'a [&'a str],
    language: &'a str,
    sample: usize,
}

/// A sampled document.
struct Entry {
    /// Its place in the sample, and its shard and row, which tell equal ids apart.
    place: (u64, u64),
    /// What breaks ties of the logit.
    tie: RankKey,
    /// By head.
    scores: Box<[Option<DocumentScore>]>,
}

/// What became of the documents of one head.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    scored: usize,
    nan: usize,
    unscored: usize,
}

/// What was seen so far.
struct Seen {
    documents: usize,
    counts: Vec<Counts>,
    entries: Vec<Entry>,
}

impl Scan<'_> {
    fn all(&self, embedded: &Embedded) -> Result<Seen> {
        let shards = embedded.shards_of(self.language).into_par_iter();
        shards.map(|(place, shard, num_parts)| self.shard(place, shard, num_parts)).try_reduce(
            || Seen::nothing(self.heads.len()),
            |mut one, other| {
                one.merge(other, self.sample);
                Ok(one)
            },
        )
    }

    fn shard(&self, place: u64, shard: &Shard, num_parts: usize) -> Result<Seen> {
        let mut seen = Seen::nothing(self.heads.len());
        if self.heads.is_empty() {
            return Ok(seen);
        }
        for index in 0..num_parts {
            self.context.stop.check()?;
            let parts = read_part(self.context, self.files, self.heads, shard, index)?;
            let documents = &parts[0];
            for row in 0..documents.rows.len() {
                if documents.languages[row] == self.language {
                    let score = |head: usize| {
                        let (logit, score) = (parts[head].logits[row]?, parts[head].scores[row]?);
                        Some(DocumentScore { logit, score })
                    };
                    let ordinal = ordinal(place, documents.rows[row]);
                    let scores = (0..self.heads.len()).map(score).collect();
                    seen.add(&documents.ids[row], ordinal, scores);
                }
            }
            seen.thin(self.sample);
        }
        Ok(seen)
    }
}

impl Seen {
    fn nothing(num_heads: usize) -> Self {
        Self { documents: 0, counts: vec![Counts::default(); num_heads], entries: Vec::new() }
    }

    fn add(&mut self, id: &str, ordinal: u64, scores: Box<[Option<DocumentScore>]>) {
        self.documents += 1;
        for (counts, score) in self.counts.iter_mut().zip(scores.iter()) {
            match score {
                None => counts.unscored += 1,
                Some(score) if score.is_nan() => counts.nan += 1,
                Some(_) => counts.scored += 1,
            }
        }
        if scores.iter().flatten().any(|score| !score.is_nan()) {
            self.entries.push(Entry {
                place: (xxh3_64_with_seed(id.as_bytes(), SAMPLE_SEED), ordinal),
                tie: RankKey::of_logit(0.0, Keep::Above).with_id(id, ordinal),
                scores,
            });
        }
    }

    /// Leaves only the `sample` entries with the least places.
    fn thin(&mut self, sample: usize) {
        if self.entries.len() > sample {
            self.entries.select_nth_unstable_by_key(sample, |entry| entry.place);
            self.entries.truncate(sample);
        }
    }

    fn merge(&mut self, other: Self, sample: usize) {
        self.documents += other.documents;
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            mine.scored += theirs.scored;
            mine.nan += theirs.nan;
            mine.unscored += theirs.unscored;
        }
        self.entries.extend(other.entries);
        self.thin(sample);
    }

    fn pairs(&self, heads: &[&str], top: Rate) -> Vec<Pair> {
        let ties: Vec<RankKey> = self.entries.iter().map(|entry| entry.tie).collect();
        let logit = |score: Option<DocumentScore>| score.map_or(f32::NAN, |score| score.logit);
        let columns: Vec<Column<'_>> = (heads.iter().enumerate())
            .map(|(head, name)| {
                (*name, self.entries.iter().map(|entry| logit(entry.scores[head])).collect())
            })
            .collect();
        pairs(&columns, &ties, top)
    }

    fn report(&self, heads: &[&str]) -> StoredLanguage {
        let head = |(head, name): (usize, &&str)| {
            let Counts { scored, nan, unscored } = self.counts[head];
            let quantiles = self.quantiles(head);
            ((*name).to_owned(), StoredHead { scored, nan, unscored, quantiles })
        };
        StoredLanguage {
            documents: self.documents,
            sampled: self.entries.len(),
            heads: heads.iter().enumerate().map(head).collect(),
        }
    }

    fn quantiles(&self, head: usize) -> BTreeMap<String, f32> {
        let scores = self.entries.iter().filter_map(|entry| entry.scores[head]);
        let mut scores: Vec<f32> = scores.filter(|s| !s.is_nan()).map(|s| s.score).collect();
        scores.sort_unstable_by(f32::total_cmp);
        let last = scores.len().saturating_sub(1) as f64;
        let at = |q: &f64| Some((q.to_string(), *scores.get((q * last).round() as usize)?));
        QUANTILES.iter().filter_map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Adds row `i`: NaN for 0, no score from 5 on.
    fn add(seen: &mut Seen, i: usize, (id, logit): (u8, i8)) {
        let logit = if logit == 0 { f32::NAN } else { f32::from(logit) };
        let score =
            (logit < 5.0 || logit.is_nan()).then_some(DocumentScore { logit, score: logit });
        seen.add(&id.to_string(), i as u64, Box::new([score]));
    }

    fn seen(rows: &[(u8, i8)], sample: usize) -> Seen {
        let mut seen = Seen::nothing(1);
        rows.iter().enumerate().for_each(|(i, &row)| add(&mut seen, i, row));
        seen.thin(sample);
        seen
    }

    fn places(seen: &Seen) -> Vec<(u64, u64)> {
        let mut places: Vec<_> = seen.entries.iter().map(|entry| entry.place).collect();
        places.sort_unstable();
        places
    }

    proptest! {
        #[test]
        fn the_sample_does_not_depend_on_how_documents_are_grouped(
            rows in prop::collection::vec((any::<u8>(), -6i8..7), 0..80),
            start in 0usize..80,
            sample in 0usize..20,
        ) {
            let whole = seen(&rows, sample);
            let mut parts = Seen::nothing(1);
            for i in 0..rows.len() {
                let i = (start + i) % rows.len();
                let mut one = Seen::nothing(1);
                add(&mut one, i, rows[i]);
                parts.merge(one, sample);
            }
            prop_assert_eq!(places(&whole), places(&parts));
            prop_assert_eq!(whole.documents, parts.documents);
            prop_assert!(whole.entries.len() <= sample);
        }
    }

    #[test]
    fn every_document_is_counted_once() {
        let seen = seen(&[(1, 0), (2, 1), (3, 6), (4, -3)], 1);
        let counts = seen.counts[0];
        assert_eq!((seen.documents, counts.scored, counts.nan, counts.unscored), (4, 2, 1, 1));
        assert_eq!(seen.entries.len(), 1);
    }

    #[test]
    fn quantiles_are_scores_that_there_are() {
        let rows: Vec<(u8, i8)> = vec![(1, 1), (2, 2), (3, 3), (4, 4)];
        let quantiles = seen(&rows, 10).quantiles(0);
        assert_eq!((quantiles["0"], quantiles["1"]), (1.0, 4.0));
        assert!(seen(&[], 10).quantiles(0).is_empty());
    }
}
