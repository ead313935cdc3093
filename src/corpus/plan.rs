//! The plan stage freezes the list of shards before the first document is read.

use std::path::Path;

use serde_json::{Value, json};

use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;
use polysift_config::{LanguageSource, RunConfig};
use polysift_data::input::{InputFile, discover};
use polysift_runs::run::{Plan, RunDir};

/// Maximum number of new files that a warning names.
const MAX_NAMED: usize = 10;

/// Finds the input files of `config`.
pub fn input_files(config: &RunConfig) -> Result<Vec<InputFile>> {
    if config.input.files.is_empty() {
        let reason = "no input is given (INPUT on the command line or `[input] files`)";
        return Err(Error::config("input.files", reason));
    }
    let files = discover(&config.input.files, Path::new("."))?;
    let nameless = files.iter().find(|f| f.language.is_none());
    if let (LanguageSource::Path, Some(file), true) =
        (&config.input.language, nameless, files.iter().any(|f| f.language.is_some()))
    {
        let file = file.path.display();
        let reason = "every pattern needs `{lang}`, or set input.language";
        return Err(Error::config("input.files", format!("{file} has no language: {reason}")));
    }
    Ok(files)
}

/// Makes the plan of the files that `config` matches now, which it opens.
pub fn plan(config: &RunConfig) -> Result<Plan> {
    let files = input_files(config)?;
    let is_url = |file: &InputFile| is_url(&file.path.to_string_lossy());
    let mut untold = files.iter().filter(|file| file.version.is_none() && is_url(file));
    if let Some(InputFile { path: first, .. }) = untold.next() {
        tracing::warn!(
            first = %first.display(),
            files = 1 + untold.count(),
            "the server tells neither an ETag nor the time of a change: only another size is noticed"
        );
    }
    Plan::new(&files, config.input.max_shard_bytes, plan_settings(config))
}

/// Returns the settings that a plan is made from.
fn plan_settings(config: &RunConfig) -> Value {
    let input = &config.input;
    json!({"files": input.files, "max_shard_bytes": input.max_shard_bytes})
}

/// Reads the plan of `run`, which counts even if files changed. Patterns that changed must match an
/// equal plan ([`Error::Mismatch`]). If `looks`, warns of new files of the input.
pub fn frozen_plan(run: &RunDir, config: &RunConfig, looks: bool) -> Result<Plan> {
    let frozen = run.plan()?;
    if config.input.files.is_empty() || frozen.settings == plan_settings(config) {
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
            tracing::warn!(error = %error.report(), "the input cannot be searched for new files");
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
