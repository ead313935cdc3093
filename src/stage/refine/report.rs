//! What the stage leaves: the scores with the refined ones in their place, and the report.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::documents::{RunScores, differences, scored_again};
use crate::config::REFINE_SAFETY;
use crate::error::Result;
use crate::parts::{read_scores, write_refined_scores};
use crate::run::{
    HeadRefinement, LanguageRefinement, PartFile, Refinement, RunDir, Shard, ShardMarker, Stage,
};
use crate::stage::context::ALL_LANGUAGES;
use crate::stage::work::score_keys;

/// What [`ShardMarker::counts`] of a round calls the encoded tokens.
pub(super) const TOKENS: &str = "tokens";

/// Writes the score parts of every head and shard that are not written yet.
pub(super) fn write_parts(scores: &RunScores<'_>, rounds: usize) -> Result<()> {
    let (run, shards) = (scores.context.run, scores.shards());
    let keys = score_keys(&scores.embedded.plan, &scores.names);
    (0..keys.len()).into_par_iter().try_for_each(|item| {
        if run.is_done(Stage::Refine, &keys[item])? {
            return Ok(());
        }
        let (name, shard) = (scores.names[item / shards.len()], &shards[item % shards.len()]);
        write_shard(scores, rounds, name, shard)
    })
}

fn write_shard(scores: &RunScores<'_>, rounds: usize, name: &str, shard: &Shard) -> Result<()> {
    let run = scores.context.run;
    let head = scores.names.iter().position(|other| *other == name).unwrap_or_default();
    let done = scored_again(scores, rounds, shard)?;
    let mut marker = ShardMarker::default();
    for index in 0..run.num_parts(shard)? {
        scores.context.stop.check()?;
        let mut rows = read_scores(&run.scores_part(name, shard, index))?;
        let mut refined = vec![false; rows.documents.len()];
        for (at, row) in rows.documents.rows().iter().enumerate() {
            if let Some(precise) = done.get(row) {
                let score = precise.get(head).copied().flatten();
                rows.logits[at] = score.map(|score| score.logit);
                rows.scores[at] = score.map(|score| score.score);
                refined[at] = true;
            }
        }
        let path = run.refined_part(name, shard, index);
        let stamp = write_refined_scores(&path, &rows, &refined, scores.context.config.parts.zstd)?;
        let num_rows = rows.documents.len() as u64;
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
pub(super) fn write_report(scores: &RunScores<'_>, rounds: usize) -> Result<()> {
    let run = scores.context.run;
    let mut report = Refinement {
        rounds,
        documents: 0,
        refined: 0,
        tokens: 0,
        refined_tokens: 0,
        languages: BTreeMap::new(),
    };
    for encoded in scores.embedded.summaries.iter().filter_map(|summary| summary.encoded) {
        report.documents += encoded.documents;
        report.tokens += encoded.tokens;
    }
    for shard in scores.shards() {
        for round in 0..rounds {
            let key = RunDir::round_shard_key(round, shard);
            let marker = run.shard_marker(Stage::Refine, &key)?.unwrap_or_default();
            report.refined += marker.rows;
            report.refined_tokens += marker.counts.get(TOKENS).copied().unwrap_or_default();
        }
    }
    for (language, seen) in differences(scores, rounds)? {
        let refined = seen.iter().map(|seen| seen.documents).max().unwrap_or_default();
        let heads = scores.names.iter().zip(seen).filter(|(_, seen)| seen.documents > 0);
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
    let path = run.path(Refinement::FILE);
    let stamp = run.write_json(&path, &report)?;
    let marker = ShardMarker {
        rows: report.refined,
        files: vec![PartFile { path: run.relative(&path), rows: 1, stamp }],
        counts: [(TOKENS.to_owned(), report.refined_tokens)].into(),
        ..ShardMarker::default()
    };
    run.mark_shard(Stage::Refine, ALL_LANGUAGES, &marker)
}
