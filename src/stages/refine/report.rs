//! The outputs of the refine stage: scores with the refined ones in place, and the report.

use rayon::prelude::*;

use super::documents::RunScores;
use polysift_base::error::Result;
use polysift_corpus::Context;
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::model::precise_settings;
use polysift_corpus::refinement::{HeadRefinement, LanguageRefinement, Refinement};
use polysift_corpus::work::score_keys;
use polysift_data::parts::{read_scores, write_refined_scores};
use polysift_runs::run::{RunDir, ShardMarker, Stage};

/// Key of the encoded tokens in [`ShardMarker::counts`] of a round.
pub(super) const TOKENS: &str = "tokens";

pub(super) fn write_parts(scores: &RunScores<'_>, rounds: usize) -> Result<()> {
    let (Context { config, run, stop, .. }, shards) = (scores.context, scores.shards());
    let keys = score_keys(&scores.embedded.plan, &scores.rows.heads);
    (0..keys.len()).into_par_iter().try_for_each(|item| {
        if run.is_done(Stage::Refine, &keys[item])? {
            return Ok(());
        }
        let (head, shard) = (item / shards.len(), &shards[item % shards.len()]);
        let name = scores.rows.heads[head];
        let done = scores.scored_again(0..rounds, shard)?;
        let mut marker = ShardMarker::default();
        for index in 0..run.num_parts(shard)? {
            stop.check()?;
            let mut rows = read_scores(&run.scores_part(name, shard, index))?;
            let mut refined = vec![false; rows.documents.len()];
            for (at, row) in rows.documents.rows().iter().enumerate() {
                if let Some(precise) = done.get(row) {
                    rows.scores[at] = precise.get(head).copied().flatten();
                    refined[at] = true;
                }
            }
            let path = run.refined_part(name, shard, index);
            let stamp = write_refined_scores(&path, &rows, Some(&refined), config.parts.zstd)?;
            let num_rows = rows.documents.len() as u64;
            let num_refined = refined.iter().filter(|refined| **refined).count() as u64;
            let file = run.file(&path, num_rows, stamp);
            marker.add(file, [("refined", num_refined), ("unchanged", num_rows - num_refined)]);
        }
        run.mark_shard(Stage::Refine, &keys[item], &marker)
    })
}

/// Writes the report after `rounds` rounds and marks the stage done.
pub(super) fn write_report(scores: &RunScores<'_>, rounds: usize) -> Result<()> {
    let run = scores.context.run;
    let precision = precise_settings(scores.context)?.precision;
    let mut report = Refinement { precision, rounds, ..Refinement::default() };
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
    let languages = scores.near_thresholds(rounds)?;
    for (language, near) in &languages {
        for (head, seen) in near.seen.iter().enumerate() {
            if seen.documents > 0 {
                report.heads.push(HeadRefinement {
                    language: language.clone(),
                    head: scores.rows.heads[head].to_owned(),
                    refined: seen.documents,
                    largest_difference: seen.largest.filter(|largest| largest.is_finite()),
                    margin: near.margin(head),
                });
            }
        }
    }
    let changes = scores.changes(rounds, &languages)?;
    report.languages.extend(languages.into_iter().map(|(language, near)| {
        let (changed, farthest) = changes.get(&language).copied().unwrap_or_default();
        LanguageRefinement {
            changed,
            farthest_change: (changed > 0).then_some(farthest),
            expected_wrong: near.expected,
            language,
        }
    }));
    let marker = ShardMarker {
        rows: report.refined,
        files: vec![run.write_json(&run.path(Refinement::FILE), &report)?],
        counts: [(TOKENS.to_owned(), report.refined_tokens)].into(),
        ..ShardMarker::default()
    };
    run.mark_shard(Stage::Refine, ALL_LANGUAGES, &marker)
}
