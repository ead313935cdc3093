//! The inputs of all stages, looked at before the first document is read: a head that is missing or
//! samples without a label would otherwise show only when the whole corpus is embedded.

use std::collections::BTreeSet;

use super::context::ALL_LANGUAGES;
use super::filter::check_filters;
use super::heads::{for_each_head, scores_embeddings, warn_of_unserved};
use super::plan::planned_languages;
use super::train::{PlannedHead, check_samples};
use polysift_base::error::{Error, Result};
use polysift_base::language::iso_639_3;
use polysift_base::progress::Stop;
use polysift_config::{
    DEFAULT_LANGUAGE, FilterConfig, HeadConfig, InputConfig, LanguageSource, LanguageThresholds,
    RunConfig,
};
use polysift_data::input::{
    ColumnKind, ColumnValues, DocumentReader, Format, LANG, UNDETERMINED_LANGUAGE, languages_of,
};
use polysift_encoder::{HubSettings, Recipe, resolve};
use polysift_runs::run::{Plan, RunDir, Shard};
use polysift_selection::plan_thresholds;

/// Files of the input in which columns are looked for.
const FIRST_FILES: usize = 16;
/// Rows of the input in which an embedding is looked for.
const FIRST_ROWS: usize = 16;

/// Checks what the stages after the plan are going to read: that heads can be loaded and fit the encoder, and
/// the others can be trained on their samples, but for those that were trained in `run`, and gives these. Says so if the
/// store of the export does not answer.
///
/// # Errors
/// Those of the stage that would find it out.
pub fn check_inputs(
    config: &RunConfig,
    plan: &Plan,
    run: Option<&RunDir>,
    hub: &HubSettings,
    stop: &Stop,
) -> Result<Vec<PlannedHead>> {
    for language in config.languages.keys() {
        plan_thresholds(&config.thresholds(language), &[], &config.selection.order)?;
    }
    let languages = planned_languages(config, plan);
    check_loaded(config, plan, languages.as_ref(), hub, stop)?;
    check_filters(&config.filters)?;
    check_columns(config, plan)?;
    let planned = check_samples(config, languages.as_ref(), run, stop)?;
    if let Some(to) = &config.export.to {
        super::export::warn_of_place(to);
    }
    Ok(planned)
}

/// Loads the heads that come from files, one after another.
fn check_loaded(
    config: &RunConfig,
    plan: &Plan,
    languages: Option<&BTreeSet<String>>,
    hub: &HubSettings,
    stop: &Stop,
) -> Result<()> {
    let mut embeddings = None;
    for (name, head) in &config.heads {
        let Some(path) = &head.path else { continue };
        let serves = match languages {
            Some(languages) => languages.clone(),
            None if path.contains(LANG) => languages_of(path)?,
            None => BTreeSet::new(), // one file serves all
        };
        let mut served = BTreeSet::new();
        for_each_head(None, name, head, &serves, &mut |language, loaded| {
            stop.check()?;
            served.insert(language.to_owned());
            if loaded.head.as_embedding().is_none() {
                return Ok(());
            }
            if !config.has_embeddings() {
                return Err(scores_embeddings(name));
            }
            let (recipe, width) = match &mut embeddings {
                Some(embeddings) => embeddings,
                none => none.insert(embeddings_of(config, plan, hub)?),
            };
            width.map_or(Ok(()), |width| loaded.check_width(width))?;
            recipe.as_ref().map_or(Ok(()), |recipe| loaded.check_recipe(recipe))
        })?;
        warn_of_others(name, head, &served, languages);
    }
    Ok(())
}

/// Checks that the first files that can be opened have the columns that heads and filters look at; where
/// some have them and others have not, their stage says it of each shard.
fn check_columns(config: &RunConfig, plan: &Plan) -> Result<()> {
    let scores = config.heads.values().filter_map(|head| head.score.as_deref());
    let scores = scores.map(|column| (column, ColumnKind::Scalar));
    let urls = config.filters.values().filter_map(FilterConfig::url_column);
    for (column, kind) in scores.chain(urls.map(|column| (column, ColumnKind::Text))) {
        check_column(config, plan, column, kind)?;
    }
    Ok(())
}

/// Checks that some of the first files have the column of ids, where the settings name another than the default.
///
/// # Errors
/// [`Error::Schema`] of the first file.
pub fn check_ids(config: &RunConfig, plan: &Plan) -> Result<()> {
    if config.input.id == InputConfig::default().id {
        return Ok(());
    }
    check_column(config, plan, &config.input.id, ColumnKind::Id)
}

