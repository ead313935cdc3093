//! Files of rows with named columns, in the formats in which datasets are published: Parquet,
//! JSON lines and CSV.
//!
//! Owns the reading of chosen columns as text, whatever the format, and the count of the rows that
//! cannot be used. Does not know what the columns mean. Rows of CSV are its records without the
//! header; a quoted field may hold line ends.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use super::columns::{Cell, ColumnBatch, ColumnKind, ColumnReader, ColumnRequest, Rejects, Values};
use super::discover::{csv_of, format_of, normalized, shard_names};
use super::json_lines::{JsonReader, first_keys};
use super::lines::{decompressed, utf16};
use super::parquet::{ParquetFile, ParquetReader};
use super::pattern::{KeyPattern, is_hidden, search};
use super::{BATCH_ROWS, Compression, Format, InputFile};
use crate::config::DEFAULT_MAX_DOCUMENT_BYTES;
use crate::error::{Error, Result};
use crate::io::is_url;
use crate::progress::Stop;

/// A file of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFile {
    /// Where it is.
    pub path: PathBuf,
    /// Path below the directory that was searched, with `/`, extensions included.
    pub name: String,
    kind: TableKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TableKind {
    Input(InputFile),
    Csv(Compression),
}

/// One row: the columns that were asked for.
#[derive(Debug)]
pub struct TableRow<'c> {
    /// Row in the file, counted from 0; in JSON lines the number of the line less one.
    pub row: u64,
    columns: &'c [&'c str],
    values: Vec<Option<Cell>>,
}

/// How many rows a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableCounts {
    /// All rows, blank lines of JSON lines and of CSV not counted.
    pub rows: u64,
    /// Those of them that were set aside.
    pub rejected: u64,
}

impl TableFile {
    /// Describes the file at `path`, to be called `name`.
    ///
    /// # Errors
    /// [`Error::Config`] when the extension is none of `.parquet`, `.csv`, `.jsonl`, `.ndjson` and
    /// `.json` (the last four also with `.gz` and `.zst`); [`Error::Missing`], [`Error::Io`].
    pub fn at(path: &Path, name: String) -> Result<Self> {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let kind = match csv_of(&file_name) {
            Some(compression) if path.is_file() => TableKind::Csv(compression),
            Some(_) => {
                let path = path.display().to_string();
                return Err(Error::Missing { path, reason: "is not a regular file".into() });
            }
            None => TableKind::Input(InputFile::at(path, name.clone(), None)?),
        };
        Ok(Self { path: path.to_owned(), name, kind })
    }

    /// [`Self::name`] without its extensions.
    pub fn stem(&self) -> &str {
        stem(&self.name)
    }

    /// Names of the columns, those of structs left out; in JSON lines the keys of the first
    /// object, none for a file without rows.
    ///
    /// # Errors
    /// [`Error::Decode`] when the file is damaged, [`Error::Row`] when its first line is not a JSON
    /// object; [`Error::Io`].
    pub fn columns(&self) -> Result<Vec<String>> {
        match &self.kind {
            TableKind::Csv(compression) => CsvReader::header(&self.path, *compression),
            TableKind::Input(input) if input.format == Format::Parquet => {
                let fields = ParquetFile::open(input)?.footer.schema().fields().clone();
                Ok(fields.iter().map(|field| field.name().clone()).collect())
            }
            TableKind::Input(input) => first_keys(input, DEFAULT_MAX_DOCUMENT_BYTES),
        }
    }

