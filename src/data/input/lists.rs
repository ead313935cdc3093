//! Lists: files of strings, one per line or in a column of a table.

use std::path::{Path, PathBuf};

use super::InputFile;
use super::columns::{ColumnKind, ColumnRequest, Rejects};
use super::discover::{find_local, split_compression};
use super::documents::open;
use super::lines::{LineReader, TextLine, decompressed};
use super::pattern::MatchedFile;
use super::table::{is_table, read_table, table_at};
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::DEFAULT_MAX_DOCUMENT_BYTES;

/// Values for which a condition does not hold.
const NOTHING: [&str; 11] =
    ["", "[]", "[none]", "[null]", "[\"\"]", "0", "0.0", "false", "nan", "none", "null"];
const COMMENT: char = '#';

/// A file that is a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Value of `{lang}`; `None` if the list is for all languages.
    pub language: Option<String>,
}

/// Returns the lists that `patterns` (files, directories or globs, no URLs) name, sorted by path.
pub fn list_files(patterns: &[String]) -> Result<Vec<ListFile>> {
    let found = find_local(patterns, "lists", &|_| true)?.into_iter();
    let list = |(file, _): (MatchedFile, _)| ListFile { path: file.path, language: file.language };
    let mut files: Vec<ListFile> = found.map(list).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn table_of(path: &Path) -> Result<Option<InputFile>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_table(&name).then(|| table_at(path, name.into_owned())).transpose()
}

/// Checks that the list `path`, if it is a table, has `columns`, as far as its first row shows.
pub fn check_list(path: &Path, columns: Vec<ColumnRequest>) -> Result<()> {
    let Some(table) = table_of(path)? else { return Ok(()) };
    let mut reader = open(&table, columns, DEFAULT_MAX_DOCUMENT_BYTES, Rejects::counted())?;
    reader.next_batch(1).map(drop)
}

/// Returns `line` without its comment, which starts the line or follows white space.
fn without_comment(line: &str) -> &str {
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices(COMMENT).map(|(at, _)| at).find(begins);
    &line[..comment.unwrap_or(line.len())]
}

/// Calls `each` with every entry of the list `path`; `each` returns why an entry is unusable.
///
/// The entries of a table (Parquet, JSON lines, CSV) are the values of `column`; with `only_if`,
/// only from rows in which that column is not null, empty, 0 or false, however that is written. The
/// entries of any other file, compressed or not, are its trimmed lines without comments (`# ...`)
/// and blank lines.
///
/// # Errors
/// [`Error::Row`](polysift_base::Error::Row) with the count for rows that cannot be read or used,
/// and for the first line that is not UTF-8; else as [`read_table`].
pub fn for_each_listed(
    path: &Path,
    column: &str,
    only_if: Option<&str>,
    stop: &Stop,
    each: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<()> {
    if let Some(table) = table_of(path)? {
        let mut columns = vec![ColumnRequest::new(column, ColumnKind::Id, true)];
        let condition = |name| ColumnRequest::new(name, ColumnKind::ScalarOrList, true);
        columns.extend(only_if.map(condition));
        let read = read_table(&table, &columns, None, stop, &mut |row| {
            let is_nothing = |value: &str| NOTHING.contains(&&*value.trim().to_ascii_lowercase());
            let holds = |name| row.text(name).is_some_and(|value| !is_nothing(value));
            match row.text(column).filter(|_| only_if.is_none_or(holds)) {
                Some(entry) => each(entry),
                None => Ok(()),
            }
        });
        return read.map(drop);
    }
    let (_, compression) = split_compression(&path.to_string_lossy().to_ascii_lowercase());
    let reader = decompressed(path, compression)?;
    let mut lines = LineReader::new(reader, path, "text", DEFAULT_MAX_DOCUMENT_BYTES);
    let (mut line, mut rejects) = (TextLine::default(), Rejects::refused());
    while lines.read(&mut line)? {
        stop.check()?;
        let Ok(text) = line.whole().map_or(Ok(""), std::str::from_utf8) else {
            rejects.add(line.row, "is not UTF-8".to_owned(), &[]);
            return Err(rejects.error(path));
        };
        let used = line.whole().and_then(|_| match without_comment(text).trim() {
            "" => Ok(()),
            entry => each(entry),
        });
        if let Err(reason) = used {
            rejects.add(line.row, reason, &[]);
        }
    }
    rejects.finish(path)
}
