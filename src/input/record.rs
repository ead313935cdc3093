//! What is wanted of a row, and how it becomes a document, whatever the format.
//!
//! Owns the defaults: generated ids, unknown languages, blank texts.

use super::{Document, InputFile, UNDETERMINED_LANGUAGE};
use crate::config::{InputConfig, LanguageSource};

/// Columns that are read, by the names of the settings.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub text: String,
    pub id: String,
    /// Column of the language and of the script.
    pub language: Option<(String, Option<String>)>,
    pub embeddings: Option<String>,
    pub label: Option<String>,
    /// Prefix of generated ids.
    name: String,
    /// Language of documents when no column has it.
    fixed_language: String,
}

/// Values of one row as they were found.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub text: Option<String>,
    pub id: Option<String>,
    pub language: Option<String>,
    pub script: Option<String>,
    pub embeddings: Option<Vec<Vec<f32>>>,
    pub label: Option<String>,
}

/// A row: the document, and the label where one was asked for.
pub(super) struct Record {
    pub document: Document,
    pub label: Option<String>,
}

impl Wanted {
    /// What a document is made of.
    pub(super) fn document(file: &InputFile, config: &InputConfig) -> Self {
        let (language, fixed) = match &config.language {
            LanguageSource::Path => (None, file.language.clone()),
            LanguageSource::Fixed(code) => (None, Some(code.clone())),
            LanguageSource::Column { column, script_column } => {
                (Some((column.clone(), script_column.clone())), None)
            }
        };
        Self {
            text: config.text.clone(),
            id: config.id.clone(),
            language,
            embeddings: config.embeddings.clone(),
            label: None,
            name: file.name.clone(),
            fixed_language: fixed.unwrap_or_else(|| UNDETERMINED_LANGUAGE.to_owned()),
        }
    }

    /// What a labelled text is made of: files of samples need not have the languages and
    /// embeddings that the corpus has.
    pub(super) fn sample(file: &InputFile, config: &InputConfig, label: &str) -> Self {
        let label = Some(label.to_owned());
        Self { language: None, embeddings: None, label, ..Self::document(file, config) }
    }

    /// Columns that must exist, unlike the id.
    pub(super) fn required(&self) -> impl Iterator<Item = &str> {
        let language = self.language.iter();
        let language = language.flat_map(|(code, script)| [Some(code), script.as_ref()]);
        [Some(&self.text), self.embeddings.as_ref(), self.label.as_ref()]
            .into_iter()
            .chain(language)
            .flatten()
            .map(String::as_str)
    }

    /// Puts a row together.
    pub(super) fn record(&self, row: u64, fields: Fields) -> Record {
        let language = match (&self.language, fields.language, fields.script) {
            (None, ..) => self.fixed_language.clone(),
            (Some(_), None, _) => UNDETERMINED_LANGUAGE.to_owned(),
            (Some(_), Some(code), None) => code,
            (Some(_), Some(code), Some(script)) => format!("{code}_{script}"),
        };
        let document = Document {
            row,
            id: fields.id.unwrap_or_else(|| format!("{}/{row}", self.name)),
            language,
            num_bytes: fields.text.as_ref().map_or(0, |text| text.len() as u64),
            text: fields.text.filter(|text| !text.trim().is_empty()),
            embeddings: fields.embeddings,
        };
        Record { document, label: fields.label }
    }
}
