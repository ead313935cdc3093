//! The refine stage computes scores near the thresholds again with embeddings in f32, so that a run
//! with an encoder in a faster type selects what f32 would select. In an fp8 run, bf16 on the same
//! GPUs takes the place of f32 in everything below.
//!
//! ```text
//!  scores ──sample──▶ round 00 ─┐  text ▶ tokens ▶ f32 encoder ▶ heads
//!    │                          ▼
//!    ├──thresholds over mixed scores, margins──▶ rounds 01, 02 ... until nothing near one is left
//!    ▼
//!  refined/<head>/<shard>/part: the scores, replaced where a round computed others
//! ```
//!
//! # What is guaranteed
//!
//! A document's *difference* is |logit of the run − logit in f32|. Once the stage is done, every
//! document with a logit within the margin of a threshold (by head and language, among those that
//! earlier thresholds keep) has its f32 scores. So **if no other document's difference exceeds its
//! distance to the threshold, the selection is exactly that of f32**: documents outside the margin
//! are on the same side in both, and documents inside, the one at the threshold among them, are
//! compared by their f32 scores. "f32" means the same settings with `encoder.precision = "f32"`,
//! with stored embeddings rounded alike and heads trained in f32, as `selection.refine` demands.
//!
//! With `selection.refine_risk` r, the margin is as narrow as the differences allow: documents
//! beyond it that a threshold treats wrongly number at most r · n on average, where n is the number
//! of documents on the smaller side of a threshold (the mean over the thresholds and rates of the
//! language). Differences are taken to follow Student's distribution, with the variance and
//! kurtosis of all documents scored both ways (an upper 95% limit of the variance; kurtosis above
//! that of a normal distribution only if it exceeds its standard error), or of those near
//! thresholds, whichever is wider. A sum over the distances of all documents to their nearest
//! threshold then gives the margin; with several heads, their scales grow together. On real texts
//! the differences of int8 and bf16 near a threshold have a kurtosis of 2.5 to 3.7
//! (`benches/runs/2026-11-27-refine.md`); with tails as heavy as Student's with 3 degrees of
//! freedom, the risk is exceeded threefold. The report tells how many documents changed sides, and
//! how near to the margin the farthest one of them was.
//!
//! With a risk of 0 the margin is [`REFINE_SAFETY`](polysift_config::REFINE_SAFETY) times the
//! largest difference of *all* documents scored both ways; a larger difference in a round widens
//! the next margin. With 95% confidence, at most 3 in n documents exceed the largest difference of
//! n sampled ones at all; to be selected wrongly, one must exceed it `REFINE_SAFETY`-fold. If
//! differences fall off exponentially, about n^-`REFINE_SAFETY` of the documents within one mean
//! difference of a threshold are selected wrongly: with n = 4,096 less than one in 10^7 of them.
//!
//! A round depends only on the scores and the rounds before it, so a killed round is planned again
//! identically and continues with the shards that have no marker.

mod documents;
mod margin;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

use rayon::prelude::*;

use documents::RunScores;
use polysift_base::error::{Error, Result};
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::model::{check_encoder, is_precise, precise_settings};
use polysift_corpus::refinement::{HeadRefinement, LanguageRefinement, Refinement};
use polysift_corpus::select::{refine_settings, scored_run};
use polysift_corpus::work::score_keys;
use polysift_corpus::{Context, FrozenEmbeddings, RunRows, ScoreFiles, StageWork, Texts};
use polysift_data::input::{DocumentBatch, DocumentInfo};
use polysift_data::parts::{ScoreRows, read_scores, round_to, write_scores};
use polysift_encoder::{EmbeddedTexts, Model, load};
use polysift_heads::head::DocumentScore;
use polysift_runs::run::{RunDir, Shard, ShardMarker, Stage};

