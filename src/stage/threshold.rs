//! Scores to exact thresholds, per language, over the whole corpus; and the report people read.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::context::{ALL_LANGUAGES, Context};
use super::corpus::{
    ScoreFiles, refine_settings, scored_run, select_language, stored_selection, threshold_settings,
};
use super::heads::Heads;
use super::model::encoder_digest;
use crate::error::Result;
use crate::head::AnyHead;
use crate::io::FileStamp;
use crate::run::{PartFile, RunDir, ShardMarker, Stage, StageWork};
use crate::selection::{Outcome, ThresholdKind, ThresholdReport};

/// Finds the thresholds of every language and writes `selection/<lang>.json`; where all are there, also
/// `thresholds/<head>.json`. Languages are shared out, since each is decided on its own.
pub fn threshold(context: Context<'_>) -> Result<()> {
    let Context { run, config, .. } = context;
    let (embedded, heads) = scored_run(context)?;
    let languages = heads.languages();
    let scores = ScoreFiles::selected(context)?;
    if scores == ScoreFiles::Refined {
        run.check_frozen(Stage::Refine, &refine_settings(context, &heads))?;
    }
    context.freeze(Stage::Threshold, &threshold_settings(config, languages))?;
    let languages: Vec<String> = languages.iter().cloned().collect();
    let work = StageWork::dealt(context, Stage::Threshold, languages.clone())?;
    context.progress.begin("threshold", Some(work.own.len() as u64), "languages");
    let outcome = work.for_all(context, |item| {
        context.stop.check()?;
        work.extend(context, item, 1);
        let language = &languages[item];
        let selection = select_language(context, &embedded, &heads, language, scores)?;
        let path = run.selection_file(language);
        let file = part_file(run, &path, run.write_json(&path, &selection)?);
        context.progress.advance(1, 0);
        Ok(ShardMarker { rows: 1, files: vec![file], ..ShardMarker::default() })
    });
    context.progress.end();
    outcome?;
    if work.are_done(run)? {
        report(context, &heads, &languages)?;
    }
    Ok(())
}

/// Writes `thresholds/<head>.json` from the thresholds of all `languages`, and marks the stage done.
fn report(context: Context<'_>, heads: &Heads, languages: &[String]) -> Result<()> {
    let run = context.run;
    let work = StageWork::new(context, Stage::Threshold, vec![ALL_LANGUAGES.to_owned()], &[0])?;
    work.for_all(context, |_| {
        let mut files = Vec::new();
        let mut reports: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        for language in languages {
            let marker = run.shard_marker(Stage::Threshold, language)?.unwrap_or_default();
            files.extend(marker.files);
            for threshold in &stored_selection(run, language)?.thresholds {
                let by_language = reports.entry(threshold.threshold.head_name.clone()).or_default();
                let thresholds = by_language.entry(language.clone()).or_insert_with(|| json!([]));
                if let Some(thresholds) = thresholds.as_array_mut() {
                    thresholds.push(threshold_report(threshold));
                }
            }
        }
        for (head, by_language) in reports {
            let path = run.path("thresholds").join(format!("{head}.json"));
            let stamp = run.write_json(&path, &head_report(context, heads, &head, by_language)?)?;
            files.push(part_file(run, &path, stamp));
        }
        Ok(ShardMarker { rows: languages.len() as u64, files, ..ShardMarker::default() })
    })
}

fn part_file(run: &RunDir, path: &Path, stamp: FileStamp) -> PartFile {
    PartFile { path: run.relative(path), rows: 1, stamp }
}

/// A threshold as `thresholds/<head>.json` has it.
fn threshold_report(report: &ThresholdReport) -> Value {
    let (kind, rate) = match &report.threshold.kind {
        ThresholdKind::Retain(_) => ("retention", None),
        ThresholdKind::Remove(rate) => ("removal", Some(*rate)),
        ThresholdKind::Fixed(_) => ("threshold", None),
    };
    let outcome = |outcome: &Outcome| {
        let retention = outcome.retentions.last().filter(|_| kind == "retention").copied();
        json!({
            "rate": rate.or(retention),
            "retentions": outcome.retentions,
            "threshold_score": outcome.threshold_score,
            "threshold_logit": outcome.threshold_logit,
            "candidates": outcome.candidates,
            "kept": outcome.kept,
            "realised_rate": outcome.realised_rate,
        })
    };
    json!({
        "kind": kind,
        "keep": report.threshold.keep,
        "n": report.scored.num_documents,
        "weight": report.scored.weight,
        "unscored": report.num_unscored,
        "nan": report.num_nan,
        "rates": report.outcomes.iter().map(outcome).collect::<Vec<_>>(),
        "histogram": report.scores,
    })
}

fn head_report(
    context: Context<'_>,
    heads: &Heads,
    name: &str,
    by_language: BTreeMap<String, Value>,
) -> Result<Value> {
    let languages: BTreeMap<String, Value> = by_language
        .into_iter()
        .map(|(language, thresholds)| {
            let digest = heads.get(name, &language).map(AnyHead::digest);
            let report = json!({"head_digest": digest, "thresholds": thresholds});
            (language, report)
        })
        .collect();
    Ok(json!({
        "head": name,
        "encoder_digest": encoder_digest(context.run)?,
        "mode": context.config.selection.mode,
        "weight": context.config.selection.weight,
        "languages": languages,
    }))
}
