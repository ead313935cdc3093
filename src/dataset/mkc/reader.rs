//! Which files of a source hold a language, downloaded from the hub if need be, and their rows.
//!
//! A source is a directory. A file belongs to a language when its own name or that of a folder
//! above it is what the source calls the language (`DE_DE/`, `mmlu_DE-DE.csv`,
//! `standard_arabic/train-00000-of-00002.parquet`); where no name says so, a column does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::config::Mode;
use crate::dataset::sample::{DatasetSample, key_of, place_key, text_key};
use crate::dataset::{SourceCard, SourceFile};
use crate::error::Result;
use crate::hub::HubSettings;
use crate::input::{TableFile, TableRow, table_files, table_stem};
use crate::io::stamp;
use crate::progress::{Progress, Stop};
use crate::remote::{RepoType, Repository, Snapshot};

/// Folder of the Aya Dataset that holds no samples.
const DEMOGRAPHICS: &str = "demographics";

/// What is known of a source.
pub(super) struct MkcSource {
    /// Its directory's name, the prefix of ids.
    pub name: &'static str,
    /// Dataset of the hub.
    pub repository: &'static str,
    /// Split that is read where there are several.
    pub split: &'static str,
    /// Column of the language, and whether names of files are looked at first.
    pub column: &'static str,
    pub by_name: bool,
}

/// The sources in the order in which they are asked for samples, that of
/// the fields of [`LanguageRow`](crate::dataset::LanguageRow).
pub(super) const SOURCES: [MkcSource; 5] = [
    source("mmmlu", "openai/MMMLU", "test", "language", true),
    source("include", "CohereLabs/include-base-44", "test", "language", true),
    source("oasst2", "OpenAssistant/oasst2", "train", "lang", false),
    source("aya_dataset", "CohereLabs/aya_dataset", "train", "language_code", false),
    source("aya_collection", "CohereLabs/aya_collection_language_split", "train", "language", true),
];

const fn source(
    name: &'static str,
    repository: &'static str,
    split: &'static str,
    column: &'static str,
    by_name: bool,
) -> MkcSource {
    MkcSource { name, repository, split, column, by_name }
}

/// How many of them come before the Aya Collection, which only fills up.
pub(super) const CURATED: usize = 4;

/// Where the files of a source are.
pub(super) enum Home {
    /// A folder of the user's.
    Folder(PathBuf),
    /// The cache of the hub.
    Hub(Fetched),
}

/// What was fetched of a repository.
pub(super) struct Fetched {
    /// Its commit.
    pub revision: String,
    /// Files by what the source calls the language, sorted by name.
    files: BTreeMap<String, Vec<TableFile>>,
}

impl Fetched {
    /// The files of a language.
    pub(super) fn of(&self, cell: &str) -> &[TableFile] {
        self.files.get(cell).map_or(&[], Vec::as_slice)
    }
}

/// Fetches the files of the languages that the source calls `cells`, those of one commit.
///
/// Names of files decide, as they do for a folder; but where a repository names its languages and
/// not this one, nothing is fetched: looking for a column would fetch all of it.
pub(super) fn fetch(
    kind: &'static MkcSource,
    cells: &BTreeSet<&str>,
    hub: &HubSettings,
    stop: &Stop,
    progress: &dyn Progress,
) -> Result<Fetched> {
    let branch = Repository::new(RepoType::Dataset, kind.repository, None, hub)?;
    let Snapshot { commit, folder, files } = branch.snapshot()?;
    let offline = files.is_none();
    let listed = match files {
        Some(listed) => listed,
        None => table_files(&folder)?.into_iter().map(|file| file.name).collect(),
    };
    let repository = Repository::new(RepoType::Dataset, kind.repository, Some(&commit), hub)?;
    let chosen: BTreeMap<&str, Vec<&str>> =
        cells.iter().map(|cell| (*cell, choose(kind, cell, &listed))).collect();
    if let (true, Some(part)) = (offline, chosen.values().find_map(|names| lacking(names))) {
        return Err(repository.missing(&part));
    }
    let names: BTreeSet<&str> = chosen.values().flatten().copied().collect();
    let mut found = BTreeMap::new();
    progress.begin("download", Some(names.len() as u64), "files");
    for name in names {
        stop.check()?;
        let path = repository.get(name)?.ok_or_else(|| repository.missing(name))?;
        found.insert(name, TableFile::at(&path, name.to_owned())?);
        progress.advance(1, 0);
    }
    progress.end();
    if !offline {
        branch.note(&commit)?;
    }
    let files_of = |(cell, names): (&str, Vec<&str>)| {
        (cell.to_owned(), names.iter().filter_map(|name| found.get(name).cloned()).collect())
    };
    Ok(Fetched { revision: commit, files: chosen.into_iter().map(files_of).collect() })
}

