//! What is wanted of a row, and how it becomes a document, whatever the format.
//!
//! Owns the defaults: generated ids, unknown languages, blank texts.

use std::borrow::Cow;
use std::ops::Range;

use arrow::array::{Array, StringArray};

use super::column::Strings;
use super::{Document, InputFile, SampleColumns, UNDETERMINED_LANGUAGE};
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
    /// Column of the source of a sample, which a file need not have.
    pub source: Option<String>,
    /// Column of the split that a sample names for itself, which a file need not have.
    pub split: Option<String>,
    /// Whether a text that is empty or only white space is a text.
    pub keeps_blank: bool,
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
    pub source: Option<String>,
    pub split: Option<String>,
}

/// A row: the document, and the label, the source and the split where they were asked for.
pub(super) struct Record {
    pub document: Document,
    pub label: Option<String>,
    pub source: Option<String>,
    pub split: Option<String>,
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
            source: None,
            split: None,
            keeps_blank: false,
            name: file.name.clone(),
            fixed_language: fixed.unwrap_or_else(|| UNDETERMINED_LANGUAGE.to_owned()),
        }
    }

    /// What a labelled text is made of: files of samples need not have the columns of language and
    /// embeddings that the corpus has.
    pub(super) fn sample(
        file: &InputFile,
        config: &InputConfig,
        columns: SampleColumns<'_>,
        split: &str,
    ) -> Self {
        Self {
            language: columns.language.map(|column| (column.to_owned(), None)),
            embeddings: None,
            label: Some(columns.label.to_owned()),
            source: columns.source.map(ToOwned::to_owned),
            split: Some(split.to_owned()),
            ..Self::document(file, config)
        }
    }

    /// Columns that must exist, unlike the id and the split.
    pub(super) fn required(&self) -> impl Iterator<Item = &str> {
        let language = self.language.iter();
        let language = language.flat_map(|(code, script)| [Some(code), script.as_ref()]);
        [Some(&self.text), self.embeddings.as_ref(), self.label.as_ref()]
            .into_iter()
            .chain(language)
            .flatten()
            .map(String::as_str)
    }

    /// Id of a row that has none.
    fn generated_id(&self, row: u64) -> String {
        format!("{}/{row}", self.name)
    }

    /// Language of a row with what the columns of the language and the script hold.
    fn language(&self, code: Option<&str>, script: Option<&str>) -> Cow<'_, str> {
        match (&self.language, code, script) {
            (None, ..) => Cow::Borrowed(&self.fixed_language),
            (Some(_), None, _) => Cow::Borrowed(UNDETERMINED_LANGUAGE),
            (Some(_), Some(code), None) => Cow::Owned(code.to_owned()),
            (Some(_), Some(code), Some(script)) => Cow::Owned(format!("{code}_{script}")),
        }
    }

    /// Ids of the rows `at` of a column, which is missing or begins with the row `first_row`.
    pub(super) fn ids(
        &self,
        column: Option<&Strings>,
        first_row: u64,
        at: &Range<usize>,
    ) -> StringArray {
        match column {
            Some(Strings::Small(ids)) if ids.null_count() == 0 => ids.slice(at.start, at.len()),
            column => StringArray::from_iter_values(at.clone().map(|i| {
                let generated = || Cow::Owned(self.generated_id(first_row + i as u64));
                column.and_then(|ids| ids.get(i)).map_or_else(generated, Cow::Borrowed)
            })),
        }
    }

    /// Languages of the rows `at` of the columns of the language and the script.
    pub(super) fn languages(
        &self,
        code: Option<&Strings>,
        script: Option<&Strings>,
        at: &Range<usize>,
    ) -> StringArray {
        match (code, script) {
            (Some(Strings::Small(codes)), None) if codes.null_count() == 0 => {
                codes.slice(at.start, at.len())
            }
            _ => StringArray::from_iter_values(at.clone().map(|i| {
                let script = script.and_then(|scripts| scripts.get(i));
                self.language(code.and_then(|codes| codes.get(i)), script)
            })),
        }
    }

    /// Puts a row together.
    pub(super) fn record(&self, row: u64, fields: Fields) -> Record {
        let language = self.language(fields.language.as_deref(), fields.script.as_deref());
        let document = Document {
            row,
            language: language.into_owned(),
            id: fields.id.unwrap_or_else(|| self.generated_id(row)),
            num_bytes: fields.text.as_ref().map_or(0, |text| text.len() as u64),
            text: fields.text.filter(|text| self.keeps_blank || !is_blank(text)),
            embeddings: fields.embeddings,
        };
        let Fields { label, source, split, .. } = fields;
        Record { document, label, source, split }
    }
}

/// Whether there is nothing in a text to embed.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}
