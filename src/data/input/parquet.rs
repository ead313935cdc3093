//! Parquet files: the footer, and batches of chosen columns from any row on. Pages are decoded when
//! their rows are requested; a row group is never held whole.
//!
//! The `parquet` crate panics on some damaged files (lengths that are negative or contradict each
//! other), so it is called behind a guard that turns a panic into the error for a damaged file.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_schema::{ArrowError, DataType, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::columns::{
    ColumnBatch, ColumnKind, ColumnReader, ColumnRequest, InputColumn, Rejects, RowBatch,
    column_at, string_at,
};
use super::content::Content;
use super::lines::too_long_message;
use super::values::{Width, strings};
use super::{BATCH_BYTES, BATCH_ROWS, Format, InputFile};
use polysift_base::error::{Error, Result, Source};
use polysift_base::panics::catch_panic;

/// Rows of a Parquet file that are stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowGroup {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of all columns as stored.
    pub bytes: u64,
    /// Bytes of all columns before compression.
    pub decoded_bytes: u64,
}

impl InputFile {
    /// Reads row groups from the footer; `None` for other formats and damage, which readers report.
    pub fn row_groups(&self) -> Result<Option<Vec<RowGroup>>> {
        if self.format != Format::Parquet {
            return Ok(None);
        }
        let file = match ParquetFile::open(self) {
            Err(Error::Decode { .. }) => return Ok(None),
            opened => opened?,
        };
        let of_group = |group: &RowGroupMetaData| RowGroup {
            rows: num_rows(group),
            bytes: u64::try_from(group.compressed_size()).unwrap_or(0),
            decoded_bytes: u64::try_from(group.total_byte_size()).unwrap_or(0),
        };
        let groups = &file.footer.metadata().row_groups()[file.groups];
        Ok(Some(groups.iter().map(of_group).collect()))
    }

    /// Returns the number of rows of a Parquet file, from its footer.
    pub fn num_rows(&self) -> Result<u64> {
        let rows = ParquetFile::open(self)?.rows;
        Ok(rows.end - rows.start)
    }
}

/// An open Parquet file with a valid footer.
pub(super) struct ParquetFile {
    pub path: PathBuf,
    /// Columns as declared, but for [`int96_as_micros`], [`widen_keys`] and [`as_date32`].
    pub schema: SchemaRef,
    /// The footer, by which columns are read as [`dense`] says.
    pub footer: ArrowReaderMetadata,
    content: Content,
    groups: Range<usize>,
    rows: Range<u64>,
}

impl ParquetFile {
    /// Opens `file` and reads its footer; [`Error::Corrupt`] if its rows are not whole row groups.
    pub(super) fn open(file: &InputFile) -> Result<Self> {
        let path = file.path.clone();
        let content = Content::open(file)?;
        let failure = content.failure();
        let load = || ArrowReaderMetadata::load(&content, ArrowReaderOptions::new());
        let footer = failure.replace_error(guarded(&path, load))?;
        let original = map_types(&int96_as_micros(&footer), widen_keys);
        let dates = map_types(&original, as_date32);
        let read_as = |schema: SchemaRef| {
            let options = ArrowReaderOptions::new().with_schema(dense(&schema));
            let footer = ArrowReaderMetadata::try_new(Arc::clone(footer.metadata()), options);
            footer.map(|footer| (schema, footer))
        };
        // If days are stored as 64-bit milliseconds, the types of dates stay.
        let (schema, footer) = guarded(&path, || read_as(dates).or_else(|_| read_as(original)))?;
        let (groups, rows) = choose_groups(&footer, file.rows.as_ref()).ok_or_else(|| {
            let rows = file.rows.clone().unwrap_or_default();
            Error::corrupt(&path, format!("rows {rows:?} are not whole row groups"))
        })?;
        Ok(Self { path, schema, footer, content, groups, rows })
    }

