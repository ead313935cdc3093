//! The plan stage freezes the list of shards before the first document is read.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::context::Context;
use polysift_base::error::{Error, Result};
use polysift_config::{LanguageSource, RunConfig};
use polysift_data::input::{InputFile, UNDETERMINED_LANGUAGE, discover};
use polysift_runs::run::{Plan, RunDir, Shard, Stage};

/// Maximum number of new files that a warning names.
const MAX_NAMED: usize = 10;

/// Finds the input files of `config`.
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

/// Returns the languages of the documents of `plan`; `None` if a column of the input decides.
pub(crate) fn planned_languages(config: &RunConfig, plan: &Plan) -> Option<BTreeSet<String>> {
    match &config.input.language {
        LanguageSource::Column { .. } => None,
        _ => Some(plan.shards.iter().map(|shard| language_of(config, shard)).collect()),
    }
}

/// Returns the language of the documents of `shard`, if no column decides.
pub(crate) fn language_of(config: &RunConfig, shard: &Shard) -> String {
    match &config.input.language {
        LanguageSource::Fixed(code) => code.clone(),
        _ => shard.language.as_deref().unwrap_or(UNDETERMINED_LANGUAGE).into(),
    }
}

/// Makes the plan of the files that `config` matches now.
///
/// # Errors
/// Errors of [`input_files`] and [`Plan::new`].
pub fn plan(config: &RunConfig) -> Result<Plan> {
    Plan::new(&input_files(config)?, config.input.max_shard_bytes, settings(config))
}

fn settings(config: &RunConfig) -> Value {
    let input = &config.input;
    json!({"files": input.files, "max_shard_bytes": input.max_shard_bytes})
}

/// Reads the plan of `run`, which every command uses once it exists, even if files changed. If
/// `config` names the input in other words, they must give the same plan. With `looks`, new files
/// cause a warning.
///
/// # Errors
/// [`Error::Mismatch`] if the plans differ; errors of [`plan`] and of reading the frozen plan.
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

/// Warns of files that `config` matches and the frozen `plan` lacks.
fn warn_of_new_files(config: &RunConfig, plan: &Plan) {
    let files = match input_files(config) {
        Ok(files) => files,
        // A missing file fails with its shard.
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
/// [`Error::Mismatch`] if another plan is frozen, unless everything is to be redone.
pub fn freeze(context: Context<'_>, plan: &Plan) -> Result<()> {
    if context.redo == Some(Stage::Embed) {
        context.worker.exclusive(context.stop, || context.run.discard_from(Stage::Embed))?;
    }
    context.run.freeze_plan(plan)?;
    context.run.share()?;
    context.keep_settings()
}

/// Returns true if heads are trained before the corpus is embedded, so that their errors show
/// early: if the plan tells the languages and nothing is embedded yet. One of many tasks keeps the
/// order of the stages, since it would have to wait for other tasks first. If true, freezes the
/// plan, because the heads depend on its languages.
///
/// # Errors
/// Errors of [`freeze`].
pub fn trains_first(context: Context<'_>, plan: &Plan) -> Result<bool> {
    let run = context.run;
    // A redo discards the heads too; with changed settings, a mismatch of the embeddings should be
    // reported first.
    let is_begun =
        context.redo == Some(Stage::Embed) || run.frozen_settings(Stage::Embed)?.is_some();
    if context.task.is_some() || is_begun || planned_languages(context.config, plan).is_none() {
        return Ok(false);
    }
    run.freeze_plan(plan)?;
    Ok(true)
}
