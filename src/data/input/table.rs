//! Tables: files of rows with named columns, in the formats of published datasets (Parquet, JSON
//! lines, CSV), of which chosen columns are read as text.

use std::path::Path;

use super::columns::{ColumnRequest, Rejects, TableRow};
use super::csv::CsvReader;
use super::discover::{by_name, find_local, format_of};
use super::documents::open;
use super::json_lines::first_keys;
use super::parquet::ParquetFile;
use super::pattern::{KeyPattern, search};
use super::{BATCH_ROWS, Format, InputFile};
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::LARGEST_DOCUMENT_BYTES;

/// Numbers of rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableCounts {
    /// All rows, except for blank lines of JSON lines and of CSV.
    pub rows: u64,
    /// Rows that were set aside.
    pub rejected: u64,
}

/// Returns the top-level column names of the table `file`. For JSON lines these are the keys of the
/// first object, none if the file has no rows.
pub fn table_columns(file: &InputFile) -> Result<Vec<String>> {
    match file.format {
        Format::Csv(_) => CsvReader::header(file),
        Format::JsonLines(_) => first_keys(file, LARGEST_DOCUMENT_BYTES),
        Format::Parquet => {
            let fields = ParquetFile::open(file)?.footer.schema().fields().clone();
            Ok(fields.iter().map(|field| field.name().clone()).collect())
        }
    }
}

/// Reads `columns` of every row of the table `file` and passes them to `each`, which returns why a
/// row cannot be used. Returns [`Error::Row`](polysift_base::Error::Row) with the count if more
/// than `max_rejects` rows (`None`: any) cannot be used, or a CSV file ends in a quoted field.
pub fn read_table(
    file: &InputFile,
    columns: &[ColumnRequest],
    max_rejects: Option<u64>,
    stop: &Stop,
    each: &mut dyn FnMut(TableRow<'_>) -> Result<(), String>,
) -> Result<TableCounts> {
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
    let counts = TableCounts { rows: rows + unread.count, rejected: rejects.count };
    rejects.finish(&file.path).map(|()| counts)
}

/// Describes the table at `path` as a file called `name`. The extension is `.parquet`, `.csv`,
/// `.jsonl`, `.ndjson` or `.json`, the last four also compressed, as `.gz` or `.zst`.
pub fn table_at(path: &Path, name: String) -> Result<InputFile> {
    let format = format_of(&path.file_name().unwrap_or_default().to_string_lossy());
    InputFile::of_format(path, name, None, format.map(|(format, _)| format))
}

/// Returns the table name `name` without its extensions.
pub fn table_stem(name: &str) -> &str {
    &name[..name.len() - format_of(name).map_or(0, |(_, end)| end)]
}

/// Returns true if a file of that name, which may contain `/`, is a table.
pub fn is_table(name: &str) -> bool {
    format_of(name.rsplit('/').next().unwrap_or_default()).is_some()
}

/// Returns all tables below `directory`, sorted by name. A name is the path below it, with `/`;
/// names that start with `.` or `_` are skipped.
pub fn table_files(directory: &Path) -> Result<Vec<InputFile>> {
    let found = search(directory, &KeyPattern::default(), &|name| format_of(name).is_some())?;
    by_name(found.into_iter().map(|file| {
        let name = file.path.strip_prefix(directory).unwrap_or(&file.path);
        table_at(&file.path, name.to_string_lossy().into_owned())
    }))
}

/// Returns the tables that `patterns` (no URLs) name, found and called as by [`super::discover`].
pub fn named_tables(patterns: &[String]) -> Result<Vec<InputFile>> {
    let found = find_local(patterns, "tables", &|name| format_of(name).is_some())?.into_iter();
    by_name(found.map(|(file, name)| table_at(&file.path, name)))
}