/// Those of the files that are to be read for a language, sorted.
fn choose<'n>(kind: &MkcSource, cell: &str, listed: &'n [String]) -> Vec<&'n str> {
    let with_stem = |name: &'n String| Some((table_stem(name)?, name.as_str()));
    let mut files: Vec<(&str, &str)> = listed.iter().filter_map(with_stem).collect();
    if !kind.keep_named(cell, &mut files, |(stem, _)| stem) && kind.by_name {
        return Vec::new();
    }
    kind.keep_split(&mut files, |(stem, _)| stem);
    let mut names: Vec<&str> = files.into_iter().map(|(_, name)| name).collect();
    names.sort_unstable();
    names
}

/// A numbered series of files that lacks one, such as `german/train-*-of-00003`: a download that was
/// cut off leaves it in the cache, where no list tells what should be there.
fn lacking(names: &[&str]) -> Option<String> {
    let mut series: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for name in names {
        let Some((before, after)) = name.split_once("-of-") else { continue };
        let start = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        *series.entry((start, &after[..end])).or_default() += 1;
    }
    let mut lacking =
        series.iter().filter(|((_, total), found)| total.parse().is_ok_and(|n: u64| n > **found));
    lacking.next().map(|((start, total), _)| format!("{start}*-of-{total}"))
}

/// A source and the language that is wanted of it.
pub(super) struct MkcReader<'a> {
    pub kind: &'static MkcSource,
    pub home: &'a Home,
    /// What it calls the language.
    pub cell: &'a str,
    pub mode: Mode,
    pub max_rejects: u64,
    pub stop: &'a Stop,
}

/// The files to read, and whether the column of the language decides row by row.
pub(super) struct Selected {
    pub files: Vec<TableFile>,
    pub by_column: bool,
}

impl MkcSource {
    /// Keeps those of the files that hold the language if their names tell, and says whether they
    /// do; `stem` is the path below the source without extensions.
    pub(super) fn keep_named<T>(
        &self,
        cell: &str,
        files: &mut Vec<T>,
        stem: fn(&T) -> &str,
    ) -> bool {
        files.retain(|file| stem(file).split('/').all(|part| part != DEMOGRAPHICS));
        let named = |file: &T| stem(file).split('/').any(|part| self.is_cell(cell, part));
        let told = self.by_name && files.iter().any(named);
        if told {
            files.retain(named);
        }
        told
    }

    /// Keeps the files of the split, if names tell which these are.
    pub(super) fn keep_split<T>(&self, files: &mut Vec<T>, stem: fn(&T) -> &str) {
        let of_split = |file: &T| stem(file).split('/').any(|part| is_split(part, self.split));
        if files.iter().any(of_split) {
            files.retain(of_split);
        }
    }

    /// Whether a component of a path is the name of the language: `DE_DE`, `de-de`, `mmlu_DE-DE`,
    /// `german-00000-of-00003`, `german_train`.
    fn is_cell(&self, cell: &str, part: &str) -> bool {
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
    /// The files of the language.
    pub(super) fn select(&self) -> Result<Selected> {
        let kind = self.kind;
        let mut files = match self.home {
            Home::Folder(directory) => table_files(directory)?,
            Home::Hub(fetched) => {
                let files = fetched.of(self.cell).to_vec();
                return Ok(Selected { files, by_column: !kind.by_name });
            }
        };
        let by_column = !kind.keep_named(self.cell, &mut files, TableFile::stem);
        if by_column && kind.by_name {
            // Other languages may be there in folders of their own.
            let mut with_column = Vec::new();
            for file in files {
                if file.columns()?.iter().any(|column| column == kind.column) {
                    with_column.push(file);
                }
            }
            files = with_column;
        }
        kind.keep_split(&mut files, TableFile::stem);
        Ok(Selected { files, by_column })
    }

    /// Whether a row is of the language, where its column decides.
    pub(super) fn is_of_language(&self, row: &mut TableRow<'_>) -> Result<bool, String> {
        let language = row.text(self.kind.column)?;
        Ok(language.is_some_and(|language| language.eq_ignore_ascii_case(self.cell)))
    }

    /// Reads all rows of the language in the selected files; `columns` gives the names for a file.
    /// Says how many rows of each were rejected.
    pub(super) fn read(
        &self,
        card: &mut SourceCard,
        columns: &dyn Fn(&TableFile) -> Result<Option<RowColumns>>,
        each: &mut dyn FnMut(&mut SourceCard, RowPlace<'_>, TableRow<'_>) -> Result<(), String>,
    ) -> Result<RejectedByFile> {
        card.selector = Some(self.cell.to_owned());
        if let Home::Hub(fetched) = self.home {
            card.repository = Some(self.kind.repository.to_owned());
            card.revision = Some(fetched.revision.clone());
        }
        let Selected { files, by_column } = self.select()?;
        let mut rejected = RejectedByFile::new();
        let mut before = 0;
        for file in &files {
            let mut found = SourceFile { rows: 0, ..described(file)? };
            if let Some(RowColumns { mut required, optional }) = columns(file)? {
                if by_column {
                    required.push(self.kind.column);
                }
                let mut of_language = 0;
                let read = &mut |mut row: TableRow<'_>| {
                    if by_column && !self.is_of_language(&mut row)? {
                        return Ok(());
                    }
                    let number = before + if by_column { of_language } else { row.row };
                    of_language += 1;
                    each(card, RowPlace { source: self, file, row: row.row, number }, row)?;
                    card.rows += 1;
                    Ok(())
                };
                let counts = file.read(&required, &optional, self.max_rejects, self.stop, read)?;
                before += if by_column { of_language } else { counts.rows };
                found.rows = counts.rows;
                card.drop_rows("malformed", counts.rejected);
                rejected.insert(file.path.clone(), counts.rejected);
            }
            card.files.push(found);
        }
        if card.rows == 0 {
            tracing::warn!(
                source = self.kind.name,
                language = self.cell,
                "no rows of this language"
            );
        }
        Ok(rejected)
    }
}

