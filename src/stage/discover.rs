//! Which files and languages a run is about.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::config::{HeadConfig, LanguageSource, RunConfig};
use crate::error::{Error, Result};
use crate::input::{InputFile, discover};
use crate::run::{RunDir, Stage};
use crate::stage::ALL_LANGUAGES;

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

/// Files of labelled samples by language (`_all` for patterns without `{lang}`).
pub fn head_sources(name: &str, head: &HeadConfig) -> Result<BTreeMap<String, Vec<InputFile>>> {
    let mut sources: BTreeMap<String, Vec<InputFile>> = BTreeMap::new();
    for file in discover(&head.train, Path::new("."))? {
        let language = file.language.clone().unwrap_or_else(|| ALL_LANGUAGES.to_owned());
        sources.entry(language).or_default().push(file);
    }
    if sources.is_empty() {
        return Err(Error::config(format!("heads.{name}.train"), "matches no file"));
    }
    Ok(sources)
}

/// Languages of the documents of a run, as counted while they were embedded.
pub fn languages_of(run: &RunDir) -> Result<BTreeSet<String>> {
    let mut languages = BTreeSet::new();
    for shard in &run.plan()?.shards {
        if let Some(marker) = run.shard_marker(Stage::Embed, &shard.name)? {
            languages.extend(marker.counts.into_keys());
        }
    }
    Ok(languages)
}
