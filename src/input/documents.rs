//! Documents: the columns that embedding needs, in blocks, as rows or as columns.
//!
//! Owns the public reader over both formats. Other columns are not decoded (Parquet) or not
//! kept (JSON lines).

use super::json_lines::JsonRecords;
use super::parquet_records::ParquetRecords;
use super::record::{Record, Wanted};
use super::rejects::Reject;
use super::{BLOCK_BYTES, DocumentBlock, Format, InputFile};
use crate::config::InputConfig;
use crate::error::Result;

/// One row of the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Row in the file, counted from 0. In JSON lines the number of the line less one: blank and
    /// malformed lines are not documents but have their numbers.
    pub row: u64,
    /// Id column (integers as decimal text); where absent or null, `<shard name>/<row>`.
    pub id: String,
    /// Language code as [`crate::config::LanguageSource`] says; `und` where it is not known.
    pub language: String,
    /// The text as stored; `None` when null, empty or only white space.
    pub text: Option<String>,
    /// UTF-8 bytes of the text as stored, 0 for null.
    pub num_bytes: u64,
    /// Vectors of the chunks, `[num_chunks, D]`, when the settings name a column of embeddings
    /// and the row has them. `D` is the same throughout the file.
    pub embeddings: Option<Vec<Vec<f32>>>,
}

/// Reads the documents of one file in order.
pub struct DocumentReader {
    records: Records,
}

impl DocumentReader {
    /// Opens `file` and finds its columns.
    ///
    /// A name is looked up among the columns, then as a dotted path into structs, then in a
    /// struct `metadata`. In JSON lines a key that a line lacks is null there.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] when a column is missing or of a wrong type (in JSON lines: when
    /// none of the first 1000 objects has it, found while reading); [`crate::Error::Decode`]
    /// when the file is not what its extension says; [`crate::Error::Io`].
    pub fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        Ok(Self { records: Records::open(file, config, Wanted::document(file, config))? })
    }

    /// As [`DocumentReader::open`]; texts that are empty or only white space are texts too.
    pub(crate) fn with_blank(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let mut wanted = Wanted::document(file, config);
        wanted.keeps_blank = true;
        Ok(Self { records: Records::open(file, config, wanted)? })
    }

    /// Leaves out the documents whose [`Document::row`] is below `rows`.
    ///
    /// To resume after row `r`, pass `r + 1` before the first block. Parquet jumps there; JSON
    /// lines are read and checked, so that rejects and their limit are those of a run without
    /// interruption. Never goes back in JSON lines.
    pub fn skip_rows(&mut self, rows: u64) -> Result<()> {
        self.resume(rows, 0)
    }

    /// As [`DocumentReader::skip_rows`], after a reader that had set `rejected` of these rows aside:
    /// they count where the rows are not read again.
    pub fn resume(&mut self, rows: u64, rejected: u64) -> Result<()> {
        self.records.seek(rows, rejected);
        Ok(())
    }

    /// The next documents: `max_rows`, fewer only at the end of the file, `None` after it.
    ///
    /// # Errors
    /// [`crate::Error::Row`] when more than `config.max_rejects` rows are malformed (JSON lines) or
    /// too long, or vectors of embeddings in Parquet are not equally wide;
    /// [`crate::Error::Decode`] when the file is damaged.
    pub fn next_block(&mut self, max_rows: usize) -> Result<Option<Vec<Document>>> {
        let mut block = Vec::new();
        while block.len() < max_rows {
            let Some(record) = self.records.next_record()? else { break };
            block.push(record.document);
        }
        Ok(if block.is_empty() { None } else { Some(block) })
    }

    /// The next documents as columns: at most `max_rows`, fewer where the decoder's batch ends and
    /// where texts are long; `None` at the end of the file.
    ///
    /// # Errors
    /// As [`DocumentReader::next_block`].
    pub fn next_columns(&mut self, max_rows: usize) -> Result<Option<DocumentBlock>> {
        if let Source::Parquet(records) = &mut self.records.source {
            return records.next_block(max_rows);
        }
        let (mut documents, mut bytes) = (Vec::new(), 0);
        while documents.len() < max_rows && bytes < BLOCK_BYTES {
            let Some(record) = self.records.next_record()? else { break };
            bytes += record.document.text.as_ref().map_or(0, String::len);
            documents.push(record.document);
        }
        Ok(if documents.is_empty() { None } else { Some(documents.into_iter().collect()) })
    }

    /// Number of rows that are read of the file, where it says so (Parquet).
    pub fn num_rows_hint(&self) -> Option<u64> {
        self.records.num_rows_hint()
    }

    /// Bytes of the file that were read so far, as they lie there; `None` for Parquet, which tells its rows.
    pub fn bytes_read(&self) -> Option<u64> {
        match &self.records.source {
            Source::Parquet(_) => None,
            Source::Json(records) => Some(records.bytes_read()),
        }
    }

    /// Rows that were set aside among those read so far, skipped lines included; when they were too
    /// many, the first ones.
    pub fn rejects(&self) -> &[Reject] {
        self.records.rejects()
    }
}

/// Records of either format.
pub(super) struct Records {
    source: Source,
    first_row: u64,
}

enum Source {
    Parquet(Box<ParquetRecords>),
    Json(Box<JsonRecords>),
}

impl Records {
    pub(super) fn open(file: &InputFile, config: &InputConfig, wanted: Wanted) -> Result<Self> {
        let source = match file.format {
            Format::Parquet => {
                Source::Parquet(Box::new(ParquetRecords::open(file, config, wanted)?))
            }
            Format::JsonLines(_) => {
                Source::Json(Box::new(JsonRecords::open(file, config, wanted)?))
            }
        };
        Ok(Self { source, first_row: 0 })
    }

    pub(super) fn next_record(&mut self) -> Result<Option<Record>> {
        match &mut self.source {
            Source::Parquet(records) => records.next_record(),
            Source::Json(records) => loop {
                match records.next_record()? {
                    Some(record) if record.document.row < self.first_row => {}
                    other => return Ok(other),
                }
            },
        }
    }

    fn seek(&mut self, row: u64, rejected: u64) {
        self.first_row = row;
        if let Source::Parquet(records) = &mut self.source {
            records.seek(row, rejected);
        }
    }

    fn num_rows_hint(&self) -> Option<u64> {
        match &self.source {
            Source::Parquet(records) => Some(records.num_rows()),
            Source::Json(_) => None,
        }
    }

    fn rejects(&self) -> &[Reject] {
        match &self.source {
            Source::Parquet(records) => records.rejects(),
            Source::Json(records) => records.rejects(),
        }
    }
}
