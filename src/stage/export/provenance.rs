//! What an exported file says of how it was made: settings and thresholds of its own languages.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::config::FilterConfig;
use crate::error::Result;
use crate::input::list_files;
use crate::run::Stage;
use crate::stage::context::{ALL_LANGUAGES, Context};
use crate::stage::model::encoder_digest;
use crate::stage::verdicts::filter_settings;

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
        let mut file = self.all.clone();
        let is_own = |language: &String| languages.contains_key(language);
        for head in objects(&mut file, "/head_digests") {
            head.retain(|language, _| language == ALL_LANGUAGES || is_own(language));
        }
        if let Some(thresholds) = file.pointer_mut("/thresholds/thresholds") {
            thresholds.as_object_mut().into_iter().for_each(|of| of.retain(|key, _| is_own(key)));
        }
        for lists in objects(&mut file, "/filters/lists") {
            lists.retain(|path, _| self.listed.get(path).is_none_or(is_own));
        }
        if let Some(reason) = reason {
            file["removed_by"] = json!(reason);
        }
        file
    }
}

/// The objects in that at `pointer` in `value`.
fn objects<'v>(
    value: &'v mut Value,
    pointer: &str,
) -> impl Iterator<Item = &'v mut Map<String, Value>> {
    let found = value.pointer_mut(pointer).and_then(Value::as_object_mut);
    found.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut)
}
