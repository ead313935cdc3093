//! Checks of the inputs of all stages before the first document is read. Otherwise a missing head
//! or samples without a label would show only after the whole corpus is embedded.

use std::collections::BTreeSet;

use crate::train::check_samples;
use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_base::language::iso_639_3;
use polysift_base::progress::Stop;
use polysift_config::{
    DEFAULT_LANGUAGE, FilterConfig, HeadConfig, InputConfig, LanguageSource, LanguageThresholds,
    RunConfig, UNSCORED_LANGUAGE,
};
use polysift_corpus::filter::open_filter;
use polysift_corpus::heads::{for_each_head, needs_encoder_error, warn_of_unserved};
use polysift_corpus::languages::{ALL_LANGUAGES, planned_languages};
use polysift_corpus::training::PlannedHead;
use polysift_data::input::{ColumnKind, ColumnValues, DocumentReader, Format, LANG, languages_of};
use polysift_encoder::{HubSettings, resolve};
use polysift_fasttext::LanguageIdentifier;
use polysift_heads::head::HeadSpec;
use polysift_runs::run::{Plan, RunDir, Shard};
use polysift_selection::plan_thresholds;

/// Number of input files searched for a column.
const FIRST_FILES: usize = 16;
/// Number of input rows searched for an embedding.
const FIRST_ROWS: usize = 16;

/// Checks what later stages will read: heads load and fit the encoder, or can be trained on their
/// samples, unless `run` has them. Returns the heads to train. Warns if the store does not answer.
pub(crate) fn check_inputs(
    config: &RunConfig,
    plan: &Plan,
    run: Option<&RunDir>,
    hub: &HubSettings,
    stop: &Stop,
) -> Result<Vec<PlannedHead>> {
    let in_run = config.heads.iter().filter(|(_, head)| head.path.is_none());
    let spec = |head: &HeadConfig, name| HeadSpec { keep: head.keep(name), ..HeadSpec::default() };
    let specs: Vec<_> = in_run.map(|(name, head)| (name, spec(head, name))).collect();
    let specs: Vec<_> = specs.iter().map(|(name, spec)| (name.as_str(), Some(spec))).collect();
    for language in config.languages.keys() {
        let thresholds = config.thresholds(language);
        plan_thresholds(language, &thresholds, &specs, &config.selection.order)?;
    }
    let languages = planned_languages(config, plan);
    LanguageIdentifier::load(&config.input)?;
    check_loaded(config, plan, languages.as_ref(), hub, stop)?;
    config.row_filters().try_for_each(|(name, filter)| open_filter(name, filter).map(drop))?;
    // If only some files lack a column, the stage reports it for each shard.
    let scores = config.heads.values().filter_map(|head| head.score.as_deref());
    let scores = scores.map(|column| (column, ColumnKind::Scalar));
    let urls = config.filters.values().filter_map(FilterConfig::url_column);
    for (column, kind) in scores.chain(urls.map(|column| (column, ColumnKind::Text))) {
        check_column(config, plan, column, kind)?;
    }
    let planned = check_samples(config, languages.as_ref(), run, stop)?;
    // The encoder embeds the samples of heads.
    if let Some(column) = &config.input.embeddings
        && planned.iter().any(|head| head.is_encoded)
        && let Some(width) = column_width(config, plan)
    {
        let made = resolve(&config.encoder, hub)?.embedding_size();
        if made != width {
            let reason = format!(
                "embeds the samples of heads with {made} values, but the embeddings in `{column}` \
                 have {width}; name the encoder that made them"
            );
            return Err(Error::config("encoder.model", reason));
        }
    }
    if let Some(to) = config.export.to.as_ref().filter(|to| is_url(to)) {
        crate::export::warn_of_place(to);
    }
    Ok(planned)
}

