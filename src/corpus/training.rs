//! Which heads a run trains, for which languages and on which files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::languages::{ALL_LANGUAGES, planned_languages};
use crate::{Context, Embedded};
use polysift_base::error::{Error, Result};
use polysift_config::{HeadConfig, HeadLanguages, RunConfig};
use polysift_data::input::{InputFile, Split, discover};
use polysift_heads::train::{MIN_SAMPLES, check_labels};

/// A head that a run trains, and its samples.
pub struct TrainingJob<'a> {
    /// Name of the head.
    pub name: &'a str,
    /// Settings of the head.
    pub head: &'a HeadConfig,
    /// Languages that the head serves, or [`ALL_LANGUAGES`].
    pub serves: Vec<String>,
    /// Files of labelled samples.
    pub files: Vec<InputFile>,
    /// Fingerprints of `files`.
    pub digests: Vec<String>,
}

impl TrainingJob<'_> {
    /// Returns the key of the unit of work.
    pub fn key(&self) -> String {
        format!("{}/{}", self.name, self.language())
    }

    /// Returns true if negatives are drawn from the documents of `language`.
    pub fn draws_from(&self, language: &str) -> bool {
        let serves = |own: &str| self.serves.iter().any(|served| served == own);
        match self.head.languages {
            HeadLanguages::Others => !serves(language),
            _ => serves(ALL_LANGUAGES) || serves(language),
        }
    }

    /// Returns the bytes of the files of samples.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Returns the served languages joined with `+`, as in the key and in the name of a text model.
    pub fn language(&self) -> String {
        self.serves.join("+")
    }

    /// Checks labels as if all negatives that are asked for were drawn; errors name the files.
    pub fn check(&self, labels: &[(f32, Option<Split>)]) -> Result<()> {
        let drawn = self.head.negatives.map_or(0, |negatives| negatives.corpus);
        // If this many negatives pass the checks, any larger number does.
        let labels = [labels, &vec![(0.0, None); drawn.min(MIN_SAMPLES)]].concat();
        check_labels(self.name, &self.language(), self.head, &labels).map_err(|error| match error {
            Error::Training { head, language, reason } => {
                let (first, more) = (self.files[0].path.display(), self.files.len() - 1);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let reason = format!("{reason}; they are read from {first}{more}");
                Error::Training { head, language, reason }
            }
            other => other,
        })
    }
}

/// Returns the keys of the heads to train.
pub fn keys(context: Context<'_>) -> Result<Vec<String>> {
    let languages = corpus_languages(context)?;
    Ok(jobs(context.config, languages.as_ref())?.iter().map(TrainingJob::key).collect())
}

/// Returns the heads that are trained, not loaded.
pub fn to_train(config: &RunConfig) -> impl Iterator<Item = (&String, &HeadConfig)> {
    config.heads.iter().filter(|(_, head)| !head.train.is_empty())
}

/// Finds the heads to train for `languages` (`None`: all with samples) and opens their files.
pub fn jobs<'a>(
    config: &'a RunConfig,
    languages: Option<&BTreeSet<String>>,
) -> Result<Vec<TrainingJob<'a>>> {
    let mut jobs = Vec::new();
    for (name, head) in to_train(config) {
        for (serves, files) in deal(name, head, languages)? {
            let digests = files.iter().map(InputFile::fingerprint).collect::<Result<_>>()?;
            jobs.push(TrainingJob { name, head, serves, files, digests });
        }
    }
    Ok(jobs)
}

/// Divides the files of samples among the heads `name`: returns languages and files of each.
/// [`Error::Config`] without files, or if they lack the languages that the settings ask for.
fn deal(
    name: &str,
    head: &HeadConfig,
    languages: Option<&BTreeSet<String>>,
) -> Result<Vec<(Vec<String>, Vec<InputFile>)>> {
    // By language; `_all` for patterns without `{lang}`.
    let mut sources: BTreeMap<String, Vec<InputFile>> = BTreeMap::new();
    for file in discover(&head.train, Path::new("."))? {
        let language = file.language.clone().unwrap_or_else(|| ALL_LANGUAGES.to_owned());
        sources.entry(language).or_default().push(file);
    }
    if sources.is_empty() {
        return Err(Error::config(format!("heads.{name}.train"), "matches no file"));
    }
    let is_wanted = |language: &String| languages.is_none_or(|known| known.contains(language));
    let of = |is_source: &dyn Fn(&String) -> bool| -> Vec<InputFile> {
        let files = sources.iter().filter(|(language, _)| is_source(language));
        files.flat_map(|(_, files)| files.clone()).collect()
    };
    let has_languages = !sources.contains_key(ALL_LANGUAGES);
    let mut dealt = Vec::new();
    match &head.languages {
        HeadLanguages::Each => {
            for (language, files) in &sources {
                if language == ALL_LANGUAGES || is_wanted(language) {
                    dealt.push((vec![language.clone()], files.clone()));
                }
            }
        }
        HeadLanguages::All => dealt.push((vec![ALL_LANGUAGES.to_owned()], of(&|_| true))),
        _ if !has_languages => {
            let reason = "are by language, but `train` has files without `{lang}`";
            return Err(Error::config(format!("heads.{name}.languages"), reason));
        }
        HeadLanguages::Others => {
            let served = languages.cloned().unwrap_or_else(|| sources.keys().cloned().collect());
            for language in served {
                let files = of(&|source| *source != language);
                dealt.push((vec![language], files));
            }
        }
        HeadLanguages::Groups(groups) => {
            for group in groups {
                let served: Vec<String> = group.iter().filter(|l| is_wanted(l)).cloned().collect();
                if !served.is_empty() {
                    dealt.push((served, of(&|source| group.contains(source))));
                }
            }
        }
    }
    dealt.retain(|(_, files)| !files.is_empty());
    Ok(dealt)
}

/// Returns the languages of the corpus: from the plan, if it tells them, so that heads can be
/// trained first; else from the embedded documents. `None` if heads are trained without a corpus.
pub fn corpus_languages(context: Context<'_>) -> Result<Option<BTreeSet<String>>> {
    let Context { config, run, .. } = context;
    if config.input.files.is_empty() {
        return Ok(None);
    }
    let plan = if run.has_plan() { run.plan()? } else { crate::plan::plan(config)? };
    match planned_languages(config, &plan) {
        None => Ok(Some(Embedded::of(run)?.languages())),
        known => Ok(known),
    }
}

/// A head that is to be trained, and its samples.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedHead {
    /// Name of the head.
    pub head: String,
    /// Languages that it serves.
    pub language: String,
    /// Number of labelled texts.
    pub samples: u64,
    /// Bytes of their texts.
    pub text_bytes: u64,
    /// Number of documents of the corpus that are drawn for its negatives.
    pub negatives: u64,
    /// True if the texts are encoded.
    pub is_encoded: bool,
}
