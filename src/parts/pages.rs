//! Columns of floats of a part, page by page, without the detour through arrow.
//!
//! Owns how the bytes of a page become f32. Reads what this crate writes: data pages of version 1,
//! values as byte streams.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Encoding, LogicalType, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::serialized_reader::SerializedPageReader;
use polysift_kernels::{Isa, join_f16, join_f32};

use super::checked::CheckedFile;
use super::columns::PARQUET;
use super::levels::Levels;
use crate::error::{Error, Result};

/// An open part: its footer is read and valid.
#[derive(Debug, Clone)]
pub(super) struct OpenPart {
    pub(super) path: PathBuf,
    pub(super) footer: Arc<ParquetMetaData>,
    bytes: CheckedFile,
}

impl OpenPart {
    /// Opens the part `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = CheckedFile::open(path)?;
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Skip);
        let footer = reader.parse_and_finish(&bytes);
        let footer = Arc::new(footer.map_err(|e| Error::decode(path, PARQUET, e))?);
        Ok(Self { path: path.to_owned(), footer, bytes })
    }

    /// A reader of its columns as those of arrow.
    pub(super) fn columns(&self) -> Result<ParquetRecordBatchReaderBuilder<CheckedFile>> {
        let footer =
            ArrowReaderMetadata::try_new(Arc::clone(&self.footer), ArrowReaderOptions::new());
        let footer = footer.map_err(|e| Error::decode(&self.path, PARQUET, e))?;
        Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(self.bytes.clone(), footer))
    }

    /// Number of rows.
    pub(super) fn num_rows(&self) -> usize {
        self.footer.file_metadata().num_rows().max(0) as usize
    }

    /// The pages of the leaf column `name` (a dotted path), whose values are f32 or f16.
    pub(super) fn floats(&self, name: &str) -> Result<FloatPages> {
        let schema = self.footer.file_metadata().schema_descr();
        let column = schema.columns().iter().position(|column| column.path().string() == name);
        let missing = || Error::schema(&self.path, name, "is missing");
        let column = column.ok_or_else(missing)?;
        let leaf = schema.column(column);
        let is_half = match (leaf.physical_type(), leaf.logical_type_ref()) {
            (Type::FLOAT, _) => false,
            (Type::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Float16)) => true,
            (other, _) => {
                let reason = format!("is of type {other}, not of floats");
                return Err(Error::schema(&self.path, name, reason));
            }
        };
        Ok(FloatPages {
            part: self.clone(),
            column,
            max_levels: (leaf.max_rep_level(), leaf.max_def_level()),
            is_half,
            next_group: 0,
            reader: None,
        })
    }
}

/// The pages of a leaf column over all row groups, in order.
pub(super) struct FloatPages {
    part: OpenPart,
    column: usize,
    max_levels: (i16, i16),
    is_half: bool,
    next_group: usize,
    reader: Option<SerializedPageReader<CheckedFile>>,
}

impl FloatPages {
    /// Highest repetition level: that of a value that goes on with its list.
    pub(super) fn max_repetition(&self) -> u8 {
        self.max_levels.0 as u8
    }

    /// Highest definition level: that of a value that is there.
    pub(super) fn max_definition(&self) -> u8 {
        self.max_levels.1 as u8
    }

    /// The next page with values, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<FloatPage>> {
        loop {
            let Some(reader) = &mut self.reader else {
                let Some(group) = self.part.footer.row_groups().get(self.next_group) else {
                    return Ok(None);
                };
                let rows = group.num_rows().max(0) as usize;
                let bytes = Arc::new(self.part.bytes.clone());
                let reader =
                    SerializedPageReader::new(bytes, group.column(self.column), rows, None);
                self.reader = Some(reader.map_err(|e| self.damaged(e))?);
                self.next_group += 1;
                continue;
            };
            match reader.get_next_page() {
                Ok(Some(page)) => return self.decode(page).map(Some),
                Ok(None) => self.reader = None,
                Err(error) => return Err(self.damaged(error)),
            }
        }
    }

    fn decode(&self, page: Page) -> Result<FloatPage> {
        let Page::DataPage { mut buf, num_values, encoding, .. } = page else {
            return Err(self.damaged(format!("has a page that is a {:?}", page.page_type())));
        };
        let count = num_values as usize;
        let (rep, def) = self.max_levels;
        let mut levels = |max: i16| {
            if max == 0 {
                return Some(Levels::new(Bytes::new(), 0, count));
            }
            let length = u32::from_le_bytes(*buf.first_chunk()?) as usize;
            buf.advance(4);
            (length <= buf.len()).then(|| Levels::new(buf.split_to(length), max, count))
        };
        let levels = levels(rep).and_then(|rep| Some((rep, levels(def)?)));
        let (repetitions, definitions) =
            levels.ok_or_else(|| self.damaged("a page ends within its levels"))?;
        if encoding != Encoding::BYTE_STREAM_SPLIT {
            return Err(self.damaged(format!("a page is encoded as {encoding}")));
        }
        let values = Floats { streams: buf, is_half: self.is_half };
        Ok(FloatPage { repetitions, definitions, values })
    }

    /// The error of a part that is not as it was written.
    pub(super) fn damaged(&self, error: impl Into<crate::error::Source>) -> Error {
        Error::decode(&self.part.path, PARQUET, error)
    }
}

/// A page: its levels, and the values that are there.
pub(super) struct FloatPage {
    pub(super) repetitions: Levels,
    pub(super) definitions: Levels,
    pub(super) values: Floats,
}

/// Values of a page.
pub(super) struct Floats {
    streams: Bytes,
    is_half: bool,
}

impl Floats {
    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.streams.len() / if self.is_half { 2 } else { 4 }
    }

    /// Values `from..from + out.len()`; `None` where there are not so many.
    pub(super) fn read(&self, isa: Isa, from: usize, out: &mut [f32]) -> Option<()> {
        if out.len() > self.len().checked_sub(from)? {
            return None;
        }
        if self.is_half {
            join_f16(isa, &self.streams, from, out);
        } else {
            join_f32(isa, &self.streams, from, out);
        }
        Some(())
    }
}