/// Checks that the heads with files load, serve the thresholds and fit the embeddings of the run;
/// `languages` is `None` if each document has its own.
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
        let checked = for_each_head(None, name, head, &serves, &mut |language, loaded| {
            stop.check()?;
            served.insert(language.to_owned());
            let spec = [(name.as_str(), Some(loaded.head.spec()))];
            let all = || config.languages.keys().map(String::as_str).collect();
            let tables = if language == ALL_LANGUAGES { all() } else { vec![language] };
            for table in tables {
                plan_thresholds(table, &config.thresholds(table), &spec, &config.selection.order)?;
            }
            let Some(head) = loaded.head.as_embedding() else { return Ok(()) };
            if !config.has_embeddings() {
                return Err(needs_encoder_error(name));
            }
            let (recipe, width) = match &mut embeddings {
                Some(embeddings) => embeddings,
                // The embed stage reports errors in embeddings of the input for each shard.
                none if config.input.embeddings.is_some() => {
                    none.insert((None, column_width(config, plan)))
                }
                none => {
                    let files = resolve(&config.encoder, hub)?;
                    let width = files.embedding_size();
                    none.insert((Some(files.recipe), Some(width)))
                }
            };
            width.map_or(Ok(()), |width| head.check_hidden_size(&loaded.path, width))?;
            recipe.as_ref().map_or(Ok(()), |recipe| loaded.check_recipe(recipe))
        });
        match (checked, &head.fallback) {
            (Err(Error::Missing { .. }), Some(other)) if served.is_empty() => {
                tracing::warn!(head = name, "no file for these languages; `{other}` scores them");
            }
            (checked, _) => checked?,
        }
        // The score stage warns of languages that a fallback does not serve either.
        let serves_all =
            !path.contains(LANG) || served.contains(ALL_LANGUAGES) || head.fallback.is_some();
        if let (Some(languages), false) = (languages, serves_all) {
            warn_of_unserved(name, &(languages - &served));
        }
    }
    Ok(())
}

/// Checks that the first files have the id column, if the settings name another than the default.
/// Returns [`Error::Schema`] of the first file if all of them lack it.
pub(crate) fn check_ids(config: &RunConfig, plan: &Plan) -> Result<()> {
    if config.input.id == InputConfig::default().id {
        return Ok(());
    }
    check_column(config, plan, &config.input.id, ColumnKind::Id)
}

/// Checks that one of the first files that can be opened has the `column`.
fn check_column(config: &RunConfig, plan: &Plan, column: &str, kind: ColumnKind) -> Result<()> {
    let look = |shard: &Shard| -> Result<()> {
        let file = shard.input()?;
        let mut values = ColumnValues::open(&file, &config.input, column, kind)?;
        // JSON lines have no schema, so a row is read.
        if matches!(file.format, Format::JsonLines(_)) {
            values.value(shard.first_row())?;
        }
        Ok(())
    };
    // The stages report files with other errors.
    let is_told = |found: &Result<()>| matches!(found, Ok(()) | Err(Error::Schema { .. }));
    let mut looked = plan.shards.iter().take(FIRST_FILES).map(look).filter(is_told);
    match looked.next() {
        Some(Err(first)) if looked.all(|other| other.is_err()) => Err(first),
        _ => Ok(()),
    }
}

/// Warns of settings that are probably wrong: nothing is selected, or languages lack a usual code.
pub(crate) fn warn_of_settings(config: &RunConfig, plan: &Plan) {
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
    for table in config.languages.keys() {
        let is_default = [DEFAULT_LANGUAGE, UNSCORED_LANGUAGE].contains(&table.as_str());
        if !is_default && !languages.contains(table) {
            tracing::warn!("[languages.{table}] has no effect: no input is of this language");
        }
    }
    if languages.iter().all(|language| language == UNDETERMINED_LANGUAGE)
        && config.input.language == LanguageSource::Path
    {
        tracing::warn!(
            "no language is named: all documents count as `{UNDETERMINED_LANGUAGE}` (give `{{lang}}` in the paths, \
             --language, or `input.language` in the settings)"
        );
    }
    for language in &languages {
        let (code, script) = language.split_once('_').unwrap_or((language, "Zyyy"));
        let is_script = script.len() == 4 && script.bytes().all(|byte| byte.is_ascii_alphabetic());
        let known = iso_639_3(code);
        if language == UNDETERMINED_LANGUAGE
            || is_script && known.is_some_and(|(three_letters, _)| three_letters == code)
        {
            continue;
        }
        let hint = known.map(|(code, name)| format!("; the code of {name} is `{code}`"));
        let hint = hint.unwrap_or_default();
        tracing::warn!(
            "the language `{language}` is no code as `fra_Latn` (ISO 639-3 and script), by which heads and rates \
             are found{hint}"
        );
    }
}

/// Returns the width of the first embedding in the input; `None` if the first rows have none.
fn column_width(config: &RunConfig, plan: &Plan) -> Option<usize> {
    let file = plan.shards.first()?.input().ok()?;
    let mut reader = DocumentReader::open(&file, &config.input).ok()?;
    let documents = reader.next_batch(FIRST_ROWS).ok()??;
    let width = |(num_chunks, values): (usize, &[f32])| values.len().checked_div(num_chunks);
    (0..documents.len()).find_map(|i| documents.embeddings(i).and_then(width))
}