/// Key held by the process that does the rounds; it has no marker.
const ROUNDS: &str = "_rounds";
/// Key of the encoded tokens in [`ShardMarker::counts`] of a round.
const TOKENS: &str = "tokens";
/// Number of documents whose texts, tokens and embeddings are in memory together.
const BATCH_DOCUMENTS: usize = 2048;

/// Scores the documents near the thresholds again in f32 (in bf16 for an fp8 run), if
/// `selection.refine` is on and the encoder computed in another type. [`Error::Missing`] before the
/// score stage, or for a lost input file; [`Error::Corrupt`] if one changed; [`Error::Mismatch`]
/// for another model; [`Error::Config`] if no encoder of the run made the embeddings.
pub fn refine(context: Context<'_>) -> Result<()> {
    if !context.config.selection.refine {
        return Ok(());
    }
    let (embedded, heads) = scored_run(context)?;
    if is_precise(context.run)? {
        return context.discard_redone(Stage::Refine);
    }
    if FrozenEmbeddings::read(context.run, Stage::Embed)?.precision().is_none() {
        let reason = "needs embeddings that an encoder of the run made";
        return Err(Error::config("selection.refine", reason));
    }
    context.freeze(Stage::Refine, &refine_settings(context, &heads)?)?;
    let rows = RunRows::open(context, Some(ScoreFiles::Scored), embedded.languages())?;
    // The rounds depend on each other, so one process does all of them.
    let work = StageWork::new(context, Stage::Refine, vec![ROUNDS.to_owned()], &[0])?;
    let claims = work.claims(context);
    let context = Context { held: Some((&claims, 0)), ..context };
    let model = OnceLock::new();
    let scores = RunScores { context, embedded: &embedded, heads: &heads, rows, model };
    claims.for_all(1, |_| scores.do_rounds())
}

