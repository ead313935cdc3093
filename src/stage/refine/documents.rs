//! Which documents a round scores: first a sample, then those near a threshold.

use std::collections::{BTreeMap, BinaryHeap, HashSet};

use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Job;
use super::margins::evidence;
use super::overlay::{MixedCorpus, for_each_part, overlay};
use crate::config::{Activation, REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE, REFINE_SAMPLE_EVERY};
use crate::error::Result;
use crate::head::DocumentScore;
use crate::parts::ScoreRows;
use crate::run::Shard;
use crate::selection::{ScoredDocument, Selection, Threshold, select};
use crate::stage::corpus::{ordinal, thresholds_of};

/// The documents of a round.
pub(super) struct Wanted<'a> {
    job: &'a Job<'a>,
    round: usize,
    rule: Rule,
}

enum Rule {
    /// These ordinals.
    Sample(HashSet<u64>),
    /// By language.
    Near(BTreeMap<String, Near>),
}

/// The thresholds of a language over the scores so far, and how far a document has to be from them.
struct Near {
    selection: Selection,
    /// One per head of the run; `None` for heads that make no threshold or do not serve the language.
    margins: Vec<Option<Margin>>,
}

#[derive(Clone, Copy)]
struct Margin {
    /// In logits.
    width: f64,
    activation: Activation,
}

impl<'a> Wanted<'a> {
    pub(super) fn of_round(job: &'a Job<'a>, round: usize) -> Result<Self> {
        let mut thresholds = BTreeMap::new();
        for language in job.heads.languages() {
            let of_language = thresholds_of(job.context, language, job.heads)?;
            if of_language.iter().any(|threshold| threshold.head.is_some()) {
                thresholds.insert(language.clone(), of_language);
            }
        }
        let rule = if round == 0 {
            Rule::Sample(sample(job, &thresholds)?)
        } else {
            let seen = evidence(job, round)?;
            let near = thresholds.into_iter().map(|(language, thresholds)| {
                let corpus = MixedCorpus { job, language: &language, rounds: round };
                let selection = select(&corpus, &thresholds, job.context.config.selection.mode)?;
                let margin = |(head, name): (usize, &&str)| {
                    let spec = job.heads.get(name, &language)?.spec();
                    thresholds.iter().find(|threshold| threshold.head == Some(head))?;
                    let seen = seen.get(&language).map(|heads| heads[head]).unwrap_or_default();
                    // The encoder has no part in the scores of texts.
                    let width = if job.heads.is_text(name) { 0.0 } else { seen.margin() };
                    Some(Margin { width, activation: spec.activation })
                };
                let margins = job.names.iter().enumerate().map(margin).collect();
                Ok((language.clone(), Near { selection, margins }))
            });
            Rule::Near(near.collect::<Result<_>>()?)
        };
        Ok(Self { job, round, rule })
    }

    /// The documents of `shard`, the one at `place` of the plan, with the scores of the first head.
    pub(super) fn documents(&self, place: u64, shard: &Shard) -> Result<ScoreRows> {
        let Self { job, round, rule } = self;
        let done = overlay(job, *round, shard)?;
        let mut documents = ScoreRows::default();
        for_each_part(job, shard, |heads| {
            let Some(part) = heads.first() else { return Ok(()) };
            for (at, row) in part.rows.iter().enumerate() {
                let is_wanted = match rule {
                    Rule::Sample(ordinals) => ordinals.contains(&ordinal(place, *row)),
                    Rule::Near(_) if done.contains_key(row) => false,
                    Rule::Near(languages) => languages
                        .get(&part.languages[at])
                        .is_some_and(|near| near.is_near(place, heads, at)),
                };
                if is_wanted {
                    push(&mut documents, part, at);
                }
            }
            Ok(())
        })?;
        Ok(documents)
    }
}

fn push(documents: &mut ScoreRows, part: &ScoreRows, at: usize) {
    documents.rows.push(part.rows[at]);
    documents.ids.push(part.ids[at].clone());
    documents.languages.push(part.languages[at].clone());
    documents.num_bytes.push(part.num_bytes[at]);
    if let Some(counts) = &part.num_tokens {
        documents.num_tokens.get_or_insert_default().push(counts[at]);
    }
    documents.logits.push(part.logits[at]);
    documents.scores.push(part.scores[at]);
}

