//! Scores near the thresholds computed again with embeddings in f32, so that a run whose encoder computes
//! in a faster type selects what f32 would select. Where it computes in fp8 it is bf16 on the same
//! GPUs that takes f32's place in all that follows.
//!
//! ```text
//!  scores ──sample──▶ round 00 ─┐  text ▶ tokens ▶ f32 encoder ▶ heads
//!    │                          ▼
//!    ├──thresholds over mixed scores, margins──▶ rounds 01, 02 ... until nothing near a threshold is left
//!    ▼
//!  refined/<head>/<shard>/part: the scores with those of all rounds in their place
//! ```
//!
//! # What is guaranteed
//!
//! A document's *difference* is |logit of the run − logit in f32|. Once the stage is done, every
//! document whose logit lies within the margin of a threshold (by head and language, among those that
//! the thresholds before keep) has its f32 scores. So **if no other document's difference exceeds the
//! margin, the selection is exactly that of f32**: documents outside the margin are on the same side
//! of the threshold in both, those inside are compared by their f32 scores, and the document at the threshold
//! is one of them; the same then holds for the next threshold, among the same survivors. What f32 means:
//! what the same settings with `encoder.precision = "f32"` would select, the rounding of stored
//! embeddings and the training of heads included (heads are trained in f32 where this is asked for).
//!
//! The margin is measured, so the "if" is not a certainty. It is [`REFINE_SAFETY`](crate::config::REFINE_SAFETY) times the largest
//! difference of *all* documents that were scored both ways: a random sample and whatever lay near a
//! threshold; a larger difference seen in a round widens the margin of the next. Of the language's
//! documents, with 95% confidence, at most 3 in as many as were sampled exceed the largest sampled
//! difference at all; to select wrongly one has to exceed it [`REFINE_SAFETY`](crate::config::REFINE_SAFETY)-fold, and the distance to its
//! threshold besides. Where differences fall off exponentially, the largest of n is about ln n times their
//! mean, and about n^-[`REFINE_SAFETY`](crate::config::REFINE_SAFETY) of the documents within one mean difference of a threshold are selected
//! wrongly: with n = 4,096 less than one in 10^7 of those.
//!
//! # Resume
//!
//! What a round does follows from the scores and the rounds before it, so a killed round is
//! planned again as it was, and goes on with the shards that it has no marker of.

mod documents;
mod margins;
mod overlay;
mod rescore;
mod result;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use rayon::prelude::*;

use super::context::{ALL_LANGUAGES, Context};
use super::corpus::{refine_settings, thresholds_of};
use super::embedded::Embedded;
use super::heads::Heads;
use super::model::{encoder_digest, is_precise, load_precise, precise_settings};
use crate::config::{EncoderConfig, EncoderPrecision};
use crate::encoder::Model;
use crate::error::{Error, Result};
use crate::run::{Plan, RunDir, ShardMarker, Stage, StageWork};
use documents::Wanted;

pub use result::{HeadRefinement, LanguageRefinement, Refinement};

/// What a call of [`refine`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing, since it is not asked for.
    Off,
    /// Nothing, since the embeddings were computed in f32.
    Exact,
    /// It scored documents, or found that all is done.
    Done(Cost),
}

/// The work of one call; what an interrupted call did before is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// The type that documents were encoded in.
    pub precision: EncoderPrecision,
    /// Documents that were encoded.
    pub documents: u64,
    /// Their tokens, `<s>` and `</s>` included.
    pub tokens: u64,
}

/// Scores the documents near the thresholds again in f32, or of a run in fp8 in bf16, where
/// `selection.refine` asks for it and the encoder computed in another type.
///
/// # Errors
/// [`Error::Missing`] before the score stage is done, or if an input file is gone;
/// [`Error::Corrupt`] if one changed; [`Error::Model`] if the model is no longer the run's; those of
/// reading, encoding and scoring.
pub fn refine(context: Context<'_>) -> Result<Outcome> {
    let run = context.run;
    if !context.config.selection.refine {
        return Ok(Outcome::Off);
    }
    let names: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let embedded = Embedded::scored(run, &names)?;
    let heads = Heads::load(context, &embedded)?;
    run.check_frozen(Stage::Score, &heads.settings_of_scores(run)?)?;
    if is_precise(run)? {
        return Ok(Outcome::Exact);
    }
    for language in heads.languages() {
        thresholds_of(context, language, &heads)?;
    }
    context.freeze(Stage::Refine, &refine_settings(context, &heads))?;
    let model = || load_precise(context);
    let job = Job::new(context, &embedded, &heads, &model);
    // The rounds follow from each other, so one process does them all.
    let work = StageWork::new(context, Stage::Refine, vec![ROUNDS.to_owned()], &[0])?;
    let claims = work.claims(context);
    let mut cost = Cost::default();
    loop {
        if claims.next()?.is_some() {
            cost = job.run()?;
        }
        if job.is_done()? || !claims.settle()? {
            let EncoderConfig { precision, .. } = precise_settings(context)?;
            return Ok(Outcome::Done(Cost { precision, ..cost }));
        }
    }
}

