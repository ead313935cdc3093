//! Balanced datasets of toxic and other texts.
//!
//! Three formats are read, recognised by their columns: PleIAs ToxicCommons (`original_text`;
//! `scores`, a bracketed list of integers, toxic if the sum is above 0), SWSR (`comment_text`,
//! `label`), and any two columns with a text and a label.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use clap::Args;

use super::write::{DatasetSample, THREE_FILES, TWO_FILES, refuse_inputs, sample_key, write_files};
use super::{DatasetCard, DatasetRules, SourceCard, SourceFile};
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;
use polysift_base::sample::Ranks;
use polysift_config::{LANGUAGE_CODE, Mode, is_language_code};
use polysift_data::input::{
    ColumnKind, ColumnRequest, InputFile, named_tables, parse_class, read_table, shown,
    table_columns,
};

/// Columns of the text and of its class, which is given by scores, or by labels as in
/// [`polysift_data::input::read_samples`].
struct RowFormat<'a> {
    text: &'a str,
    label: &'a str,
    has_scores: bool,
}

const TOXIC_COMMONS: RowFormat<'_> =
    RowFormat { text: "original_text", label: "scores", has_scores: true };
/// SWSR, `SexComment.csv`.
const SWSR: RowFormat<'_> = RowFormat { text: "comment_text", label: "label", has_scores: false };
const PLAIN: RowFormat<'_> = RowFormat { text: "text", label: "label", has_scores: false };

/// Command-line arguments for a toxicity dataset.
#[derive(Debug, Args)]
pub struct ToxicityRequest {
    /// Parquet, CSV or JSON lines files, or directories of them
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<String>,
    /// Language of all texts, as a FineWeb-2 code
    #[arg(long, value_name = "CODE")]
    pub language: String,
    /// Output directory; a folder for the language is created in it
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the text column, for files in no known format
    #[arg(long, value_name = "COLUMN")]
    pub text_column: Option<String>,
    /// Name of the label column, for files in no known format
    #[arg(long, value_name = "COLUMN")]
    pub label_column: Option<String>,
    /// How samples are chosen
    #[command(flatten)]
    pub rules: DatasetRules,
}

impl ToxicityRequest {
    /// Returns the named columns, or the first known format whose columns `file` has; a file
    /// without columns, which has no rows, has those of all.
    fn format(&self, file: &InputFile) -> Result<RowFormat<'_>> {
        let Self { text_column: text, label_column: label, .. } = self;
        if text.is_some() || label.is_some() {
            return Ok(RowFormat {
                text: text.as_deref().unwrap_or(PLAIN.text),
                label: label.as_deref().unwrap_or(PLAIN.label),
                has_scores: false,
            });
        }
        let columns = table_columns(file)?;
        let has = |name: &str| columns.is_empty() || columns.iter().any(|column| column == name);
        let mut known = [TOXIC_COMMONS, SWSR, PLAIN].into_iter();
        known.find(|format| has(format.text) && has(format.label)).ok_or_else(|| {
            let reason = format!(
                "the file has none of `original_text` and `scores`, `comment_text` and `label`, \
                 `text` and `label`; name its columns; it has: {}",
                columns.join(", ")
            );
            Error::schema(&file.path, "text", reason)
        })
    }
}

/// Sums scores: a list of numbers, or `[0, 1, 2]` as text; `None` for anything else.
fn sum_scores(scores: &str) -> Option<i64> {
    let scores = scores.strip_prefix('[')?.strip_suffix(']')?;
    scores.split(',').map(|score| score.trim().trim_matches('"').parse::<i64>().ok()).sum()
}