impl Near {
    /// Whether a logit within the margin of that of document `at` could be treated otherwise by a
    /// threshold; a logit that is not a number tells nothing, so such a document always is near.
    fn is_near(&self, place: u64, heads: &[ScoreRows], at: usize) -> bool {
        let [mut low, mut high] = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        for (part, margin) in heads.iter().zip(&self.margins) {
            let scores = part.logits[at].zip(part.scores[at]).zip(*margin);
            if scores.is_some_and(|((logit, _), _)| logit.is_nan()) {
                return true;
            }
            for (end, sign) in [(&mut low, -1.0), (&mut high, 1.0)] {
                let score = scores.map(|((logit, score), margin)| {
                    if margin.width == 0.0 {
                        return DocumentScore { logit, score };
                    }
                    let moved = (f64::from(logit) + sign * margin.width) as f32;
                    DocumentScore::new(moved, margin.activation)
                });
                end.0.push(score.map(|s| s.logit));
                end.1.push(score.map(|s| s.score));
            }
        }
        let Some(first) = heads.first() else { return false };
        let document = ScoredDocument {
            id: &first.ids[at],
            ordinal: ordinal(place, first.rows[at]),
            logits: &low.0,
            scores: &low.1,
        };
        let other = ScoredDocument { logits: &high.0, scores: &high.1, ..document };
        !self.selection.treats_alike(&document, &other)
    }
}

/// The documents of a language with the smallest hashes.
#[derive(Default)]
struct Lottery {
    documents: u64,
    /// Hash and ordinal.
    drawn: BinaryHeap<(u64, u64)>,
}

impl Lottery {
    fn add(&mut self, hash: u64, ordinal: u64) {
        self.documents += 1;
        self.keep((hash, ordinal));
    }

    fn keep(&mut self, ticket: (u64, u64)) {
        if self.drawn.len() < REFINE_MAX_SAMPLE as usize {
            self.drawn.push(ticket);
        } else if self.drawn.peek().is_some_and(|worst| ticket < *worst) {
            self.drawn.pop();
            self.drawn.push(ticket);
        }
    }

    fn merge(&mut self, other: Self) {
        self.documents += other.documents;
        other.drawn.into_iter().for_each(|ticket| self.keep(ticket));
    }

    /// The ordinals of the sample.
    fn ordinals(self) -> impl Iterator<Item = u64> {
        let size = (self.documents / REFINE_SAMPLE_EVERY)
            .clamp(REFINE_MIN_SAMPLE, REFINE_MAX_SAMPLE) as usize;
        self.drawn.into_sorted_vec().into_iter().take(size).map(|(_, ordinal)| ordinal)
    }
}

type Lotteries = BTreeMap<String, Lottery>;

/// The ordinals of a random sample of the documents with text, of every language with `thresholds`.
fn sample(job: &Job<'_>, thresholds: &BTreeMap<String, Vec<Threshold>>) -> Result<HashSet<u64>> {
    let shards: Vec<_> = (0u64..).zip(&job.plan.shards).collect();
    let of_shard = |&(place, shard): &(u64, &Shard)| draw(job, thresholds, place, shard);
    let all = shards.par_iter().map(of_shard).try_reduce(Lotteries::new, |mut all, shard| {
        for (language, lottery) in shard {
            all.entry(language).or_default().merge(lottery);
        }
        Ok(all)
    })?;
    Ok(all.into_values().flat_map(Lottery::ordinals).collect())
}

fn draw(
    job: &Job<'_>,
    thresholds: &BTreeMap<String, Vec<Threshold>>,
    place: u64,
    shard: &Shard,
) -> Result<Lotteries> {
    let seed = job.context.config.seed.0;
    let mut lotteries = Lotteries::new();
    for_each_part(job, shard, |heads| {
        let Some(first) = heads.first() else { return Ok(()) };
        for (at, &row) in first.rows.iter().enumerate() {
            let language = &first.languages[at];
            if first.num_bytes[at] == 0 || !thresholds.contains_key(language) {
                continue;
            }
            let ordinal = ordinal(place, row);
            let hash = xxh3_64_with_seed(&ordinal.to_le_bytes(), seed);
            lotteries.entry(language.clone()).or_default().add(hash, ordinal);
        }
        Ok(())
    })?;
    Ok(lotteries)
}
