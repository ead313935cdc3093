//! Labelled texts, which heads are trained on.
//!
//! Owns the spelling of labels. What is trained on is read into memory: training sets are small.

use arrow_array::cast::AsArray;

use super::columns::{ColumnKind, string};
use super::documents::DocumentRequest;
use super::{BATCH_ROWS, InputFile, UNDETERMINED_LANGUAGE};
use polysift_base::error::{Error, Result};
use polysift_config::{HeadConfig, InputConfig, LabelKind, LanguageSource};

/// Labels of the positive class: what a quality head keeps, what a toxicity head removes.
const POSITIVE: [&str; 4] = ["positive", "toxic", "1", "true"];

/// Column in which a sample can name the split it is of.
const SPLIT_COLUMN: &str = "split";

/// Column of how many drawn documents have the text of a sample, beside [`LabelledText::inclusion_probability`].
const COPIES_COLUMN: &str = "copies";

/// Labels of the other class.
const NEGATIVE: [&str; 5] = ["negative", "nontoxic", "non-toxic", "0", "false"];

/// Columns of labelled texts, besides the text and the id that the settings name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SampleColumns<'a> {
    /// Columns of the label, at least one.
    pub labels: Vec<&'a str>,
    /// What they hold.
    pub kind: LabelKind,
    /// Column of the weight.
    pub weight: Option<&'a str>,
    /// Column of the probability with which a text was drawn, taken where there is one.
    pub inclusion_probability: Option<&'a str>,
    /// Column of what a text comes from, taken where there is one.
    pub source: Option<&'a str>,
    /// Column of the language; without one it is that of the file.
    pub language: Option<&'a str>,
    /// Columns of scores that heads take, taken where they are.
    pub scores: Vec<&'a str>,
}

impl<'a> SampleColumns<'a> {
    /// The column `label` of the class alone.
    pub fn of_label(label: &'a str) -> Self {
        Self { labels: vec![label], ..Self::default() }
    }

    /// The columns that a head is trained on.
    pub fn of_head(head: &'a HeadConfig) -> Self {
        let (labels, kind) = (head.labels(), head.label_kind());
        Self { labels, kind, weight: head.weight.as_deref(), ..Self::default() }
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
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledText {
    /// As [`super::DocumentInfo::id`].
    pub id: String,
    /// Language code; `und` where it is not known.
    pub language: String,
    /// What it comes from; `None` where that was not asked for or is unknown.
    pub source: Option<String>,
    /// The text, not blank.
    pub text: String,
    /// 1 of the positive (or toxic) class and 0 of the other, or the grade.
    pub label: f32,
    /// How much it counts; 1 where no column says it.
    pub weight: f32,
    /// Above 0 and at most 1: 1 divided by the number of documents that those drawn with this text stand for together;
    /// `None` where no column says it.
    pub inclusion_probability: Option<f64>,
    /// Documents that were drawn with this text; 1 where no column says it.
    pub copies: u32,
    /// Split that the sample's own column names.
    pub split: Option<Split>,
    /// One for each of [`SampleColumns::scores`]; `None` where it is null or the file has no such column.
    pub scores: Vec<Option<f32>>,
}

/// The samples of some files.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LabelledTexts {
    /// In the order of files and rows.
    pub samples: Vec<LabelledText>,
    /// Rows that were left out.
    pub skipped: SkippedRows,
}

/// Rows that are no samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct SkippedRows {
    /// Their text is null or blank.
    pub without_text: u64,
    /// All their labels are null.
    pub without_label: u64,
}

/// Reads text and label of every row of `files`, and what else `columns` names.
///
/// The label of a class is a string (`positive` or `toxic`, `negative`, `nontoxic` or `non-toxic`, `1`, `0`,
/// `true`, `false`), a boolean, or a number that is 0 or 1; a grade is a finite number, the mean of those
/// columns that are not null. Where there is a column `split`, its value is `train`, `validation` (or
/// `valid`, `val`, `dev`), `test` or null.
///
/// # Errors
/// [`Error::Row`] when a row has another label, weight, probability or split, counted over its file;
/// [`Error::Schema`] when there is no such column; otherwise as [`super::DocumentReader`].
pub fn read_samples(
    files: &[InputFile],
    config: &InputConfig,
    columns: &SampleColumns<'_>,
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
/// rows were left out; errors as of [`read_samples`], and those of `each`.
pub fn for_each_sample(
    files: &[InputFile],
    config: &InputConfig,
    columns: &SampleColumns<'_>,
    each: &mut dyn FnMut(LabelledText) -> Result<()>,
) -> Result<SkippedRows> {
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
    let mut skipped = SkippedRows::default();
    for file in files {
        samples_of(file, &config, columns, each, &mut skipped)?;
    }
    Ok(skipped)
}

/// [`for_each_sample`] of one file.
fn samples_of(
    file: &InputFile,
    config: &InputConfig,
    columns: &SampleColumns<'_>,
    each: &mut dyn FnMut(LabelledText) -> Result<()>,
    skipped: &mut SkippedRows,
) -> Result<()> {
    let mut layout = DocumentRequest::new(file, config);
    let names = columns.labels.iter().copied().chain(columns.weight);
    names.for_each(|name| layout.request(name, ColumnKind::Scalar, true));
    layout.request(SPLIT_COLUMN, ColumnKind::Text, false);
    let drawn = columns.inclusion_probability.into_iter().flat_map(|name| [name, COPIES_COLUMN]);
    let optional = columns.source.into_iter().chain(drawn).chain(columns.scores.iter().copied());
    optional.for_each(|name| layout.request(name, ColumnKind::Scalar, false));
    let mut reader = layout.open(file, config)?;
    let (mut first_bad, mut count) = (None, 0);
    while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
        let (documents, others) = layout.batch(batch);
        let value = |column: usize, i| string(others.get(column)?.as_string_view_opt()?, i);
        for i in 0..documents.len() {
            let Some(text) = documents.text(i) else {
                skipped.without_text += 1;
                continue;
            };
            let row = |column| value(column, i);
            let others = columns.labels.len() + usize::from(columns.weight.is_some());
            let of_source = others + 1;
            let of_probability = of_source + usize::from(columns.source.is_some());
            let of_scores =
                of_probability + if columns.inclusion_probability.is_some() { 2 } else { 0 };
            let sample = label(columns, row).and_then(|label| {
                let drawn = [row(of_probability), row(of_probability + 1)];
                let (probability, copies) = drawn_as(columns, drawn)?;
                let scores = scores(columns, |column| row(of_scores + column))?;
                Ok((label, weight(columns, row)?, probability, copies, split(row(others))?, scores))
            });
            match sample {
                Ok((Some(label), weight, inclusion_probability, copies, split, scores)) => {
                    each(LabelledText {
                        id: documents.id(i).to_owned(),
                        language: documents.language(i).to_owned(),
                        source: columns.source.and_then(|_| row(of_source)).map(ToOwned::to_owned),
                        text: text.to_owned(),
                        label,
                        weight,
                        inclusion_probability,
                        copies,
                        split,
                        scores,
                    })?;
                }
                Ok((None, ..)) => skipped.without_label += 1,
                Err(reason) => {
                    count += 1;
                    first_bad.get_or_insert((documents.rows()[i] + 1, reason));
                }
            }
        }
    }
    match first_bad {
        Some((row, reason)) => Err(Error::Row { path: file.path.clone(), row, reason, count }),
        None => Ok(()),
    }
}

