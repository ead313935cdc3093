//! Labelled texts on which heads are trained, and the spelling of labels.

use serde::{Deserialize, Serialize};

use super::columns::{ColumnKind, Rejects, TableRow};
use super::documents::{DocumentInfo, DocumentRequest};
use super::{BATCH_ROWS, InputFile};
use polysift_base::error::Result;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_config::{
    HeadConfig, InputConfig, LANGUAGE_CODE, LabelKind, LanguageSource, is_language_code,
};

/// Labels of the positive class, which a quality head keeps and a toxicity head removes.
const POSITIVE: [&str; 4] = ["positive", "toxic", "1", "true"];
const NEGATIVE: [&str; 5] = ["negative", "nontoxic", "non-toxic", "0", "false"];
const SPLIT_COLUMN: &str = "split";
/// Column that counts the drawn documents with a sample's text; read beside the probability.
const COPIES_COLUMN: &str = "copies";

/// Columns of labelled texts, besides the text and the id that the settings name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SampleColumns<'a> {
    /// Columns of the label, at least one.
    pub labels: Vec<&'a str>,
    /// Kind of the labels.
    pub kind: LabelKind,
    /// Column of the weight.
    pub weight: Option<&'a str>,
    /// Column of the probability with which a text was drawn, read if present.
    pub inclusion_probability: Option<&'a str>,
    /// Column of the source of a text, read if present.
    pub source: Option<&'a str>,
    /// Column of the language. Without one, the file's path names the language.
    pub language: Option<&'a str>,
    /// Columns of scores that heads use, read if present.
    pub scores: Vec<&'a str>,
}

impl<'a> SampleColumns<'a> {
    /// Returns the columns on which a head is trained.
    pub fn of_head(head: &'a HeadConfig) -> Self {
        let (labels, kind) = (head.labels(), head.label_kind());
        Self { labels, kind, weight: head.weight.as_deref(), ..Self::default() }
    }
}

/// Part of the samples that serves one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// Used to fit the parameters.
    Train,
    /// Used to choose an epoch.
    #[serde(alias = "valid", alias = "val", alias = "dev")]
    Validation,
    /// Used once, to evaluate the result.
    Test,
}

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledText {
    /// Id, as in [`super::DocumentInfo::id`].
    pub id: String,
    /// Language code; `und` if unknown.
    pub language: String,
    /// Source of the text; `None` if it was not requested or is unknown.
    pub source: Option<String>,
    /// Text, which is not blank.
    pub text: String,
    /// 1 for the positive (or toxic) class and 0 for the other, or the grade.
    pub label: f32,
    /// Weight of the sample; 1 without a column of weights.
    pub weight: f32,
    /// 1 divided by the number of documents that all drawn documents with this text represent
    /// together: above 0 and at most 1. `None` without such a column.
    pub inclusion_probability: Option<f64>,
    /// Number of documents drawn with this text; 1 without such a column.
    pub copies: u32,
    /// Split named by the sample itself.
    pub split: Option<Split>,
    /// One for each of [`SampleColumns::scores`]; `None` if it is null or its column is missing.
    pub scores: Vec<Option<f32>>,
}

/// Numbers of rows that are not samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SkippedRows {
    /// Rows whose text is null or blank.
    pub without_text: u64,
    /// Rows whose labels are all null.
    pub without_label: u64,
    /// Malformed rows, within `input.max_rejects`.
    pub malformed: u64,
}

