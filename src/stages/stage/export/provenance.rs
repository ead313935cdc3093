//! What an exported file says of how it was made: settings and thresholds of its own languages.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::stage::context::{ALL_LANGUAGES, Context};
use crate::stage::model::encoder_digest;
use crate::stage::verdicts::filter_settings;
use polysift_base::error::Result;
use polysift_config::FilterConfig;
use polysift_data::input::list_files;
use polysift_runs::run::Stage;

/// How all files of an export were made.
pub(super) struct ExportProvenance {
    all: Value,
    /// The languages that lists of filters are for, by their paths.
    listed: BTreeMap<String, String>,
}

impl ExportProvenance {
    /// Reads the settings of the run of `context`, whose thresholds are found.
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
            // Embeddings and scores are those of the texts before.
            all["pii"] = json!(pii);
        }
        let lists = |filter: &FilterConfig| list_files(&filter.lists).unwrap_or_default();
        let listed = config.filters.values().flat_map(lists);
        let of_language = listed
            .filter_map(|list| Some((list.path.to_string_lossy().into_owned(), list.language?)));
        Ok(Self { all, listed: of_language.collect() })
    }

    /// The settings for a file with documents of `languages`; `reason` says why its documents were removed.
    pub(super) fn of_file(&self, languages: &BTreeMap<String, u64>, reason: Option<&str>) -> Value {
        let is_own = |language: &str| languages.contains_key(language);
        let serves = |language: &str| language == ALL_LANGUAGES || is_own(language);
        let is_listed = |path: &str| self.listed.get(path).is_none_or(|language| is_own(language));
        // Whatever is of other languages is not copied first: every file would copy all of them.
        let own = |key: &str, value: &Value| match key {
            "head_digests" => each(value, |_, head| retained(head, &serves)),
            "thresholds" => each(value, |key, of| match key {
                "thresholds" => retained(of, &is_own),
                _ => of.clone(),
            }),
            "filters" => each(value, |key, of| match key {
                "lists" => each(of, |_, lists| retained(lists, &is_listed)),
                _ => of.clone(),
            }),
            _ => value.clone(),
        };
        let mut file = each(&self.all, own);
        if let Some(reason) = reason {
            file["removed_by"] = json!(reason);
        }
        file
    }
}

/// An object of what `make` makes of each value by its key; a value that is no object as it is.
fn each(value: &Value, make: impl Fn(&str, &Value) -> Value) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    object.iter().map(|(key, value)| (key.clone(), make(key, value))).collect()
}

/// The keys of an object that `is_kept`, with their values; a value that is no object as it is.
fn retained(value: &Value, is_kept: &dyn Fn(&str) -> bool) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    let kept = object.iter().filter(|(key, _)| is_kept(key));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}