/// What is held by the process that does the rounds; it has no marker.
const ROUNDS: &str = "_rounds";

/// The stage in progress.
struct Job<'a> {
    context: Context<'a>,
    embedded: &'a Embedded,
    plan: &'a Plan,
    heads: &'a Heads,
    /// Names of the heads of the run, in the order in which scores are read.
    names: Vec<&'a str>,
    load: &'a (dyn Fn() -> Result<Model> + Sync),
    /// Loaded when a document has to be encoded.
    model: OnceLock<Model>,
}

impl<'a> Job<'a> {
    fn new(
        context: Context<'a>,
        embedded: &'a Embedded,
        heads: &'a Heads,
        load: &'a (dyn Fn() -> Result<Model> + Sync),
    ) -> Self {
        let names = context.config.heads.keys().map(String::as_str).collect();
        let plan = &embedded.plan;
        Self { context, embedded, plan, heads, names, load, model: OnceLock::new() }
    }

    fn run(&self) -> Result<Cost> {
        let mut cost = Cost::default();
        if self.is_done()? {
            return Ok(cost);
        }
        for round in 0.. {
            self.context.stop.check()?;
            let rows = match self.finished_round(round)? {
                Some(rows) => rows,
                None => self.round(round, &mut cost)?,
            };
            // The sample may be empty; a later round that finds nothing is the last one.
            if rows == 0 && round > 0 {
                result::write_parts(self, round)?;
                result::write_report(self, round)?;
                break;
            }
        }
        tracing::info!(documents = cost.documents, tokens = cost.tokens, "refined");
        Ok(cost)
    }

    /// Whether all outputs are there.
    fn is_done(&self) -> Result<bool> {
        let run = self.context.run;
        if !run.is_done(Stage::Refine, ALL_LANGUAGES)? {
            return Ok(false);
        }
        for name in &self.names {
            for shard in &self.plan.shards {
                if !run.is_done(Stage::Refine, &format!("{name}/{}", shard.name))? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Documents of a round that is complete with all its files.
    fn finished_round(&self, round: usize) -> Result<Option<u64>> {
        let run = self.context.run;
        let Some(marker) = run.shard_marker(Stage::Refine, &RunDir::round_key(round))? else {
            return Ok(None);
        };
        for shard in &self.plan.shards {
            let key = RunDir::round_shard_key(round, shard);
            let lost = run.shard_marker(Stage::Refine, &key)?.is_some()
                && !run.is_done(Stage::Refine, &key)?;
            if lost {
                return Ok(None);
            }
        }
        Ok(Some(marker.rows))
    }

    /// Does what is left of a round; the documents of all of it.
    fn round(&self, round: usize, cost: &mut Cost) -> Result<u64> {
        let Context { run, progress, stop, .. } = self.context;
        let wanted = Wanted::of_round(self, round)?;
        let shards: Vec<_> = (0u64..).zip(&self.plan.shards).collect();
        let counts: Vec<u64> = shards
            .par_iter()
            .map(|&(place, shard)| Ok(wanted.documents(place, shard)?.rows.len() as u64))
            .collect::<Result<_>>()?;
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
            let marker = self.rescore(round, shard, wanted.documents(place, shard)?)?;
            cost.documents += marker.rows;
            cost.tokens += marker.counts.get(TOKENS).copied().unwrap_or_default();
            run.mark_shard(Stage::Refine, &key, &marker)
        });
        progress.end();
        outcome?;
        let marker = ShardMarker { rows: total, ..ShardMarker::default() };
        run.mark_shard(Stage::Refine, &RunDir::round_key(round), &marker)?;
        Ok(total)
    }

    fn model(&self) -> Result<&Model> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let model = (self.load)()?;
        let digest = encoder_digest(self.context.run)?;
        let found = &model.encoder.info().digest;
        if *found != digest {
            let reason = format!("is not the model of this run: {found} instead of {digest}");
            return Err(Error::model(self.context.config.encoder.model.as_ref(), reason));
        }
        Ok(self.model.get_or_init(|| model))
    }
}

/// What [`ShardMarker::counts`] of a round calls the encoded tokens.
const TOKENS: &str = "tokens";