    /// Returns the columns of `mask` from `first_row`, one of [`Self::rows`]; skips earlier groups.
    fn batches(&self, mask: ProjectionMask, first_row: u64) -> Result<ParquetBatches> {
        let path = self.path.clone();
        let groups = self.footer.metadata().row_groups();
        let (mut left, mut offset) =
            (self.groups.clone(), first_row.saturating_sub(self.rows.start));
        while !left.is_empty() && offset >= num_rows(&groups[left.start]) {
            offset -= num_rows(&groups[left.start]);
            left.start += 1;
        }
        let leaves = (0..self.footer.parquet_schema().num_columns())
            .filter(|&leaf| mask.leaf_included(leaf));
        let of_leaf = |leaf: usize| {
            let columns = groups[left.clone()].iter().filter_map(|group| group.columns().get(leaf));
            columns.map(stored_bytes).collect()
        };
        let streams: Vec<Vec<Range<u64>>> = leaves.map(of_leaf).collect();
        let content = self.content.reopen(&path, &streams)?;
        let failure = content.failure();
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(content, self.footer.clone())
                .with_batch_size(batch_rows(groups, &mask))
                .with_projection(mask)
                .with_row_groups(left.collect())
                .with_offset(offset as usize);
        let mut reader = failure.replace_error(guarded(&path, || builder.build()))?;
        // Rows that the footer promises and that were not read yet.
        let mut missing_rows = self.rows.end.saturating_sub(first_row);
        Ok(Box::new(move || -> Result<Option<RecordBatch>> {
            let batch = failure.replace_error(guarded(&path, || reader.next().transpose()))?;
            let num_rows = batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
            if num_rows > missing_rows || (batch.is_none() && missing_rows > 0) {
                return Err(damaged(&path, "the number of rows differs from the footer"));
            }
            missing_rows -= num_rows;
            Ok(batch)
        }))
    }
}

/// Returns the groups that hold `rows` (default: all), and the rows; `None` if groups are split.
fn choose_groups(
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

/// Returns the types of `footer`, with columns of INT96 (timestamps of Spark, Hive and Impala) in
/// microseconds: 64 bits of nanoseconds hold only the years 1677 to 2262.
fn int96_as_micros(footer: &ArrowReaderMetadata) -> SchemaRef {
    let stored = footer.parquet_schema().root_schema().get_fields();
    let fields = footer.schema().fields().iter().zip(stored).map(|(field, stored)| {
        match field.data_type() {
            DataType::Timestamp(_, zone)
                if stored.is_primitive() && stored.get_physical_type() == PhysicalType::INT96 =>
            {
                let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                Arc::new(field.as_ref().clone().with_data_type(micros))
            }
            _ => Arc::clone(field),
        }
    });
    let fields: Fields = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, footer.schema().metadata().clone()))
}

/// Widens the keys of dictionaries: a row group of the export may have more values than a row group
/// of the input.
fn widen_keys(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => {
            DataType::Dictionary(Box::new(DataType::Int32), values.clone())
        }
        other => other.clone(),
    }
}

/// Replaces Date64 by Date32, because Parquet stores dates as days. A Date64 column was written as
/// days too, and would lose its logical type if it were written as Date64 again.
fn as_date32(data_type: &DataType) -> DataType {
    if *data_type == DataType::Date64 { DataType::Date32 } else { data_type.clone() }
}

/// Returns the types as which Parquet files are read: dictionaries are replaced by their values.
pub fn dense(schema: &SchemaRef) -> SchemaRef {
    map_types(schema, |data_type| match data_type {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        other => other.clone(),
    })
}

