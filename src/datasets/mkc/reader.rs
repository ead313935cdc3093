//! Finds the files of a source for a language, downloading them if needed, and reads their rows.
//! A source is a directory. A file belongs to a language if its name or the name of a folder above
//! it is the source's name of the language (`DE_DE/`, `mmlu_DE-DE.csv`,
//! `standard_arabic/train-00000-of-00002.parquet`); if no name is, a column decides.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::write::{DatasetSample, sample_key};
use crate::{DatasetRules, SourceCard, SourceFile};
use polysift_base::error::Result;
use polysift_base::hub::HubSettings;
use polysift_base::progress::{Progress, Stop};
use polysift_base::sample::key_of;
use polysift_config::Mode;
use polysift_data::input::{
    ColumnKind, ColumnRequest, InputFile, TableRow, is_table, lacking_series, read_table,
    table_columns, table_files, table_stem,
};
use polysift_remote::{RepoType, Repository, Snapshot};

/// Folder of the Aya Dataset that holds no samples.
const DEMOGRAPHICS: &str = "demographics";

/// A source of positives: its name, and how its files and rows tell their language.
pub(super) struct MkcSource {
    /// Name of the source's directory, and prefix of ids.
    pub name: &'static str,
    /// Dataset repository on the hub.
    pub repository: &'static str,
    /// Split that is read if there are several.
    pub split: &'static str,
    /// Column of the language, and whether file names are tried first.
    pub column: &'static str,
    pub by_name: bool,
}

/// The sources, in the order in which samples are taken.
pub(super) static SOURCES: [MkcSource; 5] = [
    source("mmmlu", "openai/MMMLU", "test", "language", true),
    source("include", "CohereLabs/include-base-44", "test", "language", true),
    source("oasst2", "OpenAssistant/oasst2", "train", "lang", false),
    source("aya_dataset", "CohereLabs/aya_dataset", "train", "language_code", false),
    source("aya_collection", "CohereLabs/aya_collection_language_split", "train", "language", true),
];

/// Makes an [`MkcSource`] of its fields, in their order.
const fn source(
    name: &'static str,
    repository: &'static str,
    split: &'static str,
    column: &'static str,
    by_name: bool,
) -> MkcSource {
    MkcSource { name, repository, split, column, by_name }
}

/// Returns the names of all sources for messages, separated by commas.
pub(super) fn source_names() -> String {
    SOURCES.each_ref().map(|source| source.name).join(", ")
}

/// Number of sources before the Aya Collection, which only fills up.
pub(super) const CURATED: usize = 4;

pub(super) struct SourceFolder {
    /// Folder of the user or in the hub's cache.
    pub directory: PathBuf,
    /// Commit of the repository that the files were downloaded from.
    pub revision: Option<String>,
}

/// Downloads the files of the languages named `cells` in the source, all from one commit.
/// File names decide, as in a folder. But if a repository names its languages and this one is
/// missing, nothing is downloaded: looking for a column would download all of it.
pub(super) fn download(
    kind: &'static MkcSource,
    cells: &BTreeSet<&str>,
    hub: &HubSettings,
    stop: &Stop,
    progress: &dyn Progress,
) -> Result<SourceFolder> {
    let branch = Repository::new(RepoType::Dataset, kind.repository, None, hub)?;
    let Snapshot { commit, folder, files } = branch.snapshot()?;
    let offline = files.is_none();
    let listed = match files {
        Some(listed) => listed,
        None => table_files(&folder)?.into_iter().map(|file| file.name).collect(),
    };
    let repository = Repository::new(RepoType::Dataset, kind.repository, Some(&commit), hub)?;
    let mut names = BTreeSet::new();
    for cell in cells {
        let of_language = kind.select_names(cell, &listed)?;
        if let (true, Some(part)) = (offline, lacking_series(&of_language, &|_| true)) {
            return Err(repository.missing_error(&part));
        }
        names.extend(of_language);
    }
    progress.begin("download", Some(names.len() as u64), "files");
    let downloaded: Result<()> = names.into_iter().try_for_each(|name| {
        stop.check()?;
        repository.get(name)?.ok_or_else(|| repository.missing_error(name))?;
        progress.advance(1, 0);
        Ok(())
    });
    progress.end();
    downloaded?;
    if !offline {
        branch.note_commit(&commit)?;
    }
    Ok(SourceFolder { directory: folder, revision: Some(commit) })
}

pub(super) struct MkcReader<'a> {
    pub kind: &'static MkcSource,
    pub folder: &'a SourceFolder,
    /// Name of the language in the source.
    pub cell: &'a str,
    pub rules: DatasetRules,
    pub stop: &'a Stop,
}

