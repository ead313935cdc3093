//! Stored embeddings, or the texts of the input, to scores, per head; the encoder is never run here.

mod embedding;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde_json::json;

use super::context::Context;
use super::embedded::Embedded;
use super::heads::Heads;
use super::model::{FOREIGN_ENCODER, refined_precision};
use super::texts::Texts;
use crate::encoder::scoring_gpus;
use crate::error::{Error, Result};
use crate::parts::{DocumentColumns, write_scores_of};
use crate::run::{PartFile, Shard, ShardMarker, Stage, StageWork};

/// Scores every shard with every head where that is not done yet, on the GPUs that the settings
/// name, else on the CPU.
pub fn score(context: Context<'_>) -> Result<()> {
    let Context { run, .. } = context;
    let embedded = Embedded::of(run)?;
    let mut heads = Heads::load(context, &embedded)?;
    same_encoder(context, &heads)?;
    let gpus = scoring_gpus(&context.config.encoder.device)?;
    context.freeze(Stage::Score, &heads.settings(!gpus.is_empty()))?;
    let names: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let shards = &embedded.plan.shards;
    let work = StageWork::of_scores(context, Stage::Score, &embedded.plan, &names)?;
    if work.is_over() {
        return work.finish(run);
    }
    for (name, language) in heads.unserved() {
        tracing::warn!(head = %name, %language, "no head for this language; not scored");
    }
    heads.score_on(&gpus)?;
    let rows = embedded.rows(work.own.iter().map(|item| item % shards.len()));
    context.progress.begin("score", Some(rows), "documents");
    let outcome = work.for_all(context, |item| {
        let (head, place) = (item / shards.len(), item % shards.len());
        work.extend(context, item, embedded.rows([place]));
        score_shard(context, &heads, names[head], &shards[place])
    });
    context.progress.end();
    outcome?;
    work.finish(run)
}

/// Refuses heads that were trained on the embeddings of another encoder than the corpus's.
fn same_encoder(context: Context<'_>, heads: &Heads) -> Result<()> {
    let run = context.run;
    let embed = run.frozen_settings(Stage::Embed)?.unwrap_or_default();
    let digest = embed["encoder"]["digest"].as_str().unwrap_or_default();
    if digest == FOREIGN_ENCODER {
        return Ok(()); // the input says nothing about what made its embeddings
    }
    heads.check_encoder(digest)?;
    let corpus = json!({"encoder": embed["encoder"], "embeddings": embed["parts"]["embeddings"]});
    let train = run.frozen_settings(Stage::Train)?.unwrap_or_default();
    let samples = json!({"encoder": train["encoder"], "embeddings": train["embeddings"]});
    // Nothing is embedded to train fastText heads.
    if train["encoder"].is_null() || samples == corpus {
        return Ok(());
    }
    let mut precise = corpus.clone();
    let begun = serde_json::from_value(corpus["encoder"]["precision"].clone()).unwrap_or_default();
    precise["encoder"]["precision"] = refined_precision(begun).name().into();
    if context.config.selection.refine && samples == precise {
        return Ok(());
    }
    Err(Error::Mismatch {
        path: run.root().to_owned(),
        difference: format!(
            "  the heads were trained with {samples}\n  the corpus is embedded with {corpus}"
        ),
        hint: "train again with `--redo train`, or embed again with `--redo embed`".into(),
    })
}

fn score_shard(
    context: Context<'_>,
    heads: &Heads,
    name: &str,
    shard: &Shard,
) -> Result<ShardMarker> {
    let run = context.run;
    let embedded = run.shard_marker(Stage::Embed, &shard.name)?.unwrap_or_default();
    let write = |index: usize, scored: &ScoredPart| {
        let path = run.scores_part(name, shard, index);
        let file = scored.write(&path, context.config.parts.zstd)?;
        context.progress.advance(file.rows, 0);
        Ok((PartFile { path: run.relative(&path), ..file }, scored.counts()))
    };
    let path = |part: &PartFile| run.path(&part.path);
    let parts: Vec<Result<(PartFile, Counts)>> = if heads.is_text(name) {
        let mut texts = Texts::open(context, shard)?;
        let parts = embedded.files.iter().enumerate().map(|(index, part)| {
            write(index, &text::score_part(context, heads, name, &mut texts, &path(part))?)
        });
        parts.collect()
    } else {
        let parts = embedded.files.par_iter().enumerate().map(|(index, part)| {
            context.stop.check()?;
            write(index, &embedding::score_part(heads, name, &path(part))?)
        });
        parts.collect()
    };
    let mut marker = ShardMarker::default();
    for part in parts {
        let (file, counts) = part?;
        marker.rows += file.rows;
        marker.files.push(file);
        for (outcome, rows) in counts {
            *marker.counts.entry(outcome.to_owned()).or_default() += rows;
        }
    }
    Ok(marker)
}

/// Rows by what became of them.
type Counts = BTreeMap<&'static str, u64>;

/// The scores of a part.
struct ScoredPart {
    /// The part of embeddings.
    path: PathBuf,
    documents: DocumentColumns,
    logits: Vec<Option<f32>>,
    scores: Vec<Option<f32>>,
}

impl ScoredPart {
    fn write(&self, path: &Path, zstd: i32) -> Result<PartFile> {
        let columns = (self.logits.as_slice(), self.scores.as_slice());
        let stamp = write_scores_of(path, (&self.documents, &self.path), columns, zstd)?;
        Ok(PartFile { path: String::new(), rows: self.logits.len() as u64, stamp })
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for logit in &self.logits {
            let outcome = match logit {
                None => "null",
                Some(logit) if logit.is_nan() => "nan",
                Some(_) => "scored",
            };
            *counts.entry(outcome).or_default() += 1;
        }
        counts
    }
}
