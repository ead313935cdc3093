//! Builds an index of benchmark items for finding documents that contain their text.
//!
//! Items are read in common formats: `task`, `question` and `answer`; decon's (`eval_key`,
//! `eval_instance_index`, `is_correct`); datatrove's (`query`, and `text` for the answer); `task`
//! with only `text`. For other tables a set names task and columns ([`BenchmarksRequest::sets`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use polysift_base::error::{Error, Result};
use polysift_base::io::{read_text, stamp};
use polysift_base::progress::Stop;
use polysift_data::input::{
    ColumnKind, ColumnRequest, InputFile, MatchedFile, TableRow, for_each_listed, is_table,
    list_files, read_table,
};
use polysift_text::decontamination::{
    BenchmarkItem, IndexBuilder, IndexSettings, Normalisation, Numbers, TaskCounts,
};

/// Possible columns of items that hold texts.
const TEXTS: [&str; 8] =
    ["task", "eval_key", "split", "question", "query", "answer", "text", "language"];
/// Possible columns of items that hold texts or numbers.
const SCALARS: [&str; 4] = ["config", "id", "eval_instance_index", "is_correct"];
/// The columns with the text of an item, which a set may replace.
const PARTS: [&str; 4] = ["question", "query", "answer", "text"];

/// Items and settings of an index.
#[derive(Debug, Clone, Args)]
pub struct BenchmarksRequest {
    /// Files of items (JSON lines, Parquet, CSV); {lang} stands for the language of the items
    #[arg(long, value_name = "PATTERN", num_args = 1.., required_unless_present = "sets")]
    pub items: Vec<String>,
    /// TOML file with tables `set`: files, task, question and answer columns, split, language
    #[arg(long, value_name = "FILE")]
    pub sets: Option<PathBuf>,
    /// Language of items without a language of their own, such as eng_Latn
    #[arg(long, value_name = "CODE")]
    pub language: Option<String>,
    /// Files of common texts whose n-grams are ignored: one text per line (`# ...` is a comment),
    /// or a column `text`
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    pub ignore: Vec<String>,
    /// Words per n-gram [default: 13; with --datatrove 12]
    #[arg(long, value_name = "N")]
    pub ngram: Option<u32>,
    /// Characters per n-gram in languages written without spaces [default: 26]
    #[arg(long, value_name = "N", conflicts_with = "datatrove")]
    pub ngram_chars: Option<u32>,
    /// Treat all numbers as equal, so that an exercise with other numbers also matches
    #[arg(long)]
    pub zero_numbers: bool,
    /// Normalise items and documents like datatrove
    #[arg(long)]
    pub datatrove: bool,
    /// Path of the index to write
    #[arg(long, value_name = "FILE", default_value = "benchmarks.idx")]
    pub out: PathBuf,
}

impl BenchmarksRequest {
    fn settings(&self) -> IndexSettings {
        let mut settings =
            if self.datatrove { IndexSettings::datatrove() } else { IndexSettings::default() };
        settings.ngram = self.ngram.unwrap_or(settings.ngram);
        settings.ngram_chars = self.ngram_chars.unwrap_or(settings.ngram_chars);
        if self.zero_numbers && settings.normalisation == Normalisation::Default {
            settings.numbers = Numbers::Zero;
        }
        settings
    }

    /// Returns a set for `items`, if there are any, and the sets of the file `sets`. Patterns in the
    /// file are relative to its folder.
    fn item_sets(&self) -> Result<Vec<ItemSet>> {
        let mut sets = Vec::new();
        if !self.items.is_empty() {
            sets.push(ItemSet { files: self.items.clone(), ..ItemSet::default() });
        }
        if let Some(path) = &self.sets {
            let file: ItemSets = toml::from_str(&read_text(path)?)
                .map_err(|error| Error::config(path.to_string_lossy(), error.to_string()))?;
            let folder = path.parent().unwrap_or(Path::new(""));
            for mut set in file.sets {
                if set.files.is_empty() {
                    return Err(Error::config(path.to_string_lossy(), "a set has no `files`"));
                }
                for pattern in &mut set.files {
                    *pattern = folder.join(&*pattern).to_string_lossy().into_owned();
                }
                sets.push(set);
            }
        }
        Ok(sets)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemSets {
    #[serde(rename = "set")]
    sets: Vec<ItemSet>,
}

/// Tables of items, and values that their rows lack.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ItemSet {
    /// Files, directories or globs, relative to the file of sets.
    files: Vec<String>,
    task: Option<String>,
    /// Columns (lists too) that are joined to the question. The known columns serve only if
    /// `answer` is empty too.
    question: Vec<String>,
    answer: Vec<String>,
    split: Option<String>,
    language: Option<String>,
}

impl ItemSet {
    /// Returns the columns to read: its own ones are required, the known ones optional.
    fn columns(&self) -> Vec<ColumnRequest> {
        let own: BTreeSet<&str> =
            self.question.iter().chain(&self.answer).map(String::as_str).collect();
        let known = TEXTS.map(|name| (name, ColumnKind::Text)).into_iter();
        let known = known.chain(SCALARS.map(|name| (name, ColumnKind::Scalar)));
        let others = known
            .filter(|(name, _)| !own.contains(name) && (own.is_empty() || !PARTS.contains(name)))
            .map(|(name, kind)| ColumnRequest::new(name, kind, false));
        let own = own.iter().map(|name| ColumnRequest::new(*name, ColumnKind::ScalarOrList, true));
        own.chain(others).collect()
    }

