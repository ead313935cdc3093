//! Labelled texts, which heads are trained on.
//!
//! Owns the spelling of labels. What is trained on is read into memory: training sets are small.

use arrow_array::cast::AsArray;

use super::columns::{ColumnKind, string};
use super::documents::DocumentRequest;
use super::{BATCH_ROWS, InputFile, UNDETERMINED_LANGUAGE};
use crate::config::{InputConfig, LanguageSource};
use crate::error::{Error, Result};

/// Labels of the positive class: what a quality head keeps, what a toxicity head removes.
const POSITIVE: [&str; 4] = ["positive", "toxic", "1", "true"];

/// Column in which a sample can name the split it is of.
const SPLIT_COLUMN: &str = "split";

/// Labels of the other class.
const NEGATIVE: [&str; 5] = ["negative", "nontoxic", "non-toxic", "0", "false"];

/// Columns of labelled texts, besides the text and the id that the settings name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleColumns<'a> {
    /// Column of the class.
    pub label: &'a str,
    /// Column of what a text comes from, taken where there is one.
    pub source: Option<&'a str>,
    /// Column of the language; without one it is that of the file.
    pub language: Option<&'a str>,
}

impl<'a> SampleColumns<'a> {
    /// The column `label` of the class alone.
    pub fn of_label(label: &'a str) -> Self {
        Self { label, source: None, language: None }
    }
}

/// Part of the samples that serves one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// What is learned from.
    Train,
    /// What chooses an epoch.
    Validation,
    /// What is looked at once.
    Test,
}

impl Split {
    /// The split that a column calls so.
    fn named(name: &str) -> Option<Self> {
        match name {
            "train" => Some(Self::Train),
            "validation" | "valid" | "val" | "dev" => Some(Self::Validation),
            "test" => Some(Self::Test),
            _ => None,
        }
    }
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelledText {
    /// As [`super::DocumentInfo::id`].
    pub id: String,
    /// Language code; `und` where it is not known.
    pub language: String,
    /// What it comes from; `None` where that was not asked for or is unknown.
    pub source: Option<String>,
    /// The text, not blank.
    pub text: String,
    /// Whether it is of the positive (or toxic) class.
    pub label: bool,
    /// Split that the sample's own column names.
    pub split: Option<Split>,
}

/// The samples of some files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelledTexts {
    /// In the order of files and rows.
    pub samples: Vec<LabelledText>,
    /// Rows left out because their text is null or blank.
    pub skipped: u64,
}

/// Reads text and class of every row of `files`, and what else `columns` names.
///
/// A label is a string (`positive` or `toxic`, `negative`, `nontoxic` or `non-toxic`, `1`, `0`,
/// `true`, `false`), a boolean, or a number that is 0 or 1. Where there is a column `split`, its
/// value is `train`, `validation` (or `valid`, `val`, `dev`), `test` or null.
///
/// # Errors
/// [`Error::Row`] when a row has another label, none, or another split, counted over its file;
/// [`Error::Schema`] when there is no such column; otherwise as [`super::DocumentReader`].
pub fn read_samples(
    files: &[InputFile],
    config: &InputConfig,
    columns: SampleColumns<'_>,
) -> Result<LabelledTexts> {
    let mut samples = Vec::new();
    let each = &mut |sample| {
        samples.push(sample);
        Ok(())
    };
    let skipped = for_each_sample(files, config, columns, each)?;
    Ok(LabelledTexts { samples, skipped })
}

