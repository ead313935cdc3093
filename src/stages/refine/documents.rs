//! Chooses the documents of a round: first a random sample, then the documents so near to a
//! threshold that f32 may treat them differently.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use super::margin::{Differences, Distances, Seen};
use polysift_base::error::{Error, Result};
use polysift_base::metrics::bisect;
use polysift_base::sample::{BottomKSample, ordinal_rank};
use polysift_config::{
    HeadOutput, REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE, REFINE_RISK_DIVISOR, REFINE_SAMPLE_EVERY,
};
use polysift_corpus::rows::{Row, RunRows};
use polysift_corpus::scan::{Rescored, ScoreFiles, ScoredCorpus};
use polysift_corpus::select::thresholds_of;
use polysift_corpus::{Context, Embedded, Heads};
use polysift_data::input::{DocumentBatch, DocumentBuilder};
use polysift_data::parts::read_scores;
use polysift_heads::head::DocumentScore;
use polysift_runs::run::{RunDir, Shard, Stage};
use polysift_selection::{Outcome, ScoredDocument, Selection, Threshold, ThresholdReport, select};

pub(super) struct RunScores<'a> {
    pub(super) context: Context<'a>,
    pub(super) embedded: &'a Embedded,
    pub(super) heads: &'a Heads,
    pub(super) rows: RunRows<'a>,
}

impl<'a> RunScores<'a> {
    pub(super) fn shards(&self) -> &'a [Shard] {
        &self.embedded.plan.shards
    }

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
    choice: Choice,
}

/// How a round chooses its documents.
enum Choice {
    /// The ordinals of a sample.
    Sample(HashSet<u64>),
    /// Documents near a threshold, by language.
    Near(BTreeMap<String, Near>),
}

impl<'a> RoundDocuments<'a> {
    /// Chooses the documents: for round 0 a sample, later by the differences seen so far.
    pub(super) fn choose(scores: &'a RunScores<'a>, round: usize) -> Result<Self> {
        let choice = if round == 0 {
            Choice::Sample(sample(scores)?)
        } else {
            Choice::Near(near_thresholds(scores, round)?)
        };
        Ok(Self { scores, round, choice })
    }

    /// Returns the documents of `shard`, at index `place` of the plan, with stored scores by head.
    pub(super) fn of_shard(
        &self,
        place: u64,
        shard: &Shard,
    ) -> Result<(DocumentBatch, Vec<Vec<Option<DocumentScore>>>)> {
        let Self { scores, round, choice } = self;
        let done = scored_again(scores, 0..*round, shard)?;
        let mut documents = DocumentBuilder::default();
        let mut stored = vec![Vec::new(); scores.rows.heads.len()];
        scores.for_each_row(place, shard, |row| {
            let is_chosen = match choice {
                Choice::Sample(ordinals) => ordinals.contains(&row.scored.ordinal),
                Choice::Near(_) if done.contains_key(&row.info.row) => false,
                // A threshold could treat it differently for a logit within the margin.
                Choice::Near(languages) => languages
                    .get(row.info.language)
                    .is_some_and(|near| !near.is_alike(row, near.reach)),
            };
            if is_chosen {
                documents.push(&row.info);
                for (stored, score) in stored.iter_mut().zip(row.scored.scores) {
                    stored.push(*score);
                }
            }
        })?;
        Ok((documents.finish(), stored))
    }
}

/// The thresholds of a language over the scores so far, and the margins around them.
pub(super) struct Near {
    selection: Selection,
    /// Differences of all documents scored both ways, by head of the run.
    pub(super) seen: Vec<Differences>,
    /// Scale in logits and output, by head of the run; `None` without a threshold or this language.
    scales: Vec<Option<(f64, HeadOutput)>>,
    freedom: f64,
    /// The margins, in scales.
    reach: f64,
    /// Expected number of documents beyond the margins that f32 treats differently; `None` if
    /// the margins are the widest.
    pub(super) expected: Option<f64>,
}

