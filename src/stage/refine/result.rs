//! What the stage leaves: the scores with the refined ones in their place, and the report.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::margins::evidence;
use super::overlay::overlay;
use super::{Job, TOKENS};
use crate::config::REFINE_SAFETY;
use crate::error::Result;
use crate::parts::{read_scores, write_refined_scores};
use crate::run::{PartFile, RunDir, Shard, ShardMarker, Stage};
use crate::stage::context::ALL_LANGUAGES;
use crate::stage::work::score_keys;

/// The report, below the run directory.
const REPORT: &str = "refined/report.json";

/// What the refine stage did to a run, in all its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refinement {
    /// Rounds that scored documents.
    pub rounds: usize,
    /// Documents of the run with text.
    pub documents: u64,
    /// Those scored in f32.
    pub refined: u64,
    /// Tokens that the embed stage encoded, `<s>` and `</s>` included.
    pub tokens: u64,
    /// Tokens that were encoded in f32.
    pub refined_tokens: u64,
    /// By language, those with thresholds.
    pub languages: BTreeMap<String, LanguageRefinement>,
}

/// See [`Refinement::languages`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LanguageRefinement {
    /// Documents scored in f32.
    pub refined: u64,
    /// By head.
    pub heads: BTreeMap<String, HeadRefinement>,
}

/// How far the scores of a head were from those of f32, in logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadRefinement {
    /// Largest difference of a document scored both ways; `None` where the run's scores tell nothing.
    pub largest_difference: Option<f64>,
    /// All documents so near to a threshold were scored in f32; `None`: all documents.
    pub margin: Option<f64>,
    /// [`REFINE_SAFETY`], the margin by the largest difference.
    pub safety: f64,
}

impl Refinement {
    /// The report of `run`; `None` before the stage is done.
    pub fn read(run: &RunDir) -> Result<Option<Self>> {
        run.read_json(&run.path(REPORT))
    }
}

/// Writes the score parts of every head and shard that are not written yet.
pub(super) fn write_parts(job: &Job<'_>, rounds: usize) -> Result<()> {
    let (run, shards) = (job.context.run, &job.plan.shards);
    let keys = score_keys(job.plan, &job.names);
    (0..keys.len()).into_par_iter().try_for_each(|item| {
        if run.is_done(Stage::Refine, &keys[item])? {
            return Ok(());
        }
        let (name, shard) = (job.names[item / shards.len()], &shards[item % shards.len()]);
        write_shard(job, rounds, name, shard)
    })
}

fn write_shard(job: &Job<'_>, rounds: usize, name: &str, shard: &Shard) -> Result<()> {
    let run = job.context.run;
    let head = job.names.iter().position(|other| *other == name).unwrap_or_default();
    let overlay = overlay(job, rounds, shard)?;
    let mut marker = ShardMarker::default();
    for index in 0..run.num_parts(shard)? {
        job.context.stop.check()?;
        let mut rows = read_scores(&run.scores_part(name, shard, index))?;
        let mut refined = vec![false; rows.rows.len()];
        for (at, row) in rows.rows.iter().enumerate() {
            if let Some(exact) = overlay.get(row) {
                rows.logits[at] = exact.logits.get(head).copied().flatten();
                rows.scores[at] = exact.scores.get(head).copied().flatten();
                refined[at] = true;
            }
        }
        let path = run.refined_part(name, shard, index);
        let stamp = write_refined_scores(&path, &rows, &refined, job.context.config.parts.zstd)?;
        let num_rows = rows.rows.len() as u64;
        let num_refined = refined.iter().filter(|refined| **refined).count() as u64;
        for (what, count) in [("refined", num_refined), ("unchanged", num_rows - num_refined)] {
            *marker.counts.entry(what.to_owned()).or_default() += count;
        }
        marker.rows += num_rows;
        marker.files.push(PartFile { path: run.relative(&path), rows: num_rows, stamp });
    }
    run.mark_shard(Stage::Refine, &format!("{name}/{}", shard.name), &marker)
}

/// Writes the report of `rounds` rounds, the last of which found nothing, and marks the stage done.
pub(super) fn write_report(job: &Job<'_>, rounds: usize) -> Result<()> {
    let run = job.context.run;
    let mut report = Refinement {
        rounds,
        documents: 0,
        refined: 0,
        tokens: 0,
        refined_tokens: 0,
        languages: BTreeMap::new(),
    };
    for encoded in job.embedded.summaries.iter().filter_map(|summary| summary.encoded) {
        report.documents += encoded.documents;
        report.tokens += encoded.tokens;
    }
    for shard in &job.plan.shards {
        for round in 0..rounds {
            let key = RunDir::round_shard_key(round, shard);
            let marker = run.shard_marker(Stage::Refine, &key)?.unwrap_or_default();
            report.refined += marker.rows;
            report.refined_tokens += marker.counts.get(TOKENS).copied().unwrap_or_default();
        }
    }
    for (language, seen) in evidence(job, rounds)? {
        let refined = seen.iter().map(|seen| seen.documents).max().unwrap_or_default();
        let heads = job.names.iter().zip(seen).filter(|(_, seen)| seen.documents > 0);
        let heads = heads.map(|(name, seen)| {
            let margin = Some(seen.margin()).filter(|margin| margin.is_finite());
            let largest_difference = seen.largest.filter(|largest| largest.is_finite());
            (
                (*name).to_owned(),
                HeadRefinement { largest_difference, margin, safety: REFINE_SAFETY },
            )
        });
        let heads = heads.collect();
        report.languages.insert(language, LanguageRefinement { refined, heads });
    }
    let path = run.path(REPORT);
    let stamp = run.write_json(&path, &report)?;
    let marker = ShardMarker {
        rows: report.refined,
        files: vec![PartFile { path: run.relative(&path), rows: 1, stamp }],
        counts: [(TOKENS.to_owned(), report.refined_tokens)].into(),
        ..ShardMarker::default()
    };
    run.mark_shard(Stage::Refine, ALL_LANGUAGES, &marker)
}
