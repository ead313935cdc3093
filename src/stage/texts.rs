//! The texts of documents once more, from the input.

use super::context::Context;
use crate::error::{Error, Result};
use crate::input::{Document, DocumentReader};
use crate::run::Shard;

/// Rows of the input that are read at once.
const READ_ROWS: usize = 1024;

/// Reads texts of a file by row, forwards.
pub(super) struct Texts<'a> {
    shard: &'a Shard,
    reader: DocumentReader,
    block: std::vec::IntoIter<Document>,
    /// The first row that was not read yet.
    next_row: u64,
}

impl<'a> Texts<'a> {
    /// Opens the input of `shard`; [`Error::Corrupt`] if it is no longer the planned file.
    pub(super) fn open(context: Context<'_>, shard: &'a Shard) -> Result<Self> {
        let reader = DocumentReader::open(&shard.input()?, &context.config.input)?;
        Ok(Self { shard, reader, block: Vec::new().into_iter(), next_row: shard.first_row() })
    }

    /// The text of `row`, where rows ascend from call to call; `num_bytes` is its length when it was
    /// embedded, 0 for a row without text, which gives `None`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the row is gone or its text has another length; those of reading.
    pub(super) fn text(&mut self, row: u64, num_bytes: u64) -> Result<Option<String>> {
        if num_bytes == 0 {
            return Ok(None);
        }
        let text = self.document(row)?.text;
        if text.as_ref().map_or(0, String::len) as u64 == num_bytes {
            return Ok(text);
        }
        Err(Error::corrupt(&self.shard.file, format!("row {row} has another text than before")))
    }

    /// The document of `row`.
    fn document(&mut self, row: u64) -> Result<Document> {
        let lost = || Error::corrupt(&self.shard.file, format!("row {row} is gone"));
        loop {
            match self.block.by_ref().find(|document| document.row >= row) {
                Some(document) if document.row == row => return Ok(document),
                Some(_) => return Err(lost()),
                // What lies in between is not decoded where the format allows it.
                None if row >= self.next_row + READ_ROWS as u64 => {
                    self.reader.skip_rows(row)?;
                    self.next_row = row;
                }
                None => {}
            }
            let block = self.reader.next_block(READ_ROWS)?.ok_or_else(lost)?;
            self.next_row = block.last().map_or(row, |last| last.row) + 1;
            self.block = block.into_iter();
        }
    }
}