/// Returns the thresholds and margins after the first `rounds` rounds, by language.
pub(super) fn near_thresholds(
    scores: &RunScores<'_>,
    rounds: usize,
) -> Result<BTreeMap<String, Near>> {
    // The first round is a sample; all others are near thresholds.
    let (all, near) = (differences(scores, 0..rounds)?, differences(scores, 1..rounds)?);
    let mut languages = BTreeMap::new();
    for (language, thresholds) in scores.encoded_thresholds()? {
        let of_head = |seen: &BTreeMap<String, Vec<Differences>>, head: usize| {
            seen.get(&language).map(|heads| heads[head]).unwrap_or_default()
        };
        let seen = |head| Seen { all: of_head(&all, head), near: of_head(&near, head) };
        let near = Near::of(scores, rounds, &language, &thresholds, seen)?;
        languages.insert(language, near);
    }
    let Some(risk) = scores.risk() else { return Ok(languages) };
    let visit = |found: &mut Distances, row: &Row<'_>, _: &[_]| {
        if let Some(near) = languages.get(row.info.language) {
            found.add(|distance| near.is_alike(row, distance));
        }
    };
    let merge = |mine: &mut Distances, theirs: Distances| mine.merge(&theirs);
    let mut distances = fold_rows(scores, None, || Distances::NONE, visit, merge)?;
    for (language, near) in &mut languages {
        let distances = distances.remove(language).unwrap_or(Distances::NONE);
        let heads = near.scales.iter().flatten().filter(|(scale, _)| *scale > 0.0).count();
        let allowed = risk * near.mean_smaller_side(scores);
        let (reach, expected) = distances.reach(near.freedom, heads, allowed);
        (near.reach, near.expected) = (reach, Some(expected));
    }
    Ok(languages)
}

