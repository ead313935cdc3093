//! CSV as it is published (RFC 4180): a header, then records with quoted fields, which may hold
//! line ends. Rows are the records without the header. An empty field is null.

use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::StringViewBuilder;

use super::InputFile;
use super::columns::{ColumnBatch, ColumnReader, ColumnRequest, Rejects};
use super::lines::{decompress, encoding_error};
use polysift_base::error::{Error, Result};
use polysift_base::io::open;

/// Appended to the file. It forms a record of its own unless the file ends inside a quoted field,
/// which the `csv` crate would take for the end of that field.
const CSV_END: &[u8] = b"\n\0end of the file";

pub(super) struct CsvReader {
    path: PathBuf,
    reader: csv::Reader<Box<dyn Read + Send>>,
    header: Vec<String>,
    record: csv::ByteRecord,
    /// Position (if present) and name of each column that is read.
    columns: Vec<(Option<usize>, String)>,
    next_row: u64,
    rejects: Rejects,
}

impl CsvReader {
    /// Opens `file`, reads its header and finds `columns` there.
    pub(super) fn open(
        file: &InputFile,
        columns: Vec<ColumnRequest>,
        rejects: Rejects,
    ) -> Result<Self> {
        let content = Box::new(open(&file.path)?);
        let reader = decompress(&file.path, content, file.format.compression())?;
        let reader = reader.chain(Cursor::new(CSV_END));
        let reader = csv::ReaderBuilder::new()
            .flexible(true) // CSV_END has one field, and wrong lengths are reported with their row
            .has_headers(false)
            .from_reader(Box::new(reader) as Box<dyn Read + Send>);
        let mut records = Self {
            path: file.path.clone(),
            reader,
            header: Vec::new(),
            record: csv::ByteRecord::new(),
            columns: Vec::new(),
            next_row: 0,
            rejects,
        };
        if records.read_record()? {
            if let Some(reason) = encoding_error(records.record.as_slice()) {
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

    /// Returns the names of all columns; none for an empty file.
    pub(super) fn read_header(file: &InputFile) -> Result<Vec<String>> {
        Ok(Self::open(file, Vec::new(), Rejects::counted())?.header)
    }

    /// Reads the next record. Returns false at the end; an end inside quotes is [`Error::Row`].
    fn read_record(&mut self) -> Result<bool> {
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

    /// Returns the values of the requested columns in the record, or why it cannot be used.
    fn record_values(&self) -> Result<Vec<Option<&str>>, String> {
        if self.record.len() != self.header.len() {
            let (found, expected) = (self.record.len(), self.header.len());
            return Err(format!("has {found} field(s), the header has {expected}"));
        }
        let value = |(at, name): &(Option<usize>, String)| {
            let field = at.and_then(|at| self.record.get(at)).filter(|field| !field.is_empty());
            let not_utf8 = |e: std::str::Utf8Error| {
                format!("`{name}` is not UTF-8 at byte {}", e.valid_up_to() + 1)
            };
            field.map(|field| std::str::from_utf8(field).map_err(not_utf8)).transpose()
        };
        self.columns.iter().map(value).collect()
    }
}

impl ColumnReader for CsvReader {
    fn next_batch(&mut self, max_rows: usize) -> Result<Option<ColumnBatch>> {
        let mut rows = Vec::new();
        let mut columns: Vec<StringViewBuilder> =
            self.columns.iter().map(|_| StringViewBuilder::new()).collect();
        while rows.len() < max_rows {
            self.next_row += 1;
            if !self.read_record()? {
                break;
            }
            let row = self.next_row - 1;
            match self.record_values() {
                Ok(values) => {
                    rows.push(row);
                    let both = columns.iter_mut().zip(values);
                    both.for_each(|(column, value)| column.append_option(value));
                }
                Err(reason) => self.rejects.add(row, reason, &[]),
            }
        }
        let array = |mut column: StringViewBuilder| -> ArrayRef { Arc::new(column.finish()) };
        let columns = columns.into_iter().map(array).collect();
        Ok((!rows.is_empty()).then_some(ColumnBatch { rows, columns }))
    }

    fn rejects(&self) -> &Rejects {
        &self.rejects
    }
}