/// Hands the samples to `each` one after another, in the order of files and rows, and says how many
/// rows were left out because their text is null or blank; errors as of [`read_samples`], and those
/// of `each`.
pub(crate) fn for_each_sample(
    files: &[InputFile],
    config: &InputConfig,
    columns: SampleColumns<'_>,
    each: &mut dyn FnMut(LabelledText) -> Result<()>,
) -> Result<u64> {
    let language = match (columns.language, &config.language) {
        (Some(column), _) => {
            LanguageSource::Column { column: column.to_owned(), script_column: None }
        }
        (None, LanguageSource::Column { .. }) => {
            LanguageSource::Fixed(UNDETERMINED_LANGUAGE.into())
        }
        (None, of_files) => of_files.clone(),
    };
    // Samples need not have the columns of language and embeddings that the corpus has.
    let config = InputConfig { language, embeddings: None, ..config.clone() };
    files.iter().map(|file| samples_of(file, &config, columns, each)).sum()
}

/// [`for_each_sample`] of one file.
fn samples_of(
    file: &InputFile,
    config: &InputConfig,
    columns: SampleColumns<'_>,
    each: &mut dyn FnMut(LabelledText) -> Result<()>,
) -> Result<u64> {
    let mut layout = DocumentRequest::new(file, config);
    layout.request(columns.label, ColumnKind::Scalar, true);
    layout.request(SPLIT_COLUMN, ColumnKind::Text, false);
    if let Some(source) = columns.source {
        layout.request(source, ColumnKind::Scalar, false);
    }
    let mut reader = layout.open(file, config)?;
    let (mut skipped, mut first_bad, mut count) = (0, None, 0);
    while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
        let (documents, others) = layout.batch(batch);
        let value = |column: usize, i| string(others.get(column)?.as_string_view_opt()?, i);
        for i in 0..documents.len() {
            let Some(text) = documents.text(i) else {
                skipped += 1;
                continue;
            };
            match sample(columns.label, value(0, i), value(1, i)) {
                Ok((label, split)) => each(LabelledText {
                    id: documents.id(i).to_owned(),
                    language: documents.language(i).to_owned(),
                    source: value(2, i).map(ToOwned::to_owned),
                    text: text.to_owned(),
                    label,
                    split,
                })?,
                Err(reason) => {
                    count += 1;
                    first_bad.get_or_insert((documents.rows()[i] + 1, reason));
                }
            }
        }
    }
    match first_bad {
        Some((row, reason)) => Err(Error::Row { path: file.path.clone(), row, reason, count }),
        None => Ok(skipped),
    }
}

/// Class and split of a sample, or why it has none; `column` is that of the label.
fn sample(
    column: &str,
    label: Option<&str>,
    split: Option<&str>,
) -> Result<(bool, Option<Split>), String> {
    let shown =
        |value: Option<&str>| value.map_or("null".to_owned(), |text| format!("{text:.40?}"));
    let class = label.and_then(class).ok_or_else(|| {
        let known = [POSITIVE.join(", "), NEGATIVE.join(", ")].join(" and ");
        format!("`{column}` is {}; known are {known}", shown(label))
    })?;
    let named = split.map(|name| Split::named(name).ok_or(name)).transpose();
    let split = named.map_err(|name| {
        let known = "train, validation and test";
        format!("`{SPLIT_COLUMN}` is {}; known are {known}", shown(Some(name)))
    })?;
    Ok((class, split))
}

/// The class that a label means. Numbers come as they are written (`1`, `1.0`).
pub(crate) fn class(label: &str) -> Option<bool> {
    if POSITIVE.contains(&label) {
        return Some(true);
    }
    if NEGATIVE.contains(&label) {
        return Some(false);
    }
    let number: f64 = label.parse().ok()?;
    if number == 0.0 { Some(false) } else { (number.to_bits() == 1f64.to_bits()).then_some(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_label_is_understood() {
        for label in ["positive", "toxic", "1", "true", "1.0"] {
            assert_eq!(class(label), Some(true), "{label}");
        }
        for label in ["negative", "nontoxic", "non-toxic", "0", "false", "0.0", "-0.0"] {
            assert_eq!(class(label), Some(false), "{label}");
        }
        for label in ["", "2", "0.5", "NaN", "Positive", "yes", "neutral", "-1"] {
            assert_eq!(class(label), None, "{label}");
        }
    }
}