/// Applies `change` to the types of `schema` that are not nested, at every depth.
fn map_types(schema: &SchemaRef, change: fn(&DataType) -> DataType) -> SchemaRef {
    let fields: Fields = schema.fields().iter().map(|field| map_field(field, change)).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Returns `field` with its type changed as by [`map_types`].
fn map_field(field: &FieldRef, change: fn(&DataType) -> DataType) -> FieldRef {
    let inner = |field: &FieldRef| map_field(field, change);
    let data_type = match field.data_type() {
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(inner(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        DataType::Struct(children) => DataType::Struct(children.iter().map(inner).collect()),
        other => change(other),
    };
    // The export does not keep the order of a dictionary's values, so no dictionary is ordered.
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_dict_is_ordered(false))
}

/// Returns the next batch; `None` at the end.
type ParquetBatches = Box<dyn FnMut() -> Result<Option<RecordBatch>> + Send>;

/// Calls the decoder. Its errors and panics become the error for a file that cannot be read.
fn guarded<T, E: Into<Source>>(path: &Path, decode: impl FnOnce() -> Result<T, E>) -> Result<T> {
    // The decoder is not used again after a panic, so nothing sees its broken state.
    let result = catch_panic(decode);
    let result = result.map_err(|panic| damaged(path, format!("the decoder gave up: {panic}")))?;
    result.map_err(|error| damaged(path, error))
}

/// Returns [`Error::Decode`] for a Parquet file.
fn damaged(path: &Path, error: impl Into<Source>) -> Error {
    Error::decode(
        path,
        "Parquet; it is damaged or encrypted, or has a type that is not supported",
        error,
    )
}

/// Returns the bytes of a column chunk; an empty range if its footer entry is invalid.
fn stored_bytes(column: &ColumnChunkMetaData) -> Range<u64> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let end = start.saturating_add(column.compressed_size());
    u64::try_from(start).unwrap_or(0)..u64::try_from(end).unwrap_or(0)
}

fn num_rows(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

/// Returns the rows per batch, for about [`BATCH_BYTES`] in the row group of the longest rows.
fn batch_rows(groups: &[RowGroupMetaData], mask: &ProjectionMask) -> usize {
    // The bytes as pages hold them, or the bytes of the texts if they are more: a dictionary holds
    // a repeated text once. Writers of older versions do not store the latter.
    let decoded = |column: &ColumnChunkMetaData| {
        column.uncompressed_size().max(column.unencoded_byte_array_data_bytes().unwrap_or(0))
    };
    let row_bytes = groups.iter().map(|group| {
        let columns = group.columns().iter().enumerate();
        let bytes: i64 = columns
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .map(|(_, column)| decoded(column).max(0))
            .fold(0, i64::saturating_add);
        bytes as u64 / num_rows(group).max(1)
    });
    let longest = row_bytes.max().unwrap_or(0).max(1);
    (BATCH_BYTES as u64 / longest).clamp(1, BATCH_ROWS as u64) as usize
}

/// Reads the rows of a Parquet file from any row on, without those whose text is too long.
pub(super) struct ParquetRows {
    file: ParquetFile,
    mask: ProjectionMask,
    /// Column of the text, which may have up to `max_text_bytes` per row.
    text: Option<InputColumn>,
    max_text_bytes: u64,
    rejects: Rejects,
    /// Created when the first row is requested.
    batches: Option<ParquetBatches>,
    batch: Option<RecordBatch>,
    /// Indices and bytes of the texts in `batch` that are too long.
    long_texts: VecDeque<(usize, u64)>,
    /// Row of the file with which `batch` begins.
    first_row: u64,
    /// Number of rows of `batch` that were returned or set aside.
    taken: usize,
}

impl ParquetRows {
    pub(super) fn new(
        file: ParquetFile,
        mask: ProjectionMask,
        text: Option<InputColumn>,
        max_text_bytes: u64,
        rejects: Rejects,
    ) -> Self {
        Self {
            first_row: file.rows.start,
            file,
            mask,
            text: text.filter(|text| ColumnKind::Text.takes(text.field.data_type())),
            max_text_bytes,
            rejects,
            batches: None,
            batch: None,
            long_texts: VecDeque::new(),
            taken: 0,
        }
    }

    /// Returns the decoder, which the first call starts at [`Self::first_row`].
    fn batches(&mut self) -> Result<&mut ParquetBatches> {
        Ok(match &mut self.batches {
            Some(batches) => batches,
            none => none.insert(self.file.batches(self.mask.clone(), self.first_row)?),
        })
    }

    /// Returns the next rows, up to `max_rows`; `None` at the end.
    pub(super) fn next(&mut self, max_rows: usize) -> Result<Option<RowBatch>> {
        while let Some(batch) = self.fill()? {
            let (row, left) = (self.first_row + self.taken as u64, batch.num_rows() - self.taken);
            let long = self.long_texts.front().copied();
            let before = long.map_or(left, |(place, _)| place - self.taken);
            if let (0, Some((_, bytes))) = (before, long) {
                self.long_texts.pop_front();
                let name = self.text.as_ref().map_or(String::new(), |text| text.path.join("."));
                let reason = format!("`{name}` {}", too_long_message(bytes, self.max_text_bytes));
                self.rejects.add(row, reason, &[]);
                self.taken += 1;
            } else if self.rejects.exceeded() {
                // A file that has failed is read to its end for the count.
                self.taken += before;
            } else {
                let batch = batch.slice(self.taken, before.min(max_rows));
                self.taken += batch.num_rows();
                let rows = (row..).take(batch.num_rows()).collect();
                return Ok(Some(RowBatch { rows, batch }));
            }
        }
        self.rejects.finish(&self.file.path).map(|()| None)
    }

    /// Returns the batch that has rows left, decoding it if necessary; `None` at the end.
    fn fill(&mut self) -> Result<Option<RecordBatch>> {
        while self.batch.as_ref().is_none_or(|batch| batch.num_rows() == self.taken) {
            self.first_row += std::mem::take(&mut self.taken) as u64;
            let read = self.batches().and_then(|next| next());
            self.batch = read.map_err(|error| self.name_bad_column(error))?;
            let Some(batch) = &self.batch else { break };
            self.long_texts = guarded(&self.file.path, || self.find_long_texts(batch))?;
        }
        Ok(self.batch.clone())
    }

    /// Adds to a decoder's `error` the first bad column; decodes them one by one again for that.
    fn name_bad_column(&self, error: Error) -> Error {
        let Error::Decode { source, .. } = &error else { return error };
        let schema = self.file.footer.parquet_schema();
        let is_bad = |leaf: &usize| {
            let mask = ProjectionMask::leaves(schema, [*leaf]);
            let Ok(mut batches) = self.file.batches(mask, self.first_row) else { return true };
            std::iter::from_fn(|| batches().transpose()).any(|batch| batch.is_err())
        };
        let mut leaves = (0..schema.num_columns()).filter(|leaf| self.mask.leaf_included(*leaf));
        let reason = |leaf| format!("column `{}`: {source}", schema.column(leaf).path().string());
        let named = leaves.find(is_bad).map(|leaf| damaged(&self.file.path, reason(leaf)));
        named.unwrap_or(error)
    }

    /// Returns the index and bytes of each text in `batch` that is too long.
    fn find_long_texts(&self, batch: &RecordBatch) -> Result<VecDeque<(usize, u64)>, ArrowError> {
        let Some(column) = &self.text else { return Ok(VecDeque::new()) };
        let texts = column_at(batch, &column.path)?;
        if texts.get_array_memory_size() as u64 <= self.max_text_bytes {
            return Ok(VecDeque::new());
        }
        let texts = strings(&texts)?;
        let bytes = |place| string_at(&texts, place).map_or(0, str::len) as u64;
        let all = (0..batch.num_rows()).map(|place| (place, bytes(place)));
        Ok(all.filter(|(_, bytes)| *bytes > self.max_text_bytes).collect())
    }
}

pub(super) struct ParquetReader {
    rows: ParquetRows,
    /// Kind of each requested column, and the column if it was found.
    columns: Vec<(ColumnKind, Option<InputColumn>)>,
    width: Width,
}

impl ParquetReader {
    /// Opens `file` and finds `columns`; texts in the first may have up to `max_text_bytes`.
    pub(super) fn open(
        file: &InputFile,
        columns: &[ColumnRequest],
        max_text_bytes: u64,
        rejects: Rejects,
    ) -> Result<Self> {
        let file = ParquetFile::open(file)?;
        let fields = file.footer.schema().fields();
        let found = |request: &ColumnRequest| {
            Ok::<_, Error>((request.kind, InputColumn::requested(&file.path, fields, request)?))
        };
        let columns: Vec<_> = columns.iter().map(found).collect::<Result<_>>()?;
        let schema = file.footer.parquet_schema();
        let is_read = |&leaf: &usize| {
            let leaf = schema.column(leaf);
            let mut read = columns.iter().filter_map(|(_, column)| column.as_ref());
            read.any(|column| leaf.path().parts().starts_with(&column.path))
        };
        let mask = ProjectionMask::leaves(schema, (0..schema.num_columns()).filter(is_read));
        let text = columns.first().and_then(|(_, column)| column.clone());
        let rows = ParquetRows::new(file, mask, text, max_text_bytes, rejects);
        Ok(Self { rows, columns, width: Width::default() })
    }

    /// Decodes the columns of `block`. Adds rows to `bad` whose vectors differ from earlier widths.
    fn decode(&mut self, block: &RowBatch, bad: &mut Rejects) -> Result<Vec<ArrayRef>> {
        let RowBatch { rows, batch } = block;
        let decode = |(kind, column): &(ColumnKind, Option<InputColumn>)| match column {
            Some(column) => kind.decode(&column_at(batch, &column.path)?),
            None => Ok(Arc::new(StringViewArray::new_null(batch.num_rows())) as ArrayRef),
        };
        let columns: Vec<ArrayRef> = guarded(&self.rows.file.path, || {
            self.columns.iter().map(decode).collect::<Result<_, ArrowError>>()
        })?;
        if let Some(vectors) = columns.iter().find_map(|column| column.as_list_opt::<i64>()) {
            for (at, &row) in rows.iter().enumerate() {
                if let Err(reason) = self.width.check_row(vectors, at) {
                    bad.add(row, reason, &[]);
                }
            }
        }
        Ok(columns)
    }
}

impl ColumnReader for ParquetReader {
    fn next_batch(&mut self, max_rows: usize) -> Result<Option<ColumnBatch>> {
        let Some(block) = self.rows.next(max_rows)? else { return Ok(None) };
        let mut bad = Rejects::refused();
        let columns = self.decode(&block, &mut bad)?;
        if bad.exceeded() {
            while let Some(block) = self.rows.next(BATCH_ROWS)? {
                self.decode(&block, &mut bad)?;
            }
            return Err(bad.error(&self.rows.file.path));
        }
        Ok(Some(ColumnBatch { rows: block.rows, columns }))
    }

    fn seek(&mut self, row: u64, rejected: u64) {
        let rows = &mut self.rows;
        rows.rejects.count = rejected;
        rows.rejects.kept.clear();
        rows.first_row = row.max(rows.file.rows.start);
        (rows.batches, rows.batch, rows.taken) = (None, None, 0);
    }

    fn rejects(&self) -> &Rejects {
        &self.rows.rejects
    }
}
