//! Parquet files: the footer, and batches of chosen columns from any row on.
//!
//! Owns the size of decoded batches, the choice of row groups, the jump over rows that are done, and
//! what happens when a file is damaged. Pages are decoded as rows are asked for; a row group is never held whole.
//!
//! The `parquet` crate panics on some damaged files (lengths that are negative or do not agree),
//! so it is called behind a guard that turns a panic into the error a damaged file deserves.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::RowGroupMetaData;

use super::{BLOCK_BYTES, BLOCK_ROWS, Content, InputFile, RowGroup, footer, stored_bytes};
use crate::error::{Error, Result, Source};
use crate::panics::caught;
use crate::remote::Failure;

/// An open Parquet file: its footer is read and valid.
pub(super) struct ParquetFile {
    pub path: PathBuf,
    pub footer: ArrowReaderMetadata,
    content: Content,
    /// The row groups that are read.
    groups: Range<usize>,
    /// Their rows.
    rows: Range<u64>,
}

impl ParquetFile {
    pub(super) fn open(file: &InputFile) -> Result<Self> {
        let path = file.path.clone();
        let content = Content::open(file)?;
        let failure = content.failure();
        let load = |options| failure.on(guarded(&path, || footer::load(&content, options)));
        let mut footer = load(ArrowReaderOptions::new())?;
        let fields: Fields = footer.schema().fields().iter().map(date32).collect();
        if fields != *footer.schema().fields() {
            let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
            // Where the days are stored as 64-bit milliseconds, the type stays.
            footer = load(options).unwrap_or(footer);
        }
        let (groups, rows) = chosen_groups(&footer, file.rows.as_ref()).ok_or_else(|| {
            let rows = file.rows.clone().unwrap_or_default();
            Error::corrupt(&path, format!("rows {rows:?} are not those of whole row groups"))
        })?;
        Ok(Self { path, footer, content, groups, rows })
    }

    /// Number of rows that are read.
    pub(super) fn num_rows(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// The first row that is read, by its number in the file.
    pub(super) fn first_row(&self) -> u64 {
        self.rows.start
    }

    /// The row groups that are read.
    pub(super) fn row_groups(&self) -> Vec<RowGroup> {
        let of_group = |group: &RowGroupMetaData| RowGroup {
            rows: num_rows(group),
            bytes: u64::try_from(group.compressed_size()).unwrap_or(0),
        };
        self.footer.metadata().row_groups()[self.groups.clone()].iter().map(of_group).collect()
    }

    /// The columns of `mask` from `first_row` on, a number in the file that is not before
    /// [`Self::first_row`]; earlier row groups are not read at all.
    pub(super) fn batches(&self, mask: ProjectionMask, first_row: u64) -> Result<Batches> {
        let path = self.path.clone();
        let groups = self.footer.metadata().row_groups();
        let mut first_group = self.groups.start;
        let mut offset = first_row.saturating_sub(self.rows.start);
        while first_group < self.groups.end && offset >= num_rows(&groups[first_group]) {
            offset -= num_rows(&groups[first_group]);
            first_group += 1;
        }
        let leaves = (0..self.footer.parquet_schema().num_columns())
            .filter(|&leaf| mask.leaf_included(leaf));
        let of_leaf = |leaf: usize| {
            let groups = &groups[first_group..self.groups.end];
            groups.iter().filter_map(|g| g.columns().get(leaf)).map(stored_bytes).collect()
        };
        let streams: Vec<Vec<Range<u64>>> = leaves.map(of_leaf).collect();
        let content = self.content.again(&path, &streams)?;
        let failure = content.failure();
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(content, self.footer.clone())
                .with_batch_size(batch_rows(groups, &mask))
                .with_projection(mask)
                .with_row_groups((first_group..self.groups.end).collect())
                .with_offset(offset as usize);
        let reader = failure.on(guarded(&path, || builder.build()))?;
        Ok(Batches { path, failure, reader, missing_rows: self.rows.end.saturating_sub(first_row) })
    }
}

/// The row groups of which `rows` are the rows, or all; `None` where `rows` begin or end inside one
/// or beyond the file.
fn chosen_groups(
    footer: &ArrowReaderMetadata,
    rows: Option<&Range<u64>>,
) -> Option<(Range<usize>, Range<u64>)> {
    let mut ends = vec![0u64];
    for group in footer.metadata().row_groups() {
        ends.push(ends.last()?.saturating_add(num_rows(group)));
    }
    let rows = rows.cloned().unwrap_or(0..*ends.last()?);
    // Empty row groups belong to the range that they begin or end.
    let first = ends.partition_point(|&end| end < rows.start);
    let last = ends.partition_point(|&end| end <= rows.end).checked_sub(1)?;
    let is_whole = ends.get(first) == Some(&rows.start) && ends[last] == rows.end;
    (is_whole && first <= last).then_some((first..last, rows))
}

/// `field` as what Parquet has for dates: days. Parquet written from a Date64 holds days as well,
/// and would lose its logical type if it were written as Date64 again.
fn date32(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Date64 => DataType::Date32,
        DataType::List(item) => DataType::List(date32(item)),
        DataType::LargeList(item) => DataType::LargeList(date32(item)),
        DataType::Struct(children) => DataType::Struct(children.iter().map(date32).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Decoder of a file, batch by batch.
pub(super) struct Batches {
    path: PathBuf,
    failure: Failure,
    reader: ParquetRecordBatchReader,
    /// Rows that the footer promises and that were not read yet.
    missing_rows: u64,
}

impl Batches {
    pub(super) fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }

    /// The next batch, `None` once all rows were read.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        let read = guarded(&self.path, || self.reader.next().transpose());
        let batch = self.failure.on(read).map_err(|error| self.explained(error))?;
        let num_rows = batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        if num_rows > self.missing_rows || (batch.is_none() && self.missing_rows > 0) {
            return Err(damaged(&self.path, "the number of rows is not that of the footer"));
        }
        self.missing_rows -= num_rows;
        Ok(batch)
    }

    /// Columns may be encrypted although the footer is not.
    fn explained(&self, error: Error) -> Error {
        let is_encrypted = || Content::open_now(&self.path).is_ok_and(|c| footer::is_encrypted(&c));
        match error {
            Error::Decode { .. } if is_encrypted() => damaged(&self.path, footer::IS_ENCRYPTED),
            error => error,
        }
    }
}

/// Calls the decoder; its errors and panics are those of a damaged file.
pub(super) fn guarded<T, E: Into<Source>>(
    path: &Path,
    decode: impl FnOnce() -> Result<T, E>,
) -> Result<T> {
    // The decoder is not used again after a panic, so nothing sees what it left half done.
    let result = caught(decode);
    let result = result.map_err(|panic| damaged(path, format!("the decoder gave up: {panic}")))?;
    result.map_err(|error| damaged(path, error))
}

fn damaged(path: &Path, error: impl Into<Source>) -> Error {
    Error::decode(path, "Parquet", error)
}

fn num_rows(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

/// Rows of a batch, so that one is about [`BLOCK_BYTES`] where rows are longest on average.
fn batch_rows(groups: &[RowGroupMetaData], mask: &ProjectionMask) -> usize {
    let row_bytes = groups.iter().map(|group| {
        let columns = group.columns().iter().enumerate();
        let bytes: i64 = columns
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .map(|(_, column)| column.uncompressed_size().max(0))
            .fold(0, i64::saturating_add);
        bytes as u64 / num_rows(group).max(1)
    });
    let longest = row_bytes.max().unwrap_or(0).max(1);
    (BLOCK_BYTES as u64 / longest).clamp(1, BLOCK_ROWS as u64) as usize
}
