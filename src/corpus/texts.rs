//! Reads the texts of documents from the input a second time.

use crate::context::Context;
use polysift_base::error::{Error, Result};
use polysift_data::input::{DocumentBatch, DocumentReader};
use polysift_runs::run::Shard;

const READ_ROWS: usize = 1024;

/// Reads texts of a shard by row, in ascending order.
pub struct Texts<'a> {
    shard: &'a Shard,
    reader: DocumentReader,
    batch: DocumentBatch,
    /// First row that was not read yet.
    next_row: u64,
}

impl<'a> Texts<'a> {
    /// Opens the input of `shard`; [`Error::Corrupt`] if it is no longer the planned file.
    pub fn open(context: Context<'_>, shard: &'a Shard) -> Result<Self> {
        let reader = DocumentReader::open(&shard.input()?, &context.config.input)?;
        Ok(Self { shard, reader, batch: DocumentBatch::default(), next_row: shard.first_row() })
    }

    /// Returns the text of `row`; rows must ascend from call to call. `num_bytes` is the length of
    /// the text when it was embedded; 0 means a row without text, for which the result is `None`.
    /// [`Error::Corrupt`] if the row is gone or its text has another length.
    pub fn text(&mut self, row: u64, num_bytes: u64) -> Result<Option<String>> {
        if num_bytes == 0 {
            return Ok(None);
        }
        let shard = self.shard;
        let lost = || Error::corrupt(&shard.file, format!("row {row} is gone"));
        let place = self.seek(row)?.ok_or_else(lost)?;
        if self.batch.get(place).num_bytes == num_bytes {
            return Ok(self.batch.text(place).map(ToOwned::to_owned));
        }
        Err(Error::corrupt(&shard.file, format!("row {row} has another text than before")))
    }

    /// Like [`Texts::text`], but accepts any length; `None` also for a row that was set aside.
    pub fn any_text(&mut self, row: u64) -> Result<Option<String>> {
        let place = self.seek(row)?;
        Ok(place.and_then(|place| self.batch.text(place)).map(ToOwned::to_owned))
    }

    /// Returns the index of `row` in its batch, reading on if needed; `None` for no document.
    fn seek(&mut self, row: u64) -> Result<Option<usize>> {
        while self.batch.rows().last().is_none_or(|&last| last < row) {
            // Rows in between are not decoded if the format allows it.
            if row >= self.next_row + READ_ROWS as u64 {
                self.reader.resume(row, 0);
            }
            let Some(batch) = self.reader.next_batch(READ_ROWS)? else { return Ok(None) };
            self.batch = batch;
            self.next_row = self.batch.rows().last().map_or(row, |last| last + 1);
        }
        Ok(self.batch.rows().binary_search(&row).ok())
    }
}