    /// Adds the item of `row`, by default in `language`, or returns why it is none.
    fn add_item(
        &self,
        builder: &mut IndexBuilder,
        row: TableRow<'_>,
        language: Option<&str>,
    ) -> Result<(), String> {
        if row.text("is_correct").is_some_and(|is| is.eq_ignore_ascii_case("false") || is == "0") {
            return Ok(()); // a wrong choice is no evidence
        }
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| row.text(name));
        let query = row.text("query");
        let text = row.text("text");
        // With a query, the text is its answer.
        let question =
            row.text("question").or(query).or(text.filter(|_| row.text("answer").is_none()));
        let answer = row.text("answer").or(text.filter(|_| query.is_some()));
        let part = |columns: &[String], usual: Option<&str>| match columns {
            _ if self.question.is_empty() && self.answer.is_empty() => {
                usual.unwrap_or_default().to_owned()
            }
            columns => join_values(columns.iter().filter_map(|name| row.text(name))),
        };
        let id = first(["id", "eval_instance_index"]).unwrap_or_default();
        let config = row.text("config").filter(|_| !id.is_empty());
        let id = config.map_or(id.to_owned(), |config| format!("{config}/{id}"));
        let item = BenchmarkItem {
            task: first(["task", "eval_key"]).or(self.task.as_deref()).unwrap_or_default(),
            split: row.text("split").or(self.split.as_deref()).unwrap_or_default(),
            question: &part(&self.question, question),
            answer: &part(&self.answer, answer),
            id: &id,
            language: row.text("language").or(language).unwrap_or_default(),
        };
        builder.add(&item).map_err(str::to_owned)
    }
}

/// Writes the index of the requested items; returns the counts of each task.
///
/// # Errors
/// [`Error::Row`] with the count for items without a task or text, or with the id of another text;
/// [`Error::Schema`] for missing columns of a set; [`Error::Config`] for a bad file of sets, files
/// that are not tables and an index without an n-gram; [`Error::Missing`], [`Error::Io`].
pub fn build_benchmarks(request: &BenchmarksRequest, stop: &Stop) -> Result<Vec<TaskCounts>> {
    let mut builder = IndexBuilder::new(request.settings())?;
    let mut digests = BTreeMap::new();
    let out = request.out.canonicalize().ok();
    let mut digest = |list: &MatchedFile| -> Result<String> {
        if out.is_some() && list.path.canonicalize().ok() == out {
            let reason = "is a file of items or of common texts, which it would replace";
            return Err(Error::config("--out", reason));
        }
        // The digest does not depend on where the files are.
        let name = list.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        digests.insert(stamp(&list.path)?.blake3, name.clone());
        Ok(name)
    };
    for set in request.item_sets()? {
        for list in list_files(&set.files, &[])? {
            let name = digest(&list)?;
            let language = (list.language.as_deref()).or(set.language.as_deref());
            let language = language.or(request.language.as_deref());
            if !is_table(&name) {
                let reason = "items are read from Parquet, JSON lines and CSV";
                return Err(Error::config(list.path.to_string_lossy(), reason));
            }
            let mut add = |row: TableRow<'_>| set.add_item(&mut builder, row, language);
            let table = InputFile::at(&list.path, name, None)?;
            read_table(&table, &set.columns(), None, stop, &mut add)?;
        }
    }
    for list in list_files(&request.ignore, &[])? {
        digest(&list)?;
        let language = list.language.as_deref().or(request.language.as_deref());
        let mut ignore = |text: &str| {
            builder.ignore(text, language.unwrap_or_default());
            Ok(())
        };
        for_each_listed(&list.path, "text", None, stop, &mut ignore)?;
    }
    builder.build(digests, &request.out)
}

/// Joins the values of columns to one text; lists, which are JSON, by their elements.
fn join_values<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let elements = |value: &str| match serde_json::from_str::<Vec<Option<String>>>(value) {
        Ok(list) => list.into_iter().flatten().collect::<Vec<_>>().join("\n"),
        Err(_) => value.to_owned(),
    };
    values.map(elements).collect::<Vec<_>>().join("\n")
}