impl MkcSource {
    /// Returns the `tables` to read for a language, and whether their names tell it. For a source
    /// whose names should tell and do not, the tables with `has_column` are read.
    fn select_tables<T>(
        &self,
        cell: &str,
        mut tables: Vec<T>,
        name: impl Fn(&T) -> &str,
        has_column: impl Fn(&T) -> Result<bool>,
    ) -> Result<(Vec<T>, bool)> {
        let has_part =
            |table: &T, is_it: &dyn Fn(&str) -> bool| table_stem(name(table)).split('/').any(is_it);
        let is_named = |table: &T| has_part(table, &|part| self.names_language(cell, part));
        let is_of_split = |table: &T| has_part(table, &|part| is_split(part, self.split));
        tables.retain(|table| !has_part(table, &|part| part == DEMOGRAPHICS));
        let tells = self.by_name && tables.iter().any(is_named);
        if tells {
            tables.retain(is_named);
        } else if self.by_name {
            for table in std::mem::take(&mut tables) {
                if has_column(&table)? {
                    tables.push(table);
                }
            }
        }
        if tables.iter().any(is_of_split) {
            tables.retain(is_of_split);
        }
        Ok((tables, tells))
    }

    /// Returns which `listed` files of the repository are read for a language, sorted.
    fn select_names<'n>(&self, cell: &str, listed: &'n [String]) -> Result<Vec<&'n str>> {
        let is_hidden = |part: &str| part.is_empty() || part.starts_with(['.', '_']);
        let is_found = |name: &&str| is_table(name) && !name.split('/').any(is_hidden);
        let tables: Vec<&str> = listed.iter().map(String::as_str).filter(is_found).collect();
        let (mut names, _) = self.select_tables(cell, tables, |name| *name, |_| Ok(false))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns true if a component of a path names the language: `DE_DE`, `de-de`, `mmlu_DE-DE`,
    /// `german-00000-of-00003`, `german_train`.
    fn names_language(&self, cell: &str, part: &str) -> bool {
        let plain = |text: &str| text.to_lowercase().replace('-', "_");
        let (part, cell) = (plain(part), plain(cell));
        let part = ["mmlu_", "mmmlu_"].iter().find_map(|p| part.strip_prefix(p)).unwrap_or(&part);
        part.strip_prefix(&cell).is_some_and(|rest| {
            let rest = rest.strip_prefix(&format!("_{}", self.split)).unwrap_or(rest);
            rest.is_empty() || (rest.contains("_of_") && rest.starts_with("_0"))
        })
    }
}

impl MkcReader<'_> {
    /// Returns whether the source is there; warns if not, since the dataset depends on it.
    pub(super) fn exists(&self) -> Result<bool> {
        let SourceFolder { directory, revision } = self.folder;
        let place = || format!("{}: {}", self.kind.repository, self.cell);
        let (place, there) = match revision {
            None => (directory.display().to_string(), directory.is_dir()),
            Some(_) => (place(), !self.select_files()?.0.is_empty()),
        };
        if !there {
            tracing::warn!(place, "no such source; it is left out");
        }
        Ok(there)
    }

    /// Returns a positive sample; samples with the same `group` stay together.
    pub(super) fn sample(&self, id: String, text: String, group: u128) -> DatasetSample {
        let key = sample_key(self.rules.mode, &text, &id, 0);
        let group = if self.rules.mode == Mode::Published { key } else { group };
        let (source, is_translated) = (self.kind.name.to_owned(), false);
        DatasetSample { id, text, source, positive: true, key, group, is_translated }
    }

    /// Returns the files of the language, and whether a column tells which rows belong to it.
    fn select_files(&self) -> Result<(Vec<InputFile>, bool)> {
        let files = table_files(&self.folder.directory)?;
        // Other languages may be in their own folders.
        let has_column = |file: &InputFile| -> Result<bool> {
            Ok(self.folder.revision.is_none()
                && table_columns(file)?.iter().any(|column| column == self.kind.column))
        };
        let (files, tells) =
            self.kind.select_tables(self.cell, files, |file| &file.name, has_column)?;
        Ok((files, !tells))
    }

    /// Passes all rows of the language in the selected files to `each`, and returns the card of the
    /// source; `columns` returns the columns to read of a file, or `None` to read none of it.
    pub(super) fn read(
        &self,
        columns: &dyn Fn(&InputFile) -> Result<Option<Vec<ColumnRequest>>>,
        each: &mut dyn FnMut(&mut SourceCard, RowPlace<'_>, TableRow<'_>) -> Result<(), String>,
    ) -> Result<SourceCard> {
        let mut card = SourceCard { selector: Some(self.cell.to_owned()), ..SourceCard::default() };
        if let Some(revision) = &self.folder.revision {
            card.repository = Some(self.kind.repository.to_owned());
            card.revision = Some(revision.clone());
        }
        let (files, by_column) = self.select_files()?;
        let mut before = 0;
        for file in &files {
            let mut found = SourceFile::of(file)?;
            if let Some(mut columns) = columns(file)? {
                if by_column {
                    columns.extend(required_columns(&[self.kind.column]));
                }
                let mut of_language = 0;
                let is_of_language = |row: TableRow<'_>| {
                    let language = row.text(self.kind.column);
                    language.is_some_and(|language| language.eq_ignore_ascii_case(self.cell))
                };
                let read = &mut |row: TableRow<'_>| {
                    if by_column && !is_of_language(row) {
                        return Ok(());
                    }
                    let number = before + if by_column { of_language } else { row.row };
                    of_language += 1;
                    each(&mut card, RowPlace { source: self, file, row: row.row, number }, row)?;
                    card.rows += 1;
                    Ok(())
                };
                let (rows, rejected) =
                    read_table(file, &columns, Some(self.rules.max_rejects), self.stop, read)?;
                before += if by_column { of_language } else { rows };
                found.rows = rows;
                card.drop_rows("malformed", rejected);
            }
            card.files.push(found);
        }
        if card.rows == 0 {
            let (source, language) = (self.kind.name, self.cell);
            tracing::warn!(source, language, "no rows of this language");
        }
        Ok(card)
    }
}