/// Reads the text and the label of every row of `files`, and the other columns of `columns`.
/// Returns the samples in the order of files and rows, and the numbers of other rows.
///
/// A class label is a string (`positive` or `toxic`, `negative`, `nontoxic` or `non-toxic`, `1`,
/// `0`, `true`, `false`), a boolean, or a number that is 0 or 1. A grade is a finite number: the
/// mean of the label columns that are not null. A column `split`, if present, holds `train`,
/// `validation` (or `valid`, `val`, `dev`), `test` or null.
///
/// # Errors
/// [`Error::Row`](polysift_base::Error::Row) if a row has another label, weight, probability or
/// split, counted over its file; otherwise as [`super::DocumentReader`].
pub fn read_samples(
    files: &[InputFile],
    config: &InputConfig,
    columns: &SampleColumns<'_>,
) -> Result<(Vec<LabelledText>, SkippedRows)> {
    let mut samples = Vec::new();
    let skipped = for_each_sample(files, config, columns, &mut |sample| {
        samples.push(sample);
        Ok(())
    })?;
    Ok((samples, skipped))
}

/// Like [`read_samples`], but passes the samples to `each` one by one.
pub fn for_each_sample(
    files: &[InputFile],
    config: &InputConfig,
    columns: &SampleColumns<'_>,
    each: &mut dyn FnMut(LabelledText) -> Result<()>,
) -> Result<SkippedRows> {
    let language_in = |file: &InputFile| match (columns.language, &config.language) {
        (Some(column), _) => {
            LanguageSource::Column { column: column.to_owned(), script_column: None }
        }
        (None, _) if file.language.is_some() => LanguageSource::Path,
        (None, of_documents) if of_documents.is_by_document() => {
            LanguageSource::Fixed(UNDETERMINED_LANGUAGE.into())
        }
        (None, of_files) => of_files.clone(),
    };
    let drawn = columns.inclusion_probability.map_or(Vec::new(), |name| vec![name, COPIES_COLUMN]);
    let mut skipped = SkippedRows::default();
    for file in files {
        // Samples need not have the corpus's columns of language and embeddings.
        let language = language_in(file);
        let config = InputConfig { language, embeddings: None, ..config.clone() };
        let mut layout = DocumentRequest::new(file, &config);
        let names = columns.labels.iter().copied().chain(columns.weight);
        names.for_each(|name| layout.add_column(name, ColumnKind::Scalar, true));
        layout.add_column(SPLIT_COLUMN, ColumnKind::Text, false);
        let optional = columns.source.iter().chain(&drawn).chain(&columns.scores);
        optional.for_each(|name| layout.add_column(name, ColumnKind::Scalar, false));
        let mut reader = layout.open(file, &config)?;
        let mut rejects = Rejects::refused();
        while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
            let documents = layout.to_documents(&batch);
            for (at, &row) in batch.rows.iter().enumerate() {
                let values = TableRow { row, at, batch: &batch, requests: &layout.requests };
                let text = documents.text(at);
                match text.map(|text| read_sample(columns, values, documents.get(at), text)) {
                    None => skipped.without_text += 1,
                    Some(Ok(None)) => skipped.without_label += 1,
                    Some(Ok(Some(sample))) => each(sample)?,
                    Some(Err(reason)) => rejects.add(row, reason, &[]),
                }
            }
        }
        rejects.finish(&file.path)?;
        skipped.malformed += reader.rejects().count;
    }
    Ok(skipped)
}