/// Builds `<out>/<language>/{train_80,valid_10,test_10}.jsonl`, or `{train_90,valid_10}.jsonl` in
/// [`Mode::Published`], and `card.json`.
///
/// The larger class is sampled down to the size of the other; published mode only samples the
/// non-toxic class. Equal texts are taken once, or not at all if their labels differ; the published
/// code keeps all of them. Files are read twice. Memory: some 100 bytes per row, and the chosen
/// texts.
///
/// # Errors
/// [`Error::Config`] for an invalid language code; [`Error::Missing`] if there are no files or a
/// class has no text; [`Error::Row`] and [`Error::Schema`] for files that cannot be read;
/// [`Error::Io`], [`Error::Stopped`].
pub fn build_toxicity(request: &ToxicityRequest, stop: &Stop) -> Result<DatasetCard> {
    if !is_language_code(&request.language) {
        let reason = format!("`{}` is not {LANGUAGE_CODE}", request.language);
        return Err(Error::config("--language", reason));
    }
    let files = named_tables(&request.files)?;
    let directory = request.out.join(&request.language);
    refuse_inputs(&directory, &files)?;
    let mut classes = Classes::new();
    for file in &files {
        read_file(request, file, stop, &mut |outcome| {
            if let Ok(DatasetSample { key, positive, .. }) = outcome {
                let class = classes.entry(key).or_insert(Some(positive));
                *class = class.filter(|class| *class == positive);
            }
        })?;
    }
    let chosen = choose_texts(request, &classes)?;
    let DatasetRules { mode, seed, .. } = request.rules;
    let mut card = DatasetCard::new("toxicity", &request.language, mode, seed);
    // The first of equal texts is the sample.
    let mut samples: HashMap<u128, DatasetSample> = HashMap::new();
    for file in &files {
        let mut source = SourceCard::default();
        let (rows, rejected) = read_file(request, file, stop, &mut |outcome| {
            source.rows += 1;
            let sample = match outcome {
                Ok(sample) => sample,
                Err(reason) => return source.drop_rows(reason, 1),
            };
            if !chosen.contains(&sample.key) {
                let agreed = classes.get(&sample.key).copied().flatten().is_some();
                source.drop_rows(if agreed { "not drawn" } else { "both labels" }, 1);
            } else if let Entry::Vacant(place) = samples.entry(sample.key) {
                place.insert(sample);
            } else {
                source.drop_rows("repeated", 1);
            }
        })?;
        source.drop_rows("malformed", rejected);
        source.files.push(SourceFile { rows, ..SourceFile::of(file)? });
        card.sources.insert(file.name.clone(), source);
    }
    let (samples, labels) = (samples.into_values().collect(), ["toxic", "nontoxic"]);
    let files = if mode == Mode::Default { THREE_FILES } else { TWO_FILES };
    write_files(&directory, files, labels, samples, &mut card)?;
    Ok(card)
}

/// Class of each text by key; `None` if equal texts have different classes.
type Classes = HashMap<u128, Option<bool>>;

/// Passes every row of `file` to `each` as a sample, or why to skip it. Returns what
/// [`read_table`] does.
fn read_file(
    request: &ToxicityRequest,
    file: &InputFile,
    stop: &Stop,
    each: &mut dyn FnMut(Result<DatasetSample, &'static str>),
) -> Result<(u64, u64)> {
    let format = request.format(file)?;
    let columns = [
        ColumnRequest::new(format.text, ColumnKind::Scalar, true),
        ColumnRequest::new(format.label, ColumnKind::ScalarOrList, true),
    ];
    let DatasetRules { mode, max_rejects, .. } = request.rules;
    read_table(file, &columns, Some(max_rejects), stop, &mut |row| {
        let class = if format.has_scores {
            row.text(format.label).and_then(sum_scores).map(|sum| sum > 0).ok_or("malformed scores")
        } else {
            let label = row.required_text(format.label)?;
            let wrong = || format!("`{}` is {}, no known label", format.label, shown(label));
            Ok(parse_class(label.trim()).ok_or_else(wrong)?)
        };
        // Published mode also takes blank texts.
        let is_taken = |text: &&str| mode == Mode::Published || !text.trim().is_empty();
        let text = row.text(format.text).filter(is_taken).ok_or("no text");
        each(class.and_then(|positive| {
            let (text, source) = (text?.to_owned(), file.name.clone());
            let key = sample_key(mode, &text, &file.name, row.row);
            let id = format!("{}/{}", file.name, row.row);
            let (group, is_translated) = (key, false);
            Ok(DatasetSample { id, text, source, positive, key, group, is_translated })
        }));
        Ok(())
    })
}

/// Returns the keys of texts to take, as [`build_toxicity`] says; fails if a class has no text.
fn choose_texts(request: &ToxicityRequest, classes: &Classes) -> Result<HashSet<u128>> {
    let ranks = Ranks::new(request.rules.seed, &format!("{}/toxicity", request.language));
    let of_class = |toxic: bool| {
        let keys = classes.iter().filter(|(_, class)| **class == Some(toxic));
        let mut keys: Vec<(u128, u128)> = keys.map(|(&key, _)| (ranks.rank_of(key), key)).collect();
        keys.sort_unstable();
        keys
    };
    let (mut toxic, mut other) = (of_class(true), of_class(false));
    let size = toxic.len().min(other.len());
    if size == 0 {
        let reason = format!(
            "{} is there: the files hold {} toxic and {} other text(s); both classes are needed, \
             from further files if need be",
            if toxic.is_empty() { "no toxic text" } else { "nothing but toxic texts" },
            toxic.len(),
            other.len(),
        );
        return Err(Error::Missing { path: request.files.join(", "), reason });
    }
    if request.rules.mode == Mode::Default {
        toxic.truncate(size);
    }
    other.truncate(size);
    Ok(toxic.into_iter().chain(other).map(|(_, key)| key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_a_bracketed_list_of_integers() {
        assert_eq!(sum_scores("[0, 1, 0, 2, 0]"), Some(3));
        assert_eq!(sum_scores("[\"1\",\"2\"]"), Some(3));
        assert_eq!(sum_scores("[0,0,0,0,0]"), Some(0));
        for malformed in ["", "[]", "[", "1, 2", "[1, x]", "[1, 2", "[1.5]", "[\"1\",null]"] {
            assert_eq!(sum_scores(malformed), None, "{malformed}");
        }
    }
}
