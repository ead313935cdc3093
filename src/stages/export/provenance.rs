//! Provenance in an exported file: the settings and thresholds of its own languages.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use polysift_base::error::Result;
use polysift_config::FilterConfig;
use polysift_corpus::Context;
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::model::encoder_digest;
use polysift_corpus::verdicts::filter_settings;
use polysift_data::input::list_files;
use polysift_runs::run::Stage;

/// Provenance of all files of an export.
pub(super) struct ExportProvenance {
    all: Value,
    /// Languages of the filters' lists, by path.
    listed: BTreeMap<String, String>,
}

impl ExportProvenance {
    /// Reads the settings of the run of `context`, which has thresholds.
    pub(super) fn of(context: Context<'_>) -> Result<Self> {
        let (config, run) = (context.config, context.run);
        let thresholds = run.frozen_settings(Stage::Threshold)?.unwrap_or_default();
        let mut all = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "encoder_digest": encoder_digest(run)?,
            "head_digests": run.frozen_settings(Stage::Score)?,
            "thresholds": {
                "thresholds": thresholds["thresholds"],
                "selection": thresholds["selection"],
            },
        });
        if !config.filters.is_empty() {
            all["filters"] = filter_settings(run)?;
        }
        if let Some(pii) = &config.pii {
            // Embeddings and scores were made from the texts before PII was replaced.
            all["pii"] = json!(pii);
        }
        let lists = |filter: &FilterConfig| list_files(filter.lists(), &[]).unwrap_or_default();
        let listed = config.filters.values().flat_map(lists);
        let of_language = listed
            .filter_map(|list| Some((list.path.to_string_lossy().into_owned(), list.language?)));
        Ok(Self { all, listed: of_language.collect() })
    }

    /// Returns the settings for a file with documents of `languages`, removed for `reason` if any.
    pub(super) fn of_file(&self, languages: &BTreeMap<String, u64>, reason: Option<&str>) -> Value {
        let is_own = |language: &str| languages.contains_key(language);
        let is_kept = |path: &[&str], key: &str| match path {
            ["head_digests", _] => key == ALL_LANGUAGES || is_own(key),
            ["thresholds", "thresholds"] => is_own(key),
            ["filters", "lists", _] => self.listed.get(key).is_none_or(|language| is_own(language)),
            _ => true,
        };
        // Filter while copying: otherwise every file would copy the settings of all languages.
        let mut file = pruned(&self.all, &[], &is_kept);
        if let Some(reason) = reason {
            file["removed_by"] = json!(reason);
        }
        file
    }
}

/// Copies `value` with the keys that `is_kept`, which gets the keys above a key, and the key.
fn pruned(value: &Value, path: &[&str], is_kept: &dyn Fn(&[&str], &str) -> bool) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    let kept = object.iter().filter(|(key, _)| is_kept(path, key));
    let inner = |key: &str, value: &Value| pruned(value, &[path, &[key]].concat(), is_kept);
    kept.map(|(key, value)| (key.clone(), inner(key, value))).collect()
}