/// Returns the sample in `row`, or `None` if all its labels are null.
fn read_sample(
    columns: &SampleColumns<'_>,
    row: TableRow<'_>,
    document: DocumentInfo<'_>,
    text: &str,
) -> Result<Option<LabelledText>, String> {
    if columns.language.is_some() && !is_language_code(document.language) {
        return Err(format!("the language `{}` is not {LANGUAGE_CODE}", document.language));
    }
    let label = read_label(columns, row)?;
    let probability = |text: &str| parse_finite(text).filter(|share| *share > 0.0 && *share <= 1.0);
    let needed = "needed is a number above 0, at most 1";
    let inclusion_probability = parse_at(row, columns.inclusion_probability, needed, probability)?;
    let copies = |text: &str| text.parse().ok().filter(|copies: &u32| *copies > 0);
    let drawn = inclusion_probability.map(|_| COPIES_COLUMN);
    let copies = parse_at(row, drawn, "needed is a whole number above 0", copies)?;
    let score = |name: &&str| row.text(name).map(|text| score_value(name, text)).transpose();
    let scores = columns.scores.iter().map(score).collect::<Result<_, _>>()?;
    let weight = |text: &str| parse_finite(text).filter(|weight| *weight >= 0.0);
    let needed = "needed is a number that is not below 0";
    let weight = parse_at(row, columns.weight, needed, weight)?;
    let known = "known are train, validation and test";
    let split = |text: &str| serde_json::from_value(text.into()).ok();
    let split = parse_at(row, Some(SPLIT_COLUMN), known, split)?;
    Ok(label.map(|label| LabelledText {
        id: document.id.to_owned(),
        language: document.language.to_owned(),
        source: columns.source.and_then(|name| row.text(name)).map(ToOwned::to_owned),
        text: text.to_owned(),
        label,
        weight: weight.map_or(1.0, |weight| weight as f32),
        inclusion_probability,
        copies: copies.unwrap_or(1),
        split,
        scores,
    }))
}

/// Returns the label of `row`; `None` if all its labels are null.
fn read_label(columns: &SampleColumns<'_>, row: TableRow<'_>) -> Result<Option<f32>, String> {
    let (mut sum, mut count) = (0.0, 0);
    for name in &columns.labels {
        let Some(text) = row.text(name) else { continue };
        let class = || parse_class(text).map(f64::from);
        let read = match columns.kind {
            LabelKind::Classes => class(),
            LabelKind::Grades => parse_finite(text),
            LabelKind::Any => class().or_else(|| parse_finite(text)),
        };
        sum += read.ok_or_else(|| {
            let known = match columns.kind {
                LabelKind::Grades => "needed is a number".to_owned(),
                _ => format!("known are {} and {}", POSITIVE.join(", "), NEGATIVE.join(", ")),
            };
            format!("`{name}` is {}; {known}", shown(text))
        })?;
        count += 1;
    }
    Ok((count > 0).then(|| (sum / f64::from(count)) as f32))
}

/// Parses the value of `column` in `row`, if there is one; the error says what is `needed`.
fn parse_at<T>(
    row: TableRow<'_>,
    column: Option<&str>,
    needed: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let Some((name, text)) = column.and_then(|name| Some((name, row.text(name)?))) else {
        return Ok(None);
    };
    let wrong = || format!("`{name}` is {}; {needed}", shown(text));
    parse(text).map(Some).ok_or_else(wrong)
}

/// Parses a score of the column `name`: a number, also NaN or infinite, or a boolean as 1 or 0.
pub fn score_value(name: &str, text: &str) -> Result<f32, String> {
    match text.trim() {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        number => {
            number.parse().map_err(|_| format!("`{name}` is {}; needed is a number", shown(text)))
        }
    }
}

/// Quotes the first 40 characters of `text` for a message.
pub fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(40).collect::<String>())
}

/// Parses a number; `None` unless it is finite as f32.
fn parse_finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| (*number as f32).is_finite())
}

/// Returns whether a label, such as `1` or `1.0`, stands for the positive class; `None` for others.
pub fn parse_class(label: &str) -> Option<bool> {
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
            assert_eq!(parse_class(label), Some(true), "{label}");
        }
        for label in ["negative", "nontoxic", "non-toxic", "0", "false", "0.0", "-0.0"] {
            assert_eq!(parse_class(label), Some(false), "{label}");
        }
        for label in ["", "2", "0.5", "NaN", "Positive", "yes", "neutral", "-1"] {
            assert_eq!(parse_class(label), None, "{label}");
        }
    }

    #[test]
    fn a_message_has_no_more_than_40_characters_of_a_value() {
        assert_eq!(shown("a\n"), r#""a\n""#);
        assert_eq!(shown(&"ü".repeat(1000)), format!("\"{}\"", "ü".repeat(40)));
    }
}
