//! The plan stage: which shards there are, frozen before the first document is read.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::context::Context;
use polysift_base::error::{Error, Result};
use polysift_config::{LanguageSource, RunConfig};
use polysift_data::input::{InputFile, UNDETERMINED_LANGUAGE, discover};
use polysift_runs::run::{Plan, RunDir, Shard, Stage};

/// New files that are named.
const MAX_NAMED: usize = 10;

/// The input files of `config`.
pub fn input_files(config: &RunConfig) -> Result<Vec<InputFile>> {
    if config.input.files.is_empty() {
        return Err(Error::config(
            "input.files",
            "no input is given (INPUT on the command line or `[input] files`)",
        ));
    }
    let files = discover(&config.input.files, Path::new("."))?;
    let nameless = files.iter().find(|f| f.language.is_none());
    if let (LanguageSource::Path, Some(file), true) =
        (&config.input.language, nameless, files.iter().any(|f| f.language.is_some()))
    {
        return Err(Error::config(
            "input.files",
            format!(
                "{} has no language: every pattern needs `{{lang}}`, or set input.language",
                file.path.display()
            ),
        ));
    }
    Ok(files)
}

/// Languages of the documents of `plan`, where that is known before they are read: not where a column
/// decides.
pub(crate) fn planned_languages(config: &RunConfig, plan: &Plan) -> Option<BTreeSet<String>> {
    match &config.input.language {
        LanguageSource::Column { .. } => None,
        _ => Some(plan.shards.iter().map(|shard| language_of(config, shard)).collect()),
    }
}

/// Language of the documents of `shard`, where no column decides.
pub(crate) fn language_of(config: &RunConfig, shard: &Shard) -> String {
    match &config.input.language {
        LanguageSource::Fixed(code) => code.clone(),
        _ => shard.language.as_deref().unwrap_or(UNDETERMINED_LANGUAGE).into(),
    }
}

/// The plan of what `config` names now.
///
/// # Errors
/// Those of [`input_files`] and [`Plan::new`].
pub fn plan(config: &RunConfig) -> Result<Plan> {
    Plan::new(&input_files(config)?, config.input.max_shard_bytes, settings(config))
}

/// The settings that a plan depends on.
fn settings(config: &RunConfig) -> Value {
    let input = &config.input;
    json!({"files": input.files, "max_shard_bytes": input.max_shard_bytes})
}

/// The plan of `run`, which every command goes by once there is one, whatever became of the files. Where
/// `config` names the input in other words, they have to mean the same. One that `looks` warns of files
/// that are new.
///
/// # Errors
/// [`Error::Mismatch`] where they do not; those of [`plan`] and of reading the frozen one.
pub fn frozen(run: &RunDir, config: &RunConfig, looks: bool) -> Result<Plan> {
    let frozen = run.plan()?;
    if config.input.files.is_empty() || frozen.settings == settings(config) {
        if looks {
            warn_of_new_files(config, &frozen);
        }
        return Ok(frozen);
    }
    let now = plan(config)?;
    run.freeze_plan(&now)?;
    Ok(now)
}

/// Warns of files that `config` names and `plan`, which is frozen, has not.
fn warn_of_new_files(config: &RunConfig, plan: &Plan) {
    let files = match input_files(config) {
        Ok(files) => files,
        // What is gone fails with its shard.
        Err(Error::Missing { .. }) => return,
        Err(error) => {
            tracing::warn!(error = %error.report(), "the input cannot be looked through for new files");
            return;
        }
    };
    let new = plan.unplanned(&files);
    if !new.is_empty() {
        let named: Vec<String> =
            new.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
        let more = if new.len() > MAX_NAMED { ", ..." } else { "" };
        tracing::warn!(
            "{} file(s) are new since the run was planned and are left out ({}{more}); `polysift plan \
             --redo` takes them up and discards all outputs",
            new.len(),
            named.join(", ")
        );
    }
}

/// Freezes `plan` and keeps the settings in the run directory.
///
/// # Errors
/// [`Error::Mismatch`] with what differs where another plan is frozen, unless all is to be made again.
pub fn freeze(context: Context<'_>, plan: &Plan) -> Result<()> {
    if context.redo == Some(Stage::Embed) {
        context.worker.exclusive(context.stop, || context.run.discard_from(Stage::Embed))?;
    }
    context.run.freeze_plan(plan)?;
    context.run.share()?;
    context.keep_settings()
}

/// Whether heads are trained before the corpus is embedded, so that what is wrong with them shows at
/// once: where the plan says its languages and nothing is embedded yet. One of many tasks keeps the order of the
/// stages, since it would wait for other tasks first. Freezes the plan, of whose languages the heads
/// are.
///
/// # Errors
/// As [`freeze`].
pub fn trains_first(context: Context<'_>, plan: &Plan) -> Result<bool> {
    let run = context.run;
    // What is done again discards the heads too; of settings that differ, those of the embeddings are to be
    // reported first.
    let is_begun =
        context.redo == Some(Stage::Embed) || run.frozen_settings(Stage::Embed)?.is_some();
    if context.task.is_some() || is_begun || planned_languages(context.config, plan).is_none() {
        return Ok(false);
    }
    run.freeze_plan(plan)?;
    Ok(true)
}
