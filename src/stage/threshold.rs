//! Scores to exact thresholds, per language, over the whole corpus; and the report people read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::corpus::{ScoreFiles, ScoredCorpus};
use super::score::Heads;
use super::{ALL_LANGUAGES, Context, Embedded, StageWork};
use crate::config::RunConfig;
use crate::error::{Error, Result};
use crate::head::AnyHead;
use crate::io::FileStamp;
use crate::run::{PartFile, RunDir, ShardMarker, Stage};
use crate::selection::{
    HeadInfo, Selection, Threshold, ThresholdKind, ThresholdReport, plan_thresholds, select,
};

/// Settings that the thresholds depend on: for every language of the run what applies to it.
pub fn settings(config: &RunConfig, languages: &BTreeSet<String>) -> Value {
    let thresholds: BTreeMap<&String, Value> =
        languages.iter().map(|l| (l, json!(config.thresholds(l)))).collect();
    json!({"thresholds": thresholds, "selection": config.selection})
}

/// The thresholds of `language`; [`Threshold::head`] counts all heads of the run in name order, as scores are read.
pub(crate) fn thresholds_of(
    context: Context<'_>,
    language: &str,
    heads: &Heads,
) -> Result<Vec<Threshold>> {
    let config = context.config;
    let available: Vec<HeadInfo> = config
        .heads
        .keys()
        .filter_map(|name| Some((name, heads.get(name, language)?.spec())))
        .map(|(name, spec)| HeadInfo {
            name: name.clone(),
            keep: spec.keep,
            activation: spec.activation,
        })
        .collect();
    let mut thresholds =
        plan_thresholds(&config.thresholds(language), &available, &config.selection.order)?;
    for threshold in thresholds.iter_mut().filter(|threshold| threshold.head.is_some()) {
        threshold.head = config.heads.keys().position(|name| *name == threshold.head_name);
    }
    Ok(thresholds)
}

/// Finds the thresholds of every language and writes `selection/<lang>.json`; where all are there, also
/// `thresholds/<head>.json`. Languages are shared out, since each is decided on its own.
pub fn threshold(context: Context<'_>) -> Result<()> {
    let Context { run, config, .. } = context;
    let names: Vec<&str> = config.heads.keys().map(String::as_str).collect();
    let embedded = Embedded::scored(run, &names)?;
    let heads = Heads::load(context, &embedded)?;
    let languages = heads.languages();
    // The scores have to be those of these heads, and the thresholds possible, before anything is frozen.
    run.check_frozen(Stage::Score, &heads.settings_of_scores(run)?)?;
    let scores = ScoreFiles::selected(context)?;
    if scores == ScoreFiles::Refined {
        run.check_frozen(Stage::Refine, &super::refine::settings(context, &heads))?;
    }
    for language in languages {
        thresholds_of(context, language, &heads)?;
    }
    context.freeze(Stage::Threshold, &settings(config, languages))?;
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

/// The thresholds of `language` as they were written.
pub(crate) fn stored_selection(run: &RunDir, language: &str) -> Result<Selection> {
    run.read_json(&run.selection_file(language))?.ok_or_else(|| Error::Missing {
        path: run.root().display().to_string(),
        reason: "the thresholds are not computed yet; run `polysift threshold`".into(),
    })
}

fn part_file(run: &RunDir, path: &Path, stamp: FileStamp) -> PartFile {
    PartFile { path: run.relative(path), rows: 1, stamp }
}

/// Computes the thresholds of one language from the stored scores in `files`.
pub(crate) fn select_language(
    context: Context<'_>,
    embedded: &Embedded,
    heads: &Heads,
    language: &str,
    files: ScoreFiles,
) -> Result<Selection> {
    let thresholds = thresholds_of(context, language, heads)?;
    let corpus = ScoredCorpus::open(context, embedded, language, files);
    select(&corpus, &thresholds, context.config.selection.mode)
}

/// A threshold as `thresholds/<head>.json` tells it.
fn threshold_report(report: &ThresholdReport) -> Value {
    let (kind, rates) = match &report.threshold.kind {
        ThresholdKind::Retain(rates) => ("retention", rates.clone()),
        ThresholdKind::Remove(rate) => ("removal", vec![*rate]),
        ThresholdKind::Fixed(_) => ("threshold", Vec::new()),
    };
    let outcomes: Vec<Value> = report
        .outcomes
        .iter()
        .enumerate()
        .map(|(i, outcome)| {
            json!({
                // Outcomes of one parent are in the order of the rates.
                "rate": rates.get(i % rates.len().max(1)),
                "retentions": outcome.retentions,
                "threshold_score": outcome.threshold_score,
                "threshold_logit": outcome.threshold_logit,
                "candidates": outcome.candidates,
                "kept": outcome.kept,
                "realised_rate": outcome.realised_rate,
            })
        })
        .collect();
    json!({
        "kind": kind,
        "keep": report.threshold.keep,
        "n": report.scored.num_documents,
        "weight": report.scored.weight,
        "unscored": report.num_unscored,
        "nan": report.num_nan,
        "rates": outcomes,
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
        "encoder_digest": super::embed::encoder_digest(context.run)?,
        "mode": context.config.selection.mode,
        "weight": context.config.selection.weight,
        "languages": languages,
    }))
}
