//! The thresholds of a run: their settings, how they are computed, and how they are read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::audit;
use crate::mixed::MixedScores;
use crate::scan::ScoredCorpus;
use crate::score_files::ScoreFiles;
use crate::verdicts::{check_filtered, filter_settings};
use crate::{Cascade, Context, Embedded, Heads};
use polysift_base::error::{Error, Result};
use polysift_config::{
    LanguageThresholds, REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE, REFINE_SAFETY, REFINE_SAMPLE_EVERY,
    RunConfig,
};
use polysift_heads::head::AnyHead;
use polysift_runs::run::{RunDir, Stage};
use polysift_selection::{Selection, Threshold, plan_thresholds, select};

/// Returns the thresholds of `language`: the table `_unscored` takes the place of `_default` if no
/// head that keeps documents serves the language.
fn thresholds_in_effect(config: &RunConfig, language: &str, heads: &Heads) -> LanguageThresholds {
    config.thresholds_with(language, |name| heads.get(name, language).is_some())
}

/// Returns the settings that the thresholds depend on, for every language of the run.
pub fn threshold_settings(context: Context<'_>, heads: &Heads) -> Result<Value> {
    let (config, languages) = (context.config, heads.languages().iter());
    let thresholds: BTreeMap<&String, Value> =
        languages.map(|l| (l, json!(thresholds_in_effect(config, l, heads)))).collect();
    let mut settings = json!({"thresholds": thresholds, "selection": config.selection});
    if !config.filters.is_empty() {
        settings["filters"] = filter_settings(context.run)?;
    }
    Ok(settings)
}

/// Returns the settings that refined scores depend on besides the scores.
pub fn refine_settings(context: Context<'_>, heads: &Heads) -> Result<Value> {
    Ok(json!({
        "thresholds": threshold_settings(context, heads)?,
        "risk": context.config.selection.refine_risk,
        "safety": REFINE_SAFETY,
        "sample": {"every": REFINE_SAMPLE_EVERY, "least": REFINE_MIN_SAMPLE, "most": REFINE_MAX_SAMPLE},
        "seed": context.config.seed,
    }))
}

/// Plans the thresholds of `language`. Heads are indices into the run's heads, by name.
pub fn thresholds_of(
    context: Context<'_>,
    language: &str,
    heads: &Heads,
) -> Result<Vec<Threshold>> {
    let config = context.config;
    let available: Vec<_> = (config.heads.keys())
        .map(|name| (name.as_str(), heads.get(name, language).map(AnyHead::spec)))
        .collect();
    let thresholds = thresholds_in_effect(config, language, heads);
    plan_thresholds(language, &thresholds, &available, &config.selection.order)
}

/// Loads a run with all shards scored and its heads, and checks that its thresholds are possible.
pub fn scored_run(context: Context<'_>) -> Result<(Embedded, Heads)> {
    let embedded = Embedded::scored(context.run, context.config.heads.keys())?;
    check_filtered(context, &embedded)?;
    Cascade::of(context, &embedded.plan)?;
    let heads = Heads::load(context, &embedded)?;
    context.run.check_frozen(Stage::Score, &heads.settings())?;
    for language in heads.languages() {
        thresholds_of(context, language, &heads)?;
    }
    Ok((embedded, heads))
}

/// Reads the thresholds of `languages` that the threshold stage wrote.
pub fn stored_selections(
    run: &RunDir,
    languages: BTreeSet<String>,
) -> Result<BTreeMap<String, Selection>> {
    let stored = |language: String| {
        let is_done = run.is_done(Stage::Threshold, &language)?;
        let read = || run.read_output(Stage::Threshold, &language, &run.selection_file(&language));
        let stored = if is_done { read()? } else { None };
        let reason = "the thresholds are not computed yet; run `polysift threshold`";
        let missing = || Error::missing(run.root(), reason);
        Ok((language, stored.ok_or_else(missing)?))
    };
    languages.into_iter().map(stored).collect()
}

/// Computes the thresholds of one language from the scores in `files`, of which `mixed` may hold
/// some, and audits its cascade.
pub fn select_language(
    context: Context<'_>,
    embedded: &Embedded,
    heads: &Heads,
    language: &str,
    files: ScoreFiles,
    mixed: Option<&MixedScores>,
) -> Result<Selection> {
    let thresholds = thresholds_of(context, language, heads)?;
    let corpus = ScoredCorpus::open(context, embedded, language, files, None, mixed)?;
    let selected = select(&corpus, &thresholds, context.config.selection.mode);
    let mut selection = selected.map_err(|error| match error {
        Error::Config { name, reason } => Error::config(name, format!("{reason} (in {language})")),
        other => other,
    })?;
    let result = corpus.cascade.languages.get(language).filter(|it| it.first_pass.is_some());
    if let (Some(config), Some(result)) = (&context.config.cascade, result) {
        let audited = audit::read_audited(context, embedded, language, files, &selection)?;
        selection.cascade =
            Some(audit::audit(config, embedded, result, language, &audited, &selection));
    }
    Ok(selection)
}

/// Reads the thresholds of the languages of `run` that have them.
pub fn selections(run: &RunDir) -> Result<BTreeMap<String, Selection>> {
    let mut languages = BTreeSet::new();
    for language in run.done_keys(Stage::Threshold)? {
        if run.is_done(Stage::Threshold, &language)? {
            languages.insert(language);
        }
    }
    stored_selections(run, languages)
}