/// Folds the rows of each language that were scored again in `rounds`, each with these scores; or
/// all rows, without any. The result does not depend on the order in which threads finish shards.
fn fold_rows<T: Send>(
    scores: &RunScores<'_>,
    rounds: Option<&Range<usize>>,
    new: impl Fn() -> T + Sync,
    visit: impl Fn(&mut T, &Row<'_>, &[Option<DocumentScore>]) + Sync,
    merge: impl Fn(&mut T, T),
) -> Result<BTreeMap<String, T>> {
    let of_shard = |(place, shard): (u64, &Shard)| {
        let mut languages: BTreeMap<String, T> = BTreeMap::new();
        let again = |rounds: &Range<usize>| scored_again(scores, rounds.clone(), shard);
        let done = rounds.map(again).transpose()?;
        if done.as_ref().is_some_and(Rescored::is_empty) {
            return Ok(languages);
        }
        scores.for_each_row(place, shard, |row| {
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
    let shards: Vec<_> = (0u64..).zip(scores.shards()).collect();
    let found: Vec<_> = shards.into_par_iter().map(of_shard).collect::<Result<_>>()?;
    let mut all = BTreeMap::new();
    for (language, folded) in found.into_iter().flatten() {
        merge(all.entry(language).or_insert_with(&new), folded);
    }
    Ok(all)
}

impl Near {
    /// Computes the thresholds over the scores with those of the first `rounds` rounds in place,
    /// and the widest margins; they come from the differences `seen` by head.
    fn of(
        scores: &RunScores<'_>,
        rounds: usize,
        language: &str,
        thresholds: &[Threshold],
        seen: impl Fn(usize) -> Seen,
    ) -> Result<Self> {
        let rescored = |shard: &Shard| scored_again(scores, 0..rounds, shard);
        let RunScores { context, embedded, .. } = *scores;
        let files = ScoreFiles::Scored;
        let corpus = ScoredCorpus::open(context, embedded, language, files, Some(&rescored))?;
        let selection = select(&corpus, thresholds, context.config.selection.mode)?;
        let mut near = Self {
            selection,
            seen: Vec::new(),
            scales: Vec::new(),
            freedom: f64::INFINITY,
            reach: 1.0,
            expected: None,
        };
        for (head, name) in scores.rows.heads.iter().enumerate() {
            let output = scores.heads.get(name, language).map(|head| head.spec().output);
            let has_threshold = thresholds.iter().any(|threshold| threshold.head == Some(head));
            let (seen, mut scale) = (seen(head), 0.0);
            if scores.heads.is_encoded(name) && has_threshold {
                let spread = seen.spread();
                scale = if scores.risk().is_some() { spread.scale } else { seen.widest() };
                near.freedom = near.freedom.min(spread.freedom);
            }
            near.seen.push(seen.all);
            near.scales.push(output.filter(|_| has_threshold).map(|output| (scale, output)));
        }
        Ok(near)
    }

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

/// Finds what the first `rounds` rounds changed: by language, the number of documents that a
/// threshold treats differently in f32, and the largest distance of one to the threshold, as a
/// share of the margin.
pub(super) fn changes(
    scores: &RunScores<'_>,
    rounds: usize,
    languages: &BTreeMap<String, Near>,
) -> Result<BTreeMap<String, (u64, f64)>> {
    let visit = |found: &mut (u64, f64), row: &Row<'_>, precise: &[_]| {
        let Some(near) = languages.get(row.info.language) else { return };
        let other = ScoredDocument { scores: precise, ..row.scored };
        if !near.selection.treats_alike(&row.scored, &other) {
            let distance = bisect([0.0, 1.0], 20, |share| near.is_alike(row, share * near.reach));
            *found = (found.0 + 1, found.1.max(distance));
        }
    };
    let merge = |mine: &mut (u64, f64), (changed, farthest): (u64, f64)| {
        *mine = (mine.0 + changed, mine.1.max(farthest));
    };
    fold_rows(scores, Some(&(0..rounds)), Default::default, visit, merge)
}

/// Returns the differences seen in `rounds`, by language, one per head of the run.
fn differences(
    scores: &RunScores<'_>,
    rounds: Range<usize>,
) -> Result<BTreeMap<String, Vec<Differences>>> {
    let none = || vec![Differences::default(); scores.rows.heads.len()];
    let visit = |seen: &mut Vec<Differences>, row: &Row<'_>, precise: &[Option<DocumentScore>]| {
        for ((seen, score), precise) in seen.iter_mut().zip(row.scored.scores).zip(precise) {
            if let Some(score) = score {
                seen.add(score.logit, precise.map(|score| score.logit));
            }
        }
    };
    let merge = |mine: &mut Vec<Differences>, theirs: Vec<Differences>| {
        mine.iter_mut().zip(&theirs).for_each(|(mine, theirs)| mine.merge(theirs));
    };
    fold_rows(scores, Some(&rounds), none, visit, merge)
}

/// Samples documents with text from every language with thresholds that depend on the encoder;
/// returns ordinals.
fn sample(scores: &RunScores<'_>) -> Result<HashSet<u64>> {
    let thresholds = scores.encoded_thresholds()?;
    let seed = scores.context.config.seed.0;
    // The documents near thresholds soon tell more about the differences than the sample does.
    let divisor = if scores.risk().is_some() { REFINE_RISK_DIVISOR } else { 1 };
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

/// Reads the f32 scores of `shard` from `rounds`, by row, one entry per head.
pub(super) fn scored_again(
    scores: &RunScores<'_>,
    rounds: Range<usize>,
    shard: &Shard,
) -> Result<Rescored> {
    let run = scores.context.run;
    let mut scored = Rescored::new();
    for round in rounds {
        if run.shard_marker(Stage::Refine, &RunDir::round_shard_key(round, shard))?.is_none() {
            continue;
        }
        for (index, name) in scores.rows.heads.iter().enumerate() {
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
