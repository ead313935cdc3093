//! Identifies the languages of texts with a fastText classifier, such as lid.176 or GlotLID.

use std::path::Path;

use serde_json::{Value, json};

use super::model::{FastTextModel, TextScratch};
use polysift_base::error::{Error, Result};
use polysift_base::io::if_there;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_config::{InputConfig, LABEL_PREFIX, LANGUAGE_CODE, LanguageSource, is_language_code};

/// A classifier whose labels are languages.
#[derive(Debug)]
pub struct LanguageIdentifier {
    model: FastTextModel,
    codes: Vec<String>,
    threshold: f32,
    /// Settings that languages depend on: the digest of the file, labels and threshold.
    pub settings: Value,
}

impl LanguageIdentifier {
    /// Reads the classifier of `config`; returns `None` if it names none. Fails if a label is
    /// neither mapped by `labels` nor a language code, or if `labels` maps an unknown one.
    pub fn load(config: &InputConfig) -> Result<Option<Self>> {
        let LanguageSource::Model { model: path, labels, threshold, .. } = &config.language else {
            return Ok(None);
        };
        let missing = || Error::missing(path, "the classifier of `input.language` does not exist");
        let read = if_there(FastTextModel::read(Path::new(path)))?;
        let (model, digest) = read.ok_or_else(missing)?;
        let code = |label: String| label.strip_prefix(LABEL_PREFIX).unwrap_or(&label).to_owned();
        let mut codes: Vec<String> = model.labels().into_iter().map(code).collect();
        let key = "input.language.labels";
        if let Some(label) = labels.keys().find(|label| !codes.contains(label)) {
            return Err(Error::config(key, format!("`{label}` is not a label of {path}")));
        }
        for code in &mut codes {
            if let Some(named) = labels.get(code) {
                code.clone_from(named);
            } else if !is_language_code(code) {
                let reason = format!("the label `{code}` of {path} is not {LANGUAGE_CODE}; map it");
                return Err(Error::config(key, reason));
            }
        }
        let settings = json!({"model": digest, "labels": labels, "threshold": threshold});
        Ok(Some(Self { model, codes, threshold: *threshold, settings }))
    }

    /// Returns the language code of the best label for the whole `text`; [`UNDETERMINED_LANGUAGE`]
    /// if it is less probable than the threshold, or if the model knows no word of the text.
    pub fn identify(&self, text: &str, scratch: &mut TextScratch) -> &str {
        // fastText predicts for one line.
        let best = self.model.best(&text.replace('\n', " "), scratch);
        let best = best.filter(|(_, probability)| *probability >= self.threshold);
        best.map_or(UNDETERMINED_LANGUAGE, |(label, _)| &self.codes[label])
    }
}