fn check_column(config: &RunConfig, plan: &Plan, column: &str, kind: ColumnKind) -> Result<()> {
    let look = |shard: &Shard| -> Result<()> {
        let file = shard.input()?;
        let mut values = ColumnValues::open(&file, &config.input, column, kind)?;
        // JSON lines have no schema: their lines tell.
        if matches!(file.format, Format::JsonLines(_)) {
            values.value(shard.first_row())?;
        }
        Ok(())
    };
    let is_missing = |outcome: &Result<()>| matches!(outcome, Err(Error::Schema { .. }));
    let mut looked = plan.shards.iter().take(FIRST_FILES).map(look);
    match looked.next() {
        Some(first) if is_missing(&first) && looked.all(|other| is_missing(&other)) => first,
        _ => Ok(()),
    }
}

/// Warns of settings by which much is done for little: nothing that selects, or languages that no head has.
pub fn warn_of_settings(config: &RunConfig, plan: &Plan) {
    let mut languages = config.languages.keys().map(String::as_str).chain([DEFAULT_LANGUAGE]);
    let selects =
        languages.any(|language| config.thresholds(language) != LanguageThresholds::default());
    if !selects && (config.filters.is_empty() || config.embeds_texts()) {
        let what = if config.heads.is_empty() { "neither a head nor a rate" } else { "no rate" };
        tracing::warn!(
            "{what} is named: nothing is removed by its score, and every document with text is exported (give \
             `--retention HEAD=RATE`, or [languages] in the settings)"
        );
    }
    let Some(languages) = planned_languages(config, plan) else { return };
    if languages.iter().all(|language| language == UNDETERMINED_LANGUAGE)
        && config.input.language == LanguageSource::Path
    {
        tracing::warn!(
            "no language is named: all documents count as `{UNDETERMINED_LANGUAGE}` (give `{{lang}}` in the paths, \
             --language or --language-column)"
        );
    }
    for language in &languages {
        if let Some(code) = usual_code(language) {
            tracing::warn!(
                "the language `{language}` is no code as `fra_Latn` (ISO 639-3 and script), by which heads and rates \
                 are found{code}"
            );
        }
    }
}

/// What a warning of a language that is no ISO 639-3 code, alone or with a script, says of the code to use; `None` for
/// such a code.
fn usual_code(language: &str) -> Option<String> {
    let (code, script) = language.split_once('_').unwrap_or((language, "Zyyy"));
    let is_script = script.len() == 4 && script.bytes().all(|byte| byte.is_ascii_alphabetic());
    if language == UNDETERMINED_LANGUAGE
        || is_script && iso_639_3(code).is_some_and(|(known, _)| known == code)
    {
        return None;
    }
    let usual = iso_639_3(code).map(|(code, name)| format!("; the code of {name} is `{code}`"));
    Some(usual.unwrap_or_default())
}

/// Recipe and width of the embeddings that heads will score. Where the input brings them, the
/// width is that in its first rows, if they have any; what is wrong with them the embed stage says, of each
/// shard alone.
fn embeddings_of(
    config: &RunConfig,
    plan: &Plan,
    hub: &HubSettings,
) -> Result<(Option<Recipe>, Option<usize>)> {
    if config.input.embeddings.is_none() {
        let files = resolve(&config.encoder, hub)?;
        let width = files.embedding_size();
        return Ok((Some(files.recipe), Some(width)));
    }
    let width = || {
        let file = plan.shards.first()?.input().ok()?;
        let mut reader = DocumentReader::open(&file, &config.input).ok()?;
        let documents = reader.next_batch(FIRST_ROWS).ok()??;
        let width = |(num_chunks, values): (usize, &[f32])| values.len().checked_div(num_chunks);
        (0..documents.len()).find_map(|i| documents.embeddings(i).and_then(width))
    };
    Ok((None, width()))
}

/// Says which of `languages` are not among those that the files of a head serve.
fn warn_of_others(
    name: &str,
    head: &HeadConfig,
    served: &BTreeSet<String>,
    languages: Option<&BTreeSet<String>>,
) {
    let serves_all = head.path.as_ref().is_none_or(|path| !path.contains(LANG))
        || served.contains(ALL_LANGUAGES);
    if let (Some(languages), false) = (languages, serves_all) {
        warn_of_unserved(name, &(languages - served));
    }
}