/// Rejected rows by file.
pub(super) type RejectedByFile = BTreeMap<PathBuf, u64>;

/// Columns to read.
pub(super) struct RowColumns {
    pub required: Vec<&'static str>,
    pub optional: Vec<&'static str>,
}

/// Where a row is.
#[derive(Clone, Copy)]
pub(super) struct RowPlace<'a> {
    source: &'a MkcReader<'a>,
    file: &'a TableFile,
    row: u64,
    /// Number of the row among all of the language.
    number: u64,
}

impl RowPlace<'_> {
    /// Id of the row's sample.
    fn id(&self) -> String {
        format!("{}/{}/{}", self.source.kind.name, self.file.stem(), self.row)
    }

    /// The positive sample of the row; `group` keeps it together with others.
    pub(super) fn sample(&self, text: String, group: u128) -> DatasetSample {
        self.source.sample(self.id(), text, group)
    }

    /// The positive sample of the row where all languages have the same rows in the same order: it stays
    /// together with its translations.
    pub(super) fn translated_sample(&self, text: String) -> DatasetSample {
        let MkcReader { kind, mode, .. } = self.source;
        let group = key_of("translation", &[kind.name, &self.number.to_string()]);
        DatasetSample { is_translated: *mode == Mode::Default, ..self.sample(text, group) }
    }

    /// The file and the row counted from 1.
    pub(super) fn file_and_row(&self) -> (&Path, u64) {
        (&self.file.path, self.row + 1)
    }
}

impl MkcReader<'_> {
    /// A positive sample.
    pub(super) fn sample(&self, id: String, text: String, group: u128) -> DatasetSample {
        let (key, group) = match self.mode {
            Mode::Default => (text_key(&text), group),
            Mode::Published => (place_key(&id, 0), place_key(&id, 0)),
        };
        let (source, is_translated) = (self.kind.name.to_owned(), false);
        DatasetSample { id, text, source, positive: true, key, group, is_translated }
    }
}

/// Name, size and digest of a file.
pub(in crate::dataset) fn described(file: &TableFile) -> Result<SourceFile> {
    let stamp = stamp(&file.path)?;
    Ok(SourceFile {
        name: file.name.clone(),
        bytes: stamp.bytes,
        blake3: Some(stamp.blake3),
        fingerprint: None,
        rows: 0,
    })
}

/// `train`, `train-00000-of-00001`, `train_1`, `german_train`.
fn is_split(part: &str, split: &str) -> bool {
    let part = part.to_lowercase();
    part.split(['-', '_', '.']).any(|word| word == split)
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
            assert!(KIND.is_cell(cell, part), "{cell} {part}");
        }
        for (cell, part) in [
            ("DE_DE", "AR_XY"),
            ("chinese", "simplified_chinese"),
            ("all", "allgemein"),
            ("a", "a_b"),
        ] {
            assert!(!KIND.is_cell(cell, part), "{cell} {part}");
        }
    }

    #[test]
    fn a_split_is_a_word_of_a_name() {
        assert!(is_split("train-00000-of-00001", "train"));
        assert!(is_split("test", "test"));
        assert!(!is_split("training", "train"));
    }

    #[test]
    fn only_files_of_the_language_and_the_split_are_chosen() {
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
        assert_eq!(choose(&KIND, "german", &listed), german);
        assert!(choose(&KIND, "danish", &listed).is_empty());
        let by_column = MkcSource { by_name: false, ..KIND };
        assert_eq!(choose(&by_column, "da", &listed).len(), 3);
    }

    #[test]
    fn a_series_that_lacks_a_file_is_found() {
        assert_eq!(
            lacking(&["a/train-00000-of-00002-0f.parquet", "a/train-00001-of-00002-9e.parquet"]),
            None
        );
        assert_eq!(lacking(&["mmlu_DE-DE.csv", "all-of-it.csv"]), None);
        let half = lacking(&["a/train-00001-of-00002.parquet", "b/train-00000-of-00001.parquet"]);
        assert_eq!(half.as_deref(), Some("a/train-*-of-00002"));
    }
}
