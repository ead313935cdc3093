//! Chooses the documents of a round: first a random sample, then the documents so near to a
//! threshold that f32 may treat them differently.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::margin::{Differences, Distances, Seen};
use polysift_base::error::{Error, Result};
use polysift_base::metrics::bisect;
use polysift_base::sample::{BottomKSample, ordinal_rank};
use polysift_config::{
    HeadOutput, REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE, REFINE_RISK_DIVISOR, REFINE_SAMPLE_EVERY,
};
use polysift_corpus::mixed::MixedScores;
use polysift_corpus::rows::{Row, RunRows};
use polysift_corpus::scan::ScoredCorpus;
use polysift_corpus::score_files::{Rescored, RescoredOf};
use polysift_corpus::select::thresholds_of;
use polysift_corpus::{Context, Embedded, Heads, ScoreFiles};
use polysift_data::input::{DocumentBatch, DocumentBuilder};
use polysift_data::parts::read_scores;
use polysift_encoder::Model;
use polysift_heads::head::DocumentScore;
use polysift_runs::run::{RunDir, Shard, Stage};
use polysift_selection::{Outcome, ScoredDocument, Selection, Threshold, ThresholdReport, select};

pub(super) struct RunScores<'a> {
    pub(super) context: Context<'a>,
    pub(super) embedded: &'a Embedded,
    pub(super) heads: &'a Heads,
    pub(super) rows: RunRows<'a>,
    /// Loaded when the first document has to be encoded.
    pub(super) model: OnceLock<Model>,
}

impl<'a> RunScores<'a> {
    /// Returns the shards with their indices in the plan.
    pub(super) fn shards(&self) -> Vec<(u64, &'a Shard)> {
        (0u64..).zip(&self.embedded.plan.shards).collect()
    }

    /// Returns true if `threshold` is over scores that depend on the encoder.
    fn is_encoded(&self, threshold: &Threshold) -> bool {
        threshold.head.is_some_and(|head| self.heads.is_encoded(self.rows.heads[head]))
    }

    /// Returns the thresholds of the languages with thresholds that depend on the encoder.
    fn encoded_thresholds(&self) -> Result<BTreeMap<String, Vec<Threshold>>> {
        let mut thresholds = BTreeMap::new();
        for language in self.heads.languages() {
            let of_language = thresholds_of(self.context, language, self.heads)?;
            if of_language.iter().any(|threshold| self.is_encoded(threshold)) {
                thresholds.insert(language.clone(), of_language);
            }
        }
        Ok(thresholds)
    }

    /// Returns the accepted share of wrong decisions; `None` if none is accepted.
    fn risk(&self) -> Option<f64> {
        Some(self.context.config.selection.refine_risk).filter(|risk| *risk > 0.0)
    }