impl RunScores<'_> {
    /// Does the rounds that are left, then writes the refined scores and the report.
    fn do_rounds(&self) -> Result<()> {
        for round in 0.. {
            self.context.stop.check()?;
            let finished = self.finished_round(round)?;
            let documents = finished.map_or_else(|| self.do_round(round), Ok)?;
            // The sample may be empty; a later round without documents is the last one.
            if documents == 0 && round > 0 {
                self.context.check_held()?;
                self.write_parts(round)?;
                if !self.context.run.is_done(Stage::Refine, ALL_LANGUAGES)? {
                    self.write_report(round)?;
                }
                break;
            }
        }
        Ok(())
    }

    /// Returns the number of documents of a round if it is complete with all its files.
    fn finished_round(&self, round: usize) -> Result<Option<u64>> {
        let run = self.context.run;
        let Some(marker) = run.shard_marker(Stage::Refine, &RunDir::round_key(round))? else {
            return Ok(None);
        };
        let mut rows = 0; // a shard has a marker if it has documents in the round
        for (_, shard) in self.shards() {
            let key = RunDir::round_shard_key(round, shard);
            rows += run.done_marker(Stage::Refine, &key)?.map_or(0, |marker| marker.rows);
        }
        Ok((rows == marker.rows).then_some(rows))
    }

    /// Does the rest of a round; returns the number of documents of the whole round.
    fn do_round(&self, round: usize) -> Result<u64> {
        let Context { run, progress, stop, .. } = self.context;
        let (sample, near) = match round {
            0 => (self.sample()?, BTreeMap::new()),
            _ => (HashSet::new(), self.near_thresholds(round)?),
        };
        let chosen = |shard: (u64, &Shard)| self.choose_documents(round, shard, &sample, &near);
        let shards = self.shards();
        let count = |&shard: &(u64, &Shard)| Ok(chosen(shard)?.0.len() as u64);
        let counts: Vec<u64> = shards.par_iter().map(count).collect::<Result<_>>()?;
        let total = counts.iter().sum();
        tracing::info!(round, documents = total, "scoring again in a more precise type");
        progress.begin("refine", Some(total), "documents");
        let mut todo = shards.iter().zip(counts).filter(|(_, count)| *count > 0);
        let outcome = todo.try_for_each(|(&(place, shard), count)| {
            stop.check()?;
            let key = RunDir::round_shard_key(round, shard);
            if run.is_done(Stage::Refine, &key)? {
                progress.advance(count, 0);
                return Ok(());
            }
            let marker = self.score_again(round, shard, chosen((place, shard))?)?;
            run.mark_shard(Stage::Refine, &key, &marker)
        });
        progress.end();
        outcome?;
        let marker = ShardMarker { rows: total, ..ShardMarker::default() };
        run.mark_shard(Stage::Refine, &RunDir::round_key(round), &marker)?;
        Ok(total)
    }

    /// Scores `documents` of `shard` again, precisely, with every head, and writes them as part of
    /// `round`; returns the marker for the caller to write. `scored` holds, by head, the stored
    /// scores of heads that read neither text nor embeddings, and nothing for other heads.
    fn score_again(
        &self,
        round: usize,
        shard: &Shard,
        (documents, mut scored): (DocumentBatch, Vec<Vec<Option<DocumentScore>>>),
    ) -> Result<ShardMarker> {
        let Self { context, heads, ref rows, .. } = *self;
        let (run, num_rows) = (context.run, documents.len());
        let mut input = Texts::open(context, shard)?;
        let mut tokens = 0;
        for start in (0..num_rows).step_by(BATCH_DOCUMENTS) {
            let batch = start..num_rows.min(start + BATCH_DOCUMENTS);
            let text = |at: usize| {
                let DocumentInfo { row, num_bytes, .. } = documents.get(at);
                let lost = || Error::corrupt(&shard.file, format!("row {row} has no text"));
                input.text(row, num_bytes)?.ok_or_else(lost).map(Some)
            };
            let texts: Vec<Option<String>> = batch.clone().map(text).collect::<Result<_>>()?;
            let embedded = self.embed(&texts, &mut tokens)?;
            let languages: Vec<&str> = batch.clone().map(|at| documents.get(at).language).collect();
            for (name, all) in rows.heads.iter().zip(&mut scored) {
                if heads.of_rows(name).is_none() {
                    all.extend(heads.score_embedded(name, &languages, &texts, &embedded)?);
                }
            }
            context.progress.advance(batch.len() as u64, 0);
        }
        let mut marker = ShardMarker { rows: num_rows as u64, ..ShardMarker::default() };
        marker.counts = [("refined".to_owned(), marker.rows), (TOKENS.to_owned(), tokens)].into();
        let mut part = ScoreRows { documents, ..ScoreRows::default() };
        for (name, scores) in rows.heads.iter().zip(scored) {
            part.scores = scores;
            let path = run.round_part(round, name, shard);
            context.check_held()?;
            let stamp = write_scores(&path, &part, None, context.config.parts.zstd)?;
            marker.files.push(run.file(&path, marker.rows, stamp));
        }
        Ok(marker)
    }

    /// Embeds `texts` as the embed stage would in f32, if a head needs it; counts the `tokens`.
    fn embed(&self, texts: &[Option<String>], tokens: &mut u64) -> Result<EmbeddedTexts> {
        if !self.rows.heads.iter().any(|name| self.heads.is_encoded(name)) {
            return Ok(EmbeddedTexts::default());
        }
        let Context { config, stop, progress, .. } = self.context;
        let texts: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
        let (model, chunks) = (self.model()?, config.encoder.chunks);
        let mut embedded =
            model.embed_texts(&texts, chunks, &config.encoder, stop, &mut |_, batch| {
                *tokens += batch as u64;
                progress.advance(0, batch as u64);
            })?;
        round_to(&mut embedded.values, config.parts.embeddings);
        Ok(embedded)
    }

    /// Returns the precise model, loaded once; [`Error::Mismatch`] if it is not that of the run.
    fn model(&self) -> Result<&Model> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let model = load(&precise_settings(self.context)?, self.context.hub)?;
        check_encoder(self.context.run, &model)?;
        Ok(self.model.get_or_init(|| model))
    }

    /// Writes the scores with those of all `rounds` in their place, unless that is done.
    fn write_parts(&self, rounds: usize) -> Result<()> {
        let (Context { config, run, stop, .. }, shards) = (self.context, self.shards());
        let keys = score_keys(&self.embedded.plan, &self.rows.heads);
        (0..keys.len()).into_par_iter().try_for_each(|item| {
            if run.is_done(Stage::Refine, &keys[item])? {
                return Ok(());
            }
            let (head, (_, shard)) = (item / shards.len(), shards[item % shards.len()]);
            let name = self.rows.heads[head];
            let done = self.scored_again(0..rounds, shard)?;
            let mut marker = ShardMarker::default();
            for index in 0..run.done(Stage::Embed, &shard.name)?.files.len() {
                stop.check()?;
                let mut rows = read_scores(&ScoreFiles::Scored.part(run, name, shard, index))?;
                let mut refined = vec![false; rows.documents.len()];
                for (at, row) in rows.documents.rows().iter().enumerate() {
                    if let Some(precise) = done.get(row) {
                        rows.scores[at] = precise.get(head).copied().flatten();
                        refined[at] = true;
                    }
                }
                let path = ScoreFiles::Refined.part(run, name, shard, index);
                let stamp = write_scores(&path, &rows, Some(&refined), config.parts.zstd)?;
                let num_rows = rows.documents.len() as u64;
                let num_refined = refined.iter().filter(|refined| **refined).count() as u64;
                let file = run.file(&path, num_rows, stamp);
                marker.add(file, [("refined", num_refined), ("unchanged", num_rows - num_refined)]);
            }
            run.mark_shard(Stage::Refine, &keys[item], &marker)
        })
    }

    /// Writes the report after `rounds` rounds and marks the stage done.
    fn write_report(&self, rounds: usize) -> Result<()> {
        let run = self.context.run;
        let precision = precise_settings(self.context)?.precision;
        let mut report = Refinement { precision, rounds, ..Refinement::default() };
        for encoded in self.embedded.summaries.iter().filter_map(|summary| summary.encoded) {
            report.documents += encoded.documents;
            report.tokens += encoded.tokens;
        }
        for (_, shard) in self.shards() {
            for round in 0..rounds {
                let key = RunDir::round_shard_key(round, shard);
                let marker = run.shard_marker(Stage::Refine, &key)?.unwrap_or_default();
                report.refined += marker.rows;
                report.refined_tokens += marker.counts.get(TOKENS).copied().unwrap_or_default();
            }
        }
        let languages = self.near_thresholds(rounds)?;
        let changes = self.changes(rounds, &languages)?;
        for (language, near) in languages {
            for (head, seen) in near.seen.iter().enumerate().filter(|(_, seen)| seen.documents > 0)
            {
                report.heads.push(HeadRefinement {
                    language: language.clone(),
                    head: self.rows.heads[head].to_owned(),
                    refined: seen.documents,
                    largest_difference: seen.largest.filter(|largest| largest.is_finite()),
                    margin: near.margin(head),
                });
            }
            let (changed, farthest) = changes.get(&language).copied().unwrap_or_default();
            let farthest_change = (changed > 0).then_some(farthest);
            let expected_wrong = near.expected;
            let found = LanguageRefinement { language, changed, farthest_change, expected_wrong };
            report.languages.push(found);
        }
        let files = vec![run.write_json(&run.path(Refinement::FILE), &report)?];
        let (rows, counts) = (report.refined, [(TOKENS.to_owned(), report.refined_tokens)].into());
        let marker = ShardMarker { rows, files, counts, ..ShardMarker::default() };
        run.mark_shard(Stage::Refine, ALL_LANGUAGES, &marker)
    }
}
