//! Tables: files of rows with named columns, in the formats of published datasets (Parquet, JSON
//! lines, CSV), of which chosen columns are read as text, by table, list or row. Lists are files of
//! strings, one per line or in a column of a table.

use std::path::Path;

use arrow_array::StringViewArray;
use arrow_array::cast::AsArray;

use super::columns::{ColumnKind, ColumnReader, ColumnRequest, Rejects, TableRow, string_at};
use super::csv::CsvReader;
use super::discover::{find_local, format_of, sort_named, split_compression};
use super::documents::open;
use super::json_lines::first_keys;
use super::labelled::score_value;
use super::lines::{LineReader, TextLine, decompress};
use super::parquet::ParquetFile;
use super::pattern::{KeyPattern, MatchedFile, search};
use super::{BATCH_ROWS, Format, InputFile};
use polysift_base::error::{Error, Result};
use polysift_base::io;
use polysift_base::progress::Stop;
use polysift_config::{DEFAULT_MAX_DOCUMENT_BYTES, InputConfig, LARGEST_DOCUMENT_BYTES};

/// Values for which a condition does not hold.
const NOTHING: [&str; 11] =
    ["", "[]", "[none]", "[null]", "[\"\"]", "0", "0.0", "false", "nan", "none", "null"];
const COMMENT: char = '#';

/// Returns a table's top-level column names; for JSON lines the keys of the first object, if any.
pub fn table_columns(file: &InputFile) -> Result<Vec<String>> {
    match file.format {
        Format::Csv(_) => CsvReader::read_header(file),
        Format::JsonLines(_) => first_keys(file, LARGEST_DOCUMENT_BYTES),
        Format::Parquet => {
            let fields = ParquetFile::open(file)?.footer.schema().fields().clone();
            Ok(fields.iter().map(|field| field.name().clone()).collect())
        }
    }
}