    /// Reads `required` and `optional` columns of every row and hands them to `each`, which says
    /// why a row cannot be used. A column that is not there is null. Numbers, booleans and lists
    /// are taken as text; an empty field of CSV is null.
    ///
    /// # Errors
    /// [`Error::Schema`] when a required column is missing (in JSON lines: in the first 1000 objects) or
    /// of a type that cannot serve; [`Error::Row`] with the count when more than `max_rejects` rows
    /// cannot be used, and in any case when a CSV file ends inside a quoted field;
    /// [`Error::Decode`] when the file is damaged; [`Error::Io`], [`Error::Stopped`].
    pub fn read(
        &self,
        required: &[&str],
        optional: &[&str],
        max_rejects: u64,
        stop: &Stop,
        each: &mut dyn FnMut(TableRow<'_>) -> Result<(), String>,
    ) -> Result<TableCounts> {
        let names: Vec<&str> = required.iter().chain(optional).copied().collect();
        let mut reader = self.open(&names, required.len())?;
        let (mut rejects, mut rows) = (Rejects::new(max_rejects), 0);
        while let Some(mut batch) = reader.next_batch(BATCH_ROWS)? {
            stop.check()?;
            rows += batch.rows.len() as u64;
            for (i, &row) in batch.rows.iter().enumerate() {
                let values = batch.columns.iter_mut().map(|column| column.take_cell(i)).collect();
                if let Err(reason) = each(TableRow { row, columns: &names, values }) {
                    rejects.add(row, reason, &[]);
                }
            }
        }
        let unread = reader.rejects();
        rejects.add_all(unread);
        let counts = TableCounts { rows: rows + unread.count(), rejected: rejects.count() };
        if rejects.exceeded() { Err(rejects.error(&self.path)) } else { Ok(counts) }
    }

    /// A reader of the columns `names`, of which the first `num_required` must be there.
    fn open(&self, names: &[&str], num_required: usize) -> Result<Box<dyn ColumnReader>> {
        let request = |(i, name): (usize, &&str)| ColumnRequest {
            name: (*name).to_owned(),
            kind: ColumnKind::Cell,
            required: i < num_required,
        };
        let columns: Vec<ColumnRequest> = names.iter().enumerate().map(request).collect();
        let rejects = Rejects::counted();
        Ok(match &self.kind {
            TableKind::Csv(compression) => {
                Box::new(CsvReader::open(&self.path, *compression, columns, rejects)?)
            }
            TableKind::Input(input) if input.format == Format::Parquet => {
                Box::new(ParquetReader::open(input, &columns, u64::MAX, rejects)?)
            }
            TableKind::Input(input) => {
                let max_bytes = DEFAULT_MAX_DOCUMENT_BYTES;
                Box::new(JsonReader::open(input, columns, max_bytes, rejects)?)
            }
        })
    }
}

impl TableRow<'_> {
    /// Takes the value of `column` out; `None` for null and for a column that was not asked for.
    pub fn take(&mut self, column: &str) -> Option<Cell> {
        let at = self.columns.iter().position(|name| *name == column)?;
        self.values[at].take()
    }

    /// Takes the text of `column` out; `None` for null.
    ///
    /// # Errors
    /// The reason, when it is a list.
    pub fn text(&mut self, column: &str) -> Result<Option<String>, String> {
        match self.take(column) {
            None => Ok(None),
            Some(Cell::Text(text)) => Ok(Some(text)),
            Some(Cell::List(_)) => Err(format!("`{column}` is a list, not text")),
        }
    }

    /// [`Self::text`] of a column without which the row is of no use.
    ///
    /// # Errors
    /// The reason, when it is null or a list.
    pub fn required_text(&mut self, column: &str) -> Result<String, String> {
        self.text(column)?.ok_or_else(|| format!("`{column}` is null or missing"))
    }
}

fn stem(name: &str) -> &str {
    let csv = || {
        let lower = name.to_ascii_lowercase();
        csv_of(&lower).and_then(|_| lower.rfind(".csv")).unwrap_or(name.len())
    };
    let end = format_of(name).map_or_else(csv, |(_, end)| name.len() - end);
    &name[..end]
}

/// [`TableFile::stem`] of the file called `name` if [`table_files`] would find it; with `/`.
pub fn table_stem(name: &str) -> Option<&str> {
    let file_name = name.rsplit('/').next()?;
    let found =
        is_table(file_name) && name.split('/').all(|part| !part.is_empty() && !is_hidden(part));
    found.then(|| stem(name))
}

fn is_table(file_name: &str) -> bool {
    csv_of(file_name).is_some() || format_of(file_name).is_some()
}

