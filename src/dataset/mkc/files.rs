//! Which files of a source hold a language.
//!
//! A source is a directory. A file belongs to a language when its own name or that of a folder
//! above it is what the source calls the language (`DE_DE/`, `mmlu_DE-DE.csv`,
//! `standard_arabic/train-00000-of-00002.parquet`); where no name says so, a column does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::download::Home;
use crate::dataset::key::{key_of, place_key};
use crate::dataset::{Mode, Sample, SourceCard, SourceFile};
use crate::error::Result;
use crate::input::{TableFile, TableRow, table_files};
use crate::io::stamp;
use crate::progress::Stop;

/// Folder of the Aya Dataset that holds no samples.
const DEMOGRAPHICS: &str = "demographics";

/// What is known of a source.
pub(super) struct Kind {
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
pub(super) const SOURCES: [Kind; 5] = [
    Kind {
        name: "mmmlu",
        repository: "openai/MMMLU",
        split: "test",
        column: "language",
        by_name: true,
    },
    Kind {
        name: "include",
        repository: "CohereLabs/include-base-44",
        split: "test",
        column: "language",
        by_name: true,
    },
    Kind {
        name: "oasst2",
        repository: "OpenAssistant/oasst2",
        split: "train",
        column: "lang",
        by_name: false,
    },
    Kind {
        name: "aya_dataset",
        repository: "CohereLabs/aya_dataset",
        split: "train",
        column: "language_code",
        by_name: false,
    },
    Kind {
        name: "aya_collection",
        repository: "CohereLabs/aya_collection_language_split",
        split: "train",
        column: "language",
        by_name: true,
    },
];

/// How many of them come before the Aya Collection, which only fills up.
pub(super) const CURATED: usize = 4;

/// A source and the language that is wanted of it.
pub(super) struct Source<'a> {
    pub kind: &'static Kind,
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

impl Kind {
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

impl Source<'_> {
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
        columns: &dyn Fn(&TableFile) -> Result<Option<Columns>>,
        each: &mut dyn FnMut(&mut SourceCard, Place<'_>, TableRow<'_>) -> Result<(), String>,
    ) -> Result<Rejected> {
        card.selector = Some(self.cell.to_owned());
        if let Home::Hub(fetched) = self.home {
            card.repository = Some(self.kind.repository.to_owned());
            card.revision = Some(fetched.revision.clone());
        }
        let Selected { files, by_column } = self.select()?;
        let mut rejected = Rejected::new();
        let mut before = 0;
        for file in &files {
            let mut found = SourceFile { rows: 0, ..described(file)? };
            if let Some(Columns { mut required, optional }) = columns(file)? {
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
                    each(card, Place { source: self, file, row: row.row, number }, row)?;
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
pub(super) type Rejected = BTreeMap<PathBuf, u64>;

/// Columns to read.
pub(super) struct Columns {
    pub required: Vec<&'static str>,
    pub optional: Vec<&'static str>,
}

/// Where a row is.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    source: &'a Source<'a>,
    file: &'a TableFile,
    row: u64,
    /// Number of the row among all of the language.
    number: u64,
}

impl Place<'_> {
    /// Id of the row's sample.
    fn id(&self) -> String {
        format!("{}/{}/{}", self.source.kind.name, self.file.stem(), self.row)
    }

    /// The positive sample of the row; `group` keeps it together with others.
    pub(super) fn sample(&self, text: String, group: u128) -> Sample {
        self.source.sample(self.id(), text, group)
    }

    /// The positive sample of the row where all languages have the same rows in the same order: it stays
    /// together with its translations.
    pub(super) fn translated_sample(&self, text: String) -> Sample {
        let Source { kind, mode, .. } = self.source;
        let group = key_of("translation", &[kind.name, &self.number.to_string()]);
        Sample { is_translated: *mode == Mode::Sound, ..self.sample(text, group) }
    }

    /// The file and the row counted from 1.
    pub(super) fn file_and_row(&self) -> (&Path, u64) {
        (&self.file.path, self.row + 1)
    }
}

impl Source<'_> {
    /// A positive sample.
    pub(super) fn sample(&self, id: String, text: String, group: u128) -> Sample {
        let (key, group) = match self.mode {
            Mode::Sound => (crate::dataset::key::text_key(&text), group),
            Mode::Reference => (place_key(&id, 0), place_key(&id, 0)),
        };
        let (source, is_translated) = (self.kind.name.to_owned(), false);
        Sample { id, text, source, positive: true, key, group, is_translated }
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

    const KIND: Kind = Kind {
        name: "x",
        repository: "someone/x",
        split: "train",
        column: "language",
        by_name: true,
    };

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
}
