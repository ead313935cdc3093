//! Tables in CSV (RFC 4180): a header, then records with quoted fields that may hold line ends.

use std::io::{Cursor, Read};
use std::path::PathBuf;

use super::{Cell, Compression, Rows, TableFile, Values, missing};
use crate::error::{Error, Result};
use crate::input::lines::{decompressed, utf16};

/// Appended to the file. It is a record of its own unless the file ends inside a quoted field,
/// which the `csv` crate takes for the end of that field.
const END: &[u8] = b"\n\0end of the file";

/// The records of a file.
pub(super) struct Records {
    path: PathBuf,
    reader: csv::Reader<Box<dyn Read + Send>>,
    header: Vec<String>,
    record: csv::ByteRecord,
    /// Position and name of the columns that are read.
    columns: Vec<(Option<usize>, String)>,
    next_row: u64,
}

impl Records {
    pub(super) fn open(file: &TableFile, compression: Compression) -> Result<Self> {
        let path = file.path.clone();
        let reader = decompressed(&path, compression)?.chain(Cursor::new(END));
        let reader = csv::ReaderBuilder::new()
            .flexible(true) // so that the end is seen, and lengths are told with their row
            .has_headers(false)
            .from_reader(Box::new(reader) as Box<dyn Read + Send>);
        let mut records = Self {
            path,
            reader,
            header: Vec::new(),
            record: csv::ByteRecord::new(),
            columns: Vec::new(),
            next_row: 0,
        };
        if records.advance()? {
            if let Some(reason) = utf16(records.record.as_slice()) {
                return Err(Error::decode(&records.path, "CSV", reason));
            }
            let name = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
            records.header = records.record.iter().map(name).collect();
        }
        Ok(records)
    }

    /// Names of the columns.
    pub(super) fn header(self) -> Vec<String> {
        self.header
    }

    /// The same records with these columns.
    pub(super) fn columns(mut self, required: &[&str], optional: &[&str]) -> Result<Self> {
        let at = |name: &&str| {
            (self.header.iter().position(|column| column == name), (*name).to_owned())
        };
        self.columns = required.iter().chain(optional).map(at).collect();
        let absent = self.columns[..required.len()].iter().find(|(at, _)| at.is_none());
        match absent {
            Some((_, name)) => Err(missing(&self.path, name, &self.header)),
            None => Ok(self),
        }
    }

    /// Reads the next record; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let read = self.reader.read_byte_record(&mut self.record);
        if !read.map_err(|error| Error::decode(&self.path, "CSV", error))? {
            return Ok(false);
        }
        let last = self.record.get(self.record.len().saturating_sub(1)).unwrap_or_default();
        if !last.ends_with(&END[1..]) {
            return Ok(true);
        }
        if self.record.len() == 1 && last == &END[1..] {
            return Ok(false);
        }
        let reason = "the file ends inside a quoted field that begins in this row".to_owned();
        Err(Error::Row { path: self.path.clone(), row: self.next_row.max(1), reason, count: 1 })
    }

    fn values(&self) -> Values {
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

impl Rows for Records {
    fn next(&mut self) -> Result<Option<(u64, Values)>> {
        self.next_row += 1;
        let more = self.advance()?;
        Ok(more.then(|| (self.next_row - 1, self.values())))
    }
}