pub(super) fn required_columns(names: &[&str]) -> Vec<ColumnRequest> {
    names.iter().map(|name| ColumnRequest::new(*name, ColumnKind::Scalar, true)).collect()
}

pub(super) struct RowPlace<'a> {
    source: &'a MkcReader<'a>,
    pub(super) file: &'a InputFile,
    /// Index of the row in the file.
    pub(super) row: u64,
    /// Index of the row among all rows of the language.
    number: u64,
}

impl RowPlace<'_> {
    /// Returns the positive sample of the row; samples with the same `group` stay together.
    pub(super) fn sample(&self, text: String, group: u128) -> DatasetSample {
        let Self { source, file, row, .. } = self;
        let id = format!("{}/{}/{row}", source.kind.name, file.name);
        source.sample(id, text, group)
    }

    /// Returns the positive sample of a row of a source with the same rows in the same order in all
    /// languages; it stays together with its translations.
    pub(super) fn translated_sample(&self, text: String) -> DatasetSample {
        let MkcReader { kind, rules, .. } = self.source;
        let group = key_of("translation", &[kind.name, &self.number.to_string()]);
        DatasetSample { is_translated: rules.mode == Mode::Default, ..self.sample(text, group) }
    }
}

/// Returns true for names such as `train`, `train-00000-of-00001`, `train_1`, `german_train`.
fn is_split(part: &str, split: &str) -> bool {
    part.to_lowercase().split(['-', '_', '.']).any(|word| word == split)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: MkcSource = source("x", "someone/x", "train", "language", true);

    #[test]
    fn a_language_is_found_in_the_names_of_files_and_folders() {
        for (cell, part) in [
            ("DE_DE", "DE_DE"),
            ("DE_DE", "mmlu_DE-DE"),
            ("standard_arabic", "standard_arabic"),
            ("german", "german-00000-of-00003"),
            ("german", "German_train"),
        ] {
            assert!(KIND.names_language(cell, part), "{cell} {part}");
        }
        for (cell, part) in [
            ("DE_DE", "AR_XY"),
            ("chinese", "simplified_chinese"),
            ("all", "allgemein"),
            ("a", "a_b"),
        ] {
            assert!(!KIND.names_language(cell, part), "{cell} {part}");
        }
    }

    #[test]
    fn a_split_is_a_word_of_a_name() {
        assert!(is_split("train-00000-of-00001", "train"));
        assert!(is_split("test", "test"));
        assert!(!is_split("training", "train"));
    }

    #[test]
    fn only_files_of_the_language_and_the_split_are_chosen() -> Result<()> {
        let listed = [
            ".gitattributes",
            "README.md",
            "german/test-00000-of-00001.parquet",
            "german/train-00001-of-00002.parquet",
            "german/train-00000-of-00002.parquet",
            "french/train-00000-of-00001.parquet",
            "../german/train-00000-of-00001.parquet",
            "/german/train-00000-of-00001.parquet",
            ".cache/german/train-00000-of-00001.parquet",
        ]
        .map(str::to_owned);
        let german = ["german/train-00000-of-00002.parquet", "german/train-00001-of-00002.parquet"];
        assert_eq!(KIND.select_names("german", &listed)?, german);
        assert!(KIND.select_names("danish", &listed)?.is_empty());
        let by_column = MkcSource { by_name: false, ..KIND };
        assert_eq!(by_column.select_names("da", &listed)?.len(), 3);
        Ok(())
    }
}