/// Label of the row whose columns are `value`, or why it cannot be read; `None` where all are null.
fn label<'a>(
    columns: &SampleColumns<'_>,
    value: impl Fn(usize) -> Option<&'a str>,
) -> Result<Option<f32>, String> {
    let (mut sum, mut count) = (0.0, 0);
    for (column, name) in columns.labels.iter().enumerate() {
        let Some(text) = value(column) else { continue };
        let class = || class(text).map(f64::from);
        let read = match columns.kind {
            LabelKind::Classes => class(),
            LabelKind::Grades => number(text),
            LabelKind::Any => class().or_else(|| number(text)),
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

/// Weight of the row whose columns are `value`; it follows the labels.
fn weight<'a>(
    columns: &SampleColumns<'_>,
    value: impl Fn(usize) -> Option<&'a str>,
) -> Result<f32, String> {
    let Some((name, text)) = columns.weight.zip(value(columns.labels.len())) else {
        return Ok(1.0);
    };
    let weight = number(text).filter(|weight| *weight >= 0.0);
    let weight = weight.ok_or_else(|| {
        format!("`{name}` is {}; needed is a number that is not below 0", shown(text))
    })?;
    Ok(weight as f32)
}

/// The probability with which a sample was drawn, and how often, as the texts of their columns say.
fn drawn_as(
    columns: &SampleColumns<'_>,
    [probability, copies]: [Option<&str>; 2],
) -> Result<(Option<f64>, u32), String> {
    let Some((name, text)) = columns.inclusion_probability.zip(probability) else {
        return Ok((None, 1));
    };
    let probability = number(text).filter(|probability| *probability > 0.0 && *probability <= 1.0);
    let wrong = || format!("`{name}` is {}; needed is a number above 0, at most 1", shown(text));
    let probability = probability.ok_or_else(wrong)?;
    let copies = copies.map_or(Ok(1), |text| {
        let copies = text.parse().ok().filter(|copies| *copies > 0);
        copies.ok_or_else(|| {
            format!("`{COPIES_COLUMN}` is {}; needed is a whole number above 0", shown(text))
        })
    });
    Ok((Some(probability), copies?))
}

/// The scores in the columns whose texts are `value`.
fn scores<'a>(
    columns: &SampleColumns<'_>,
    value: impl Fn(usize) -> Option<&'a str>,
) -> Result<Vec<Option<f32>>, String> {
    let score = |(column, name): (usize, &&str)| {
        value(column).map(|text| score_value(name, text)).transpose()
    };
    columns.scores.iter().enumerate().map(score).collect()
}

/// The split that a sample names.
fn split(name: Option<&str>) -> Result<Option<Split>, String> {
    let named = name.map(|name| Split::named(name).ok_or(name)).transpose();
    named.map_err(|name| {
        format!("`{SPLIT_COLUMN}` is {}; known are train, validation and test", shown(name))
    })
}

/// The score that a `text` in the column `name` stands for: a number, or a boolean as 1 or 0.
pub fn score_value(name: &str, text: &str) -> Result<f32, String> {
    match text.trim() {
        "true" => Ok(1.0),
        "false" => Ok(0.0),
        number => {
            number.parse().map_err(|_| format!("`{name}` is {}; needed is a number", shown(text)))
        }
    }
}

/// The beginning of a value, for a message.
fn shown(text: &str) -> String {
    format!("{text:.40?}")
}

/// A finite number that an f32 holds.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| (*number as f32).is_finite())
}

/// The class that a label means. Numbers come as they are written (`1`, `1.0`).
pub fn class(label: &str) -> Option<bool> {
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