/// All files of rows below `directory`, sorted by name; names that start with `.` or `_` are left
/// out.
///
/// # Errors
/// [`Error::Io`] when a directory cannot be read; [`Error::Config`] when a name is not UTF-8.
pub fn table_files(directory: &Path) -> Result<Vec<TableFile>> {
    let found = search(directory, &KeyPattern::all(), &is_table)?;
    let mut files = (found.into_iter())
        .map(|file| TableFile::at(&directory.join(&file.key), file.key))
        .collect::<Result<Vec<_>>>()?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// The files that `paths` name, directories searched as by [`table_files`], sorted by name; a name
/// is the path below what they all have in common, without the extensions of Parquet and JSON lines
/// where it stays unique.
///
/// # Errors
/// [`Error::Missing`] when there is no such path, otherwise as [`table_files`] and
/// [`TableFile::at`].
pub fn named_tables(paths: &[PathBuf]) -> Result<Vec<TableFile>> {
    let mut found = Vec::new();
    for path in paths {
        if path.to_str().is_some_and(is_url) {
            let reason = "is a URL; tables are read from files, so download it first";
            return Err(Error::config(path.display().to_string(), reason));
        }
        let absolute = std::path::absolute(path).map_err(Error::io(path, "resolve"))?;
        let absolute = normalized(&absolute);
        if absolute.is_dir() {
            found.extend(table_files(&absolute)?.into_iter().map(|file| file.path));
        } else if absolute.exists() {
            found.push(absolute);
        } else {
            let path = path.display().to_string();
            return Err(Error::Missing { path, reason: "no such file or directory".into() });
        }
    }
    found.sort_unstable();
    found.dedup();
    let names = shard_names(&found);
    let files = found.iter().zip(names).map(|(path, name)| TableFile::at(path, name));
    let mut files = files.collect::<Result<Vec<_>>>()?;
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Appended to the file. It is a record of its own unless the file ends inside a quoted field,
/// which the `csv` crate takes for the end of that field.
const CSV_END: &[u8] = b"\n\0end of the file";

/// The rows of a CSV file (RFC 4180): a header, then records with quoted fields that may hold line ends.
pub(super) struct CsvReader {
    path: PathBuf,
    reader: csv::Reader<Box<dyn Read + Send>>,
    header: Vec<String>,
    record: csv::ByteRecord,
    /// Position and name of the columns that are read.
    columns: Vec<(Option<usize>, String)>,
    next_row: u64,
    rejects: Rejects,
}

impl CsvReader {
    /// Opens the file and finds the `columns`, whose values are cells.
    pub(super) fn open(
        path: &Path,
        compression: Compression,
        columns: Vec<ColumnRequest>,
        rejects: Rejects,
    ) -> Result<Self> {
        let reader = decompressed(path, compression)?.chain(Cursor::new(CSV_END));
        let reader = csv::ReaderBuilder::new()
            .flexible(true) // so that the end is seen, and lengths are told with their row
            .has_headers(false)
            .from_reader(Box::new(reader) as Box<dyn Read + Send>);
        let mut records = Self {
            path: path.to_owned(),
            reader,
            header: Vec::new(),
            record: csv::ByteRecord::new(),
            columns: Vec::new(),
            next_row: 0,
            rejects,
        };
        if records.advance()? {
            if let Some(reason) = utf16(records.record.as_slice()) {
                return Err(Error::decode(&records.path, "CSV", reason));
            }
            let name = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
            records.header = records.record.iter().map(name).collect();
        }
        for ColumnRequest { name, required, .. } in columns {
            let at = records.header.iter().position(|column| *column == name);
            if required && at.is_none() {
                let header = records.header.join(", ");
                let reason = format!("is not in the file, which has: {header}");
                return Err(Error::schema(&records.path, name, reason));
            }
            records.columns.push((at, name));
        }
        Ok(records)
    }

    /// Names of the columns of a file.
    pub(super) fn header(path: &Path, compression: Compression) -> Result<Vec<String>> {
        Ok(Self::open(path, compression, Vec::new(), Rejects::counted())?.header)
    }

    /// Reads the next record; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let read = self.reader.read_byte_record(&mut self.record);
        if !read.map_err(|error| Error::decode(&self.path, "CSV", error))? {
            return Ok(false);
        }
        let last = self.record.get(self.record.len().saturating_sub(1)).unwrap_or_default();
        if !last.ends_with(&CSV_END[1..]) {
            return Ok(true);
        }
        if self.record.len() == 1 && last == &CSV_END[1..] {
            return Ok(false);
        }
        let reason = "the file ends inside a quoted field that begins in this row".to_owned();
        Err(Error::Row { path: self.path.clone(), row: self.next_row.max(1), reason, count: 1 })
    }

    /// Values of the record, or why it cannot be used.
    fn values(&self) -> Result<Vec<Option<Cell>>, String> {
        if self.record.len() != self.header.len() {
            let (found, expected) = (self.record.len(), self.header.len());
            return Err(format!("has {found} field(s), the header has {expected}"));
        }
        let value = |(at, name): &(Option<usize>, String)| {
            let field = at.and_then(|at| self.record.get(at)).filter(|field| !field.is_empty());
            let text = |field: &[u8]| {
                let text = std::str::from_utf8(field);
                text.map(|text| Cell::Text(text.to_owned()))
                    .map_err(|e| format!("`{name}` is not UTF-8 at byte {}", e.valid_up_to() + 1))
            };
            field.map(text).transpose()
        };
        self.columns.iter().map(value).collect()
    }
}

impl ColumnReader for CsvReader {
    fn next_batch(&mut self, max_rows: usize) -> Result<Option<ColumnBatch>> {
        let mut rows = Vec::new();
        let mut columns = vec![Vec::new(); self.columns.len()];
        while rows.len() < max_rows {
            self.next_row += 1;
            if !self.advance()? {
                break;
            }
            let row = self.next_row - 1;
            match self.values() {
                Ok(values) => {
                    rows.push(row);
                    columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
                }
                Err(reason) => self.rejects.add(row, reason, &[]),
            }
        }
        let columns = columns.into_iter().map(Values::Cells).collect();
        Ok((!rows.is_empty()).then_some(ColumnBatch { rows, columns }))
    }

    /// Tables are read from their first row on.
    fn seek(&mut self, _row: u64, _rejected: u64) {}

    fn rejects(&self) -> &Rejects {
        &self.rejects
    }
}