/// Reads `columns` of every row of the table `file` and passes them to `each`, which returns why a
/// row cannot be used. Returns the numbers of rows, without blank lines, and of those that were set
/// aside; [`Error::Row`] if more than `max_rejects` (`None`: any) are, or CSV ends inside quotes.
pub fn read_table(
    file: &InputFile,
    columns: &[ColumnRequest],
    max_rejects: Option<u64>,
    stop: &Stop,
    each: &mut dyn FnMut(TableRow<'_>) -> Result<(), String>,
) -> Result<(u64, u64)> {
    let mut reader = open(file, columns.to_vec(), LARGEST_DOCUMENT_BYTES, Rejects::counted())?;
    let (mut rejects, mut rows) = (max_rejects.map_or_else(Rejects::refused, Rejects::new), 0);
    while let Some(batch) = reader.next_batch(BATCH_ROWS)? {
        stop.check()?;
        rows += batch.rows.len() as u64;
        for (at, &row) in batch.rows.iter().enumerate() {
            if let Err(reason) = each(TableRow { row, at, batch: &batch, requests: columns }) {
                rejects.add(row, reason, &[]);
            }
        }
    }
    let unread = reader.rejects();
    rejects.count += unread.count;
    rejects.kept.extend_from_slice(&unread.kept);
    rejects.kept.sort_by_key(|reject| reject.row);
    rejects.finish(&file.path).map(|()| (rows + unread.count, rejects.count))
}

/// Returns the table name `name` without its extensions.
pub fn table_stem(name: &str) -> &str {
    format_of(name).map_or(name, |(_, stem)| stem)
}

/// Returns true if a file of that name, which may contain `/`, is a table.
pub fn is_table(name: &str) -> bool {
    format_of(name.rsplit('/').next().unwrap_or_default()).is_some()
}

/// Returns all tables below `directory`, sorted and named by the path there. Names
/// that start with `.` or `_` are skipped.
pub fn table_files(directory: &Path) -> Result<Vec<InputFile>> {
    let found = search(directory, &KeyPattern::default(), &|name| format_of(name).is_some())?;
    sort_named(found.into_iter().map(|file| {
        let name = file.path.strip_prefix(directory).unwrap_or(&file.path);
        InputFile::at(&file.path, name.to_string_lossy().into_owned(), None)
    }))
}

/// Returns the tables that `patterns` (no URLs) name, found and called as by [`super::discover`].
pub fn named_tables(patterns: &[String]) -> Result<Vec<InputFile>> {
    let found = find_local(patterns, "tables", &|name| format_of(name).is_some())?.into_iter();
    sort_named(found.map(|(file, name)| InputFile::at(&file.path, name, None)))
}

/// Returns the lists that `patterns` (files, directories or globs, no URLs) name, sorted by path; a
/// list without a language is for all. Checks that those that are tables have `columns`, if any are
/// given, as far as their first rows show.
pub fn list_files(patterns: &[String], columns: &[ColumnRequest]) -> Result<Vec<MatchedFile>> {
    let found = find_local(patterns, "lists", &|_| true)?;
    let mut files: Vec<MatchedFile> = found.into_iter().map(|(file, _)| file).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in files.iter().filter(|_| !columns.is_empty()) {
        let Some(table) = as_table(&file.path)? else { continue };
        let (columns, rejects) = (columns.to_vec(), Rejects::counted());
        open(&table, columns, DEFAULT_MAX_DOCUMENT_BYTES, rejects)?.next_batch(1)?;
    }
    Ok(files)
}

/// Returns the file if its extension is that of a table; else `None`.
fn as_table(path: &Path) -> Result<Option<InputFile>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    is_table(&name).then(|| InputFile::at(path, name.into_owned(), None)).transpose()
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
/// only from rows in which that column is not null, empty, 0 or false, however that is written. Any
/// other file, compressed or not, has its trimmed lines, without blank ones and comments (`# ...`).
///
/// # Errors
/// [`Error::Row`] with the count for rows that cannot be read or used; else as [`read_table`].
pub fn for_each_listed(
    path: &Path,
    column: &str,
    only_if: Option<&str>,
    stop: &Stop,
    each: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<()> {
    if let Some(table) = as_table(path)? {
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
    let reader = decompress(path, Box::new(io::open(path)?), compression)?;
    let mut lines = LineReader::new(reader, path, "text", DEFAULT_MAX_DOCUMENT_BYTES);
    let (mut line, mut rejects) = (TextLine::default(), Rejects::refused());
    while lines.read(&mut line)? {
        stop.check()?;
        let used = line.whole_line().and_then(|bytes| {
            let text = str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
            match without_comment(text).trim() {
                "" => Ok(()),
                entry => each(entry),
            }
        });
        if let Err(reason) = used {
            rejects.add(line.row, reason, &[]);
        }
    }
    rejects.finish(path)
}

/// Reads the texts or scalars of a column of a file in ascending order of rows.
pub struct ColumnValues<'a> {
    file: &'a InputFile,
    name: &'a str,
    kind: ColumnKind,
    reader: Box<dyn ColumnReader>,
    rows: Vec<u64>,
    values: StringViewArray,
    not_numbers: Rejects,
}

impl<'a> ColumnValues<'a> {
    /// Opens `file` and finds the column `name` by the rules of [`super::DocumentReader::open`].
    pub fn open(
        file: &'a InputFile,
        config: &InputConfig,
        name: &'a str,
        kind: ColumnKind,
    ) -> Result<Self> {
        let columns = vec![ColumnRequest::new(name, kind, true)];
        let reader = open(file, columns, config.max_document_bytes, Rejects::counted())?;
        let (rows, values) = (Vec::new(), StringViewArray::from(Vec::<&str>::new()));
        Ok(Self { file, name, kind, reader, rows, values, not_numbers: Rejects::refused() })
    }

    /// Returns the value in `row`, or `None` for null. Rows must ascend from call to call. Returns
    /// [`Error::Row`] if the value is not of the kind, [`Error::Corrupt`] if there is no such row.
    pub fn value(&mut self, row: u64) -> Result<Option<&str>> {
        while self.rows.last().is_none_or(|&last| last < row) {
            let batch = self.reader.next_batch(BATCH_ROWS)?;
            let batch = batch.ok_or_else(|| self.no_value_error(row))?;
            let values = batch.columns.first().and_then(|column| column.as_string_view_opt());
            self.values = values.cloned().ok_or_else(|| self.no_value_error(row))?;
            self.rows = batch.rows;
        }
        let at = self.rows.binary_search(&row).map_err(|_| self.no_value_error(row))?;
        Ok(string_at(&self.values, at))
    }

    /// Returns the [`ColumnValues::value`] in `row` as a number; a boolean counts as 1 or 0. `None`
    /// is null, or a value that is not a number, which [`ColumnValues::finish`] reports.
    pub fn number(&mut self, row: u64) -> Result<Option<f32>> {
        let name = self.name;
        let number = self.value(row)?.map(|text| score_value(name, text)).transpose();
        Ok(number.unwrap_or_else(|reason| {
            self.not_numbers.add(row, reason, &[]);
            None
        }))
    }

    /// Returns [`Error::Row`] if a [`ColumnValues::number`] was none.
    pub fn finish(self) -> Result<()> {
        self.not_numbers.finish(&self.file.path)
    }

    /// Says why `row` has no value: it was set aside, is of another kind, or is gone.
    fn no_value_error(&self, row: u64) -> Error {
        let (path, rejects) = (self.file.path.clone(), self.reader.rejects());
        match rejects.kept.first() {
            None => return Error::corrupt(&path, format!("row {row} is gone")),
            Some(first) if first.row == row => return rejects.error(&path),
            // Earlier ones may be rows that `input.max_rejects` let pass; nobody asks for those.
            Some(_) => {}
        }
        let reason = format!("`{}` holds something else than {}", self.name, self.kind.expected());
        Error::Row { path, row: row + 1, reason, count: 1 }
    }
}