    /// Calls `visit` with the rows of `shard`, at index `place` of the plan, that thresholds count.
    fn for_each_row(
        &self,
        place: u64,
        shard: &Shard,
        mut visit: impl FnMut(&Row<'_>),
    ) -> Result<()> {
        self.rows.shard(place, shard)?.for_each(|row| {
            if !row.is_removed && !row.is_dropped {
                visit(row);
            }
            Ok(())
        })
    }

    /// Computes the thresholds over scores with those of the first `rounds` rounds, and the
    /// margins.
    pub(super) fn near_thresholds(&self, rounds: usize) -> Result<BTreeMap<String, Near>> {
        let RunScores { context, embedded, .. } = *self;
        let rescored = |shard: &Shard| self.scored_again(0..rounds, shard);
        // The first round is a sample; all others are near thresholds.
        let (all, later) = (self.differences(0..rounds)?, self.differences(1..rounds)?);
        let (files, rescored) = (ScoreFiles::Scored, Some(&rescored as &RescoredOf<'_>));
        let groups = MixedScores::groups(context, embedded, files, rescored);
        let mut languages = BTreeMap::new();
        for (language, thresholds) in self.encoded_thresholds()? {
            let mixed = groups.with(&language)?;
            let mixed = mixed.as_deref();
            let corpus = ScoredCorpus::open(context, embedded, &language, files, rescored, mixed)?;
            let selection = select(&corpus, &thresholds, context.config.selection.mode)?;
            let of = |seen: &BTreeMap<String, Vec<Differences>>, head: usize| {
                seen.get(&language).map(|heads| heads[head]).unwrap_or_default()
            };
            let (mut seen, mut scales, mut freedom) = (Vec::new(), Vec::new(), f64::INFINITY);
            for (head, name) in self.rows.heads.iter().enumerate() {
                let output = self.heads.get(name, &language).map(|head| head.spec().output);
                let has_threshold = thresholds.iter().any(|threshold| threshold.head == Some(head));
                let differences = Seen { all: of(&all, head), near: of(&later, head) };
                let mut scale = 0.0;
                if self.heads.is_encoded(name) && has_threshold {
                    let spread = differences.spread();
                    scale = if self.risk().is_some() { spread.scale } else { differences.widest() };
                    freedom = freedom.min(spread.freedom);
                }
                seen.push(differences.all);
                scales.push(output.filter(|_| has_threshold).map(|output| (scale, output)));
            }
            let near = Near { selection, seen, scales, freedom, reach: 1.0, expected: None };
            languages.insert(language, near);
        }
        let Some(risk) = self.risk() else { return Ok(languages) };
        let visit = |found: &mut Distances, row: &Row<'_>, _: &[_]| {
            if let Some(near) = languages.get(row.info.language) {
                found.add(|distance| near.is_alike(row, distance));
            }
        };
        let merge = |mine: &mut Distances, theirs: Distances| mine.merge(&theirs);
        let mut distances = self.fold_rows(None, || Distances::NONE, visit, merge)?;
        for (language, near) in &mut languages {
            let distances = distances.remove(language).unwrap_or(Distances::NONE);
            let heads = near.scales.iter().flatten().filter(|(scale, _)| *scale > 0.0).count();
            let allowed = risk * near.mean_smaller_side(self);
            let (reach, expected) = distances.reach(near.freedom, heads, allowed);
            (near.reach, near.expected) = (reach, Some(expected));
        }
        Ok(languages)
    }

    /// Folds the rows of each language that were scored again in `rounds`, each with these scores;
    /// or all rows, without any. The order in which threads finish shards does not matter.
    fn fold_rows<T: Send>(
        &self,
        rounds: Option<&Range<usize>>,
        new: impl Fn() -> T + Sync,
        visit: impl Fn(&mut T, &Row<'_>, &[Option<DocumentScore>]) + Sync,
        merge: impl Fn(&mut T, T),
    ) -> Result<BTreeMap<String, T>> {
        let of_shard = |(place, shard): (u64, &Shard)| {
            let mut languages: BTreeMap<String, T> = BTreeMap::new();
            let again = |rounds: &Range<usize>| self.scored_again(rounds.clone(), shard);
            let done = rounds.map(again).transpose()?;
            if done.as_ref().is_some_and(Rescored::is_empty) {
                return Ok(languages);
            }
            self.for_each_row(place, shard, |row| {
                let precise = match &done {
                    Some(done) => done.get(&row.info.row).map(Vec::as_slice),
                    None => Some(&[][..]),
                };
                let Some(precise) = precise else { return };
                let language = row.info.language.to_owned();
                visit(languages.entry(language).or_insert_with(&new), row, precise);
            })?;
            Ok::<_, Error>(languages)
        };
        let found: Vec<_> = self.shards().into_par_iter().map(of_shard).collect::<Result<_>>()?;
        let mut all = BTreeMap::new();
        for (language, folded) in found.into_iter().flatten() {
            merge(all.entry(language).or_insert_with(&new), folded);
        }
        Ok(all)
    }

    /// Finds by language how many documents of the first `rounds` rounds a threshold treats
    /// differently in f32, and the largest distance of one to it, as a share of the margin.
    pub(super) fn changes(
        &self,
        rounds: usize,
        languages: &BTreeMap<String, Near>,
    ) -> Result<BTreeMap<String, (u64, f64)>> {
        let visit = |found: &mut (u64, f64), row: &Row<'_>, precise: &[_]| {
            let Some(near) = languages.get(row.info.language) else { return };
            let other = ScoredDocument { scores: precise, ..row.scored };
            if !near.selection.treats_alike(&row.scored, &other) {
                let distance =
                    bisect([0.0, 1.0], 20, |share| near.is_alike(row, share * near.reach));
                *found = (found.0 + 1, found.1.max(distance));
            }
        };
        let merge = |mine: &mut (u64, f64), (changed, farthest): (u64, f64)| {
            *mine = (mine.0 + changed, mine.1.max(farthest));
        };
        self.fold_rows(Some(&(0..rounds)), Default::default, visit, merge)
    }

    /// Returns the differences of the documents that `rounds` scored again, by language and head.
    fn differences(&self, rounds: Range<usize>) -> Result<BTreeMap<String, Vec<Differences>>> {
        let none = || vec![Differences::default(); self.rows.heads.len()];
        let visit = |seen: &mut Vec<Differences>,
                     row: &Row<'_>,
                     precise: &[Option<DocumentScore>]| {
            for ((seen, score), precise) in seen.iter_mut().zip(row.scored.scores).zip(precise) {
                if let Some(score) = score {
                    seen.add(score.logit, precise.map(|score| score.logit));
                }
            }
        };
        let merge = |mine: &mut Vec<Differences>, theirs: Vec<Differences>| {
            mine.iter_mut().zip(&theirs).for_each(|(mine, theirs)| mine.merge(theirs));
        };
        self.fold_rows(Some(&rounds), none, visit, merge)
    }

    /// Returns ordinals of a sample of the documents with text, where thresholds need the encoder.
    pub(super) fn sample(&self) -> Result<HashSet<u64>> {
        let thresholds = self.encoded_thresholds()?;
        let seed = self.context.config.seed;
        // The documents near thresholds soon tell more about the differences than the sample does.
        let divisor = if self.risk().is_some() { REFINE_RISK_DIVISOR } else { 1 };
        // Number of documents of each language, and the ones with the smallest hashes.
        let empty = || (AtomicU64::new(0), BottomKSample::new(REFINE_MAX_SAMPLE as usize));
        let samples: BTreeMap<&str, _> =
            thresholds.keys().map(|language| (language.as_str(), empty())).collect();
        self.shards().into_par_iter().try_for_each(|(place, shard)| {
            self.for_each_row(place, shard, |row| {
                let Some((documents, sample)) = samples.get(row.info.language) else { return };
                if row.info.num_bytes == 0 {
                    return;
                }
                documents.fetch_add(1, Ordering::Relaxed);
                let ordinal = row.scored.ordinal;
                sample.offer(ordinal_rank(seed, ordinal), || ordinal);
            })
        })?;
        let of_language = |(documents, sample): (AtomicU64, BottomKSample<u64>)| {
            let size = documents.into_inner() / REFINE_SAMPLE_EVERY;
            let size = size.clamp(REFINE_MIN_SAMPLE, REFINE_MAX_SAMPLE) / divisor;
            sample.into_items().into_iter().take(size as usize)
        };
        Ok(samples.into_values().flat_map(of_language).collect())
    }

    /// Returns the documents of `shard`, at index `place` of the plan, that are in the `sample` or
    /// `near` a threshold, unless one of the first `rounds` rounds scored them; and by head of the
    /// run their stored scores, which only heads of rows keep.
    pub(super) fn choose_documents(
        &self,
        rounds: usize,
        (place, shard): (u64, &Shard),
        sample: &HashSet<u64>,
        near: &BTreeMap<String, Near>,
    ) -> Result<(DocumentBatch, Vec<Vec<Option<DocumentScore>>>)> {
        let done = self.scored_again(0..rounds, shard)?;
        let mut documents = DocumentBuilder::default();
        let mut stored = vec![Vec::new(); self.rows.heads.len()];
        let heads = self.rows.heads.iter();
        let is_of_rows: Vec<bool> = heads.map(|name| self.heads.of_rows(name).is_some()).collect();
        self.for_each_row(place, shard, |row| {
            let near = near.get(row.info.language).filter(|_| !done.contains_key(&row.info.row));
            // A threshold could treat it differently for a logit within the margin.
            let is_near = near.is_some_and(|near| !near.is_alike(row, near.reach));
            if is_near || sample.contains(&row.scored.ordinal) {
                documents.push(&row.info);
                let by_head = row.scored.scores.iter().zip(&is_of_rows);
                for (stored, (score, is_of_rows)) in stored.iter_mut().zip(by_head) {
                    stored.extend(is_of_rows.then_some(*score));
                }
            }
        })?;
        Ok((documents.finish(), stored))
    }

    /// Reads the scores of `rounds` for `shard`; [`Error::Corrupt`] if two heads have other rows.
    pub(super) fn scored_again(&self, rounds: Range<usize>, shard: &Shard) -> Result<Rescored> {
        let run = self.context.run;
        let mut scored = Rescored::new();
        for round in rounds {
            if run.shard_marker(Stage::Refine, &RunDir::round_shard_key(round, shard))?.is_none() {
                continue;
            }
            for (index, name) in self.rows.heads.iter().enumerate() {
                let path = run.round_part(round, name, shard);
                let part = read_scores(&path)?;
                for (row, score) in part.documents.rows().iter().zip(part.scores) {
                    let by_head = scored.entry(*row).or_default();
                    if by_head.len() != index {
                        return Err(Error::corrupt(&path, "holds other rows than the other heads"));
                    }
                    by_head.push(score);
                }
            }
        }
        Ok(scored)
    }
}

/// The thresholds of a language over the scores so far, and the margins around them.
pub(super) struct Near {
    pub(super) selection: Selection,
    /// Differences of all documents scored both ways, by head of the run.
    pub(super) seen: Vec<Differences>,
    /// Scale in logits and output, by head of the run; `None` without a threshold or this language.
    scales: Vec<Option<(f64, HeadOutput)>>,
    freedom: f64,
    /// The margins, in scales.
    reach: f64,
    /// Expected documents beyond the margins that f32 treats differently; `None` at a risk of 0.
    pub(super) expected: Option<f64>,
}

impl Near {
    /// Returns the number of documents on the smaller side of a threshold, as the mean over the
    /// thresholds that depend on the encoder and their rates.
    fn mean_smaller_side(&self, scores: &RunScores<'_>) -> f64 {
        let encoded = |report: &&ThresholdReport| scores.is_encoded(&report.threshold);
        let outcomes = self.selection.thresholds.iter().filter(encoded).flat_map(|r| &r.outcomes);
        let side = |outcome: &Outcome| {
            let kept = outcome.kept.num_documents;
            kept.min(outcome.candidates.num_documents - kept)
        };
        let sides: Vec<u64> = outcomes.map(side).collect();
        sides.iter().sum::<u64>() as f64 / sides.len().max(1) as f64
    }

    /// Returns the margin of `head` in logits; `None` if it is infinite or there is no threshold.
    pub(super) fn margin(&self, head: usize) -> Option<f64> {
        let margin = self.scales[head]?.0 * self.reach;
        Some(margin).filter(|margin| margin.is_finite())
    }

    /// Returns true if every threshold treats the document `row` alike for all logits within
    /// `distance` scales. A document with a NaN logit is never treated alike.
    fn is_alike(&self, row: &Row<'_>, distance: f64) -> bool {
        let [mut low, mut high] = [Vec::new(), Vec::new()];
        for (score, scale) in row.scored.scores.iter().zip(&self.scales) {
            let scaled = score.zip(*scale);
            if scaled.is_some_and(|(score, _)| score.logit.is_nan()) {
                return false;
            }
            for (end, sign) in [(&mut low, -1.0), (&mut high, 1.0)] {
                end.push(scaled.map(|(score, (scale, output))| {
                    if scale == 0.0 {
                        return score;
                    }
                    let moved = f64::from(score.logit) + sign * scale * distance;
                    DocumentScore::new(moved as f32, output)
                }));
            }
        }
        let document = ScoredDocument { scores: &low, ..row.scored };
        let other = ScoredDocument { scores: &high, ..document };
        self.selection.treats_alike(&document, &other)
    }
}
