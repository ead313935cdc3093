//! Row groups of a Parquet input that go over as they are stored, without being decoded.
//!
//! The bytes of a column chunk are copied, with its encoding, compression and page index; only the
//! new columns of the row group are encoded. That is possible where
//! - every input column is exported under its name, with its type: the flat layout of an input without a
//!   struct `metadata` to open, whose columns Parquet would describe with the very words of the input
//!   (not so, for one, for timestamps of 96 bits),
//! - files mirror the inputs ([`WriterOptions::max_file_bytes`] is `None`),
//! - and the row group is no larger than [`WriterOptions::row_group_bytes`].
//!
//! Whether all its rows are exported is the caller's to know. A copied row group keeps the size and
//! the compression it has; what is damaged in it stays damaged.

use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::array::ArrayRef;
use arrow::datatypes::{FieldRef, Schema};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, compute_leaves};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::reader::Length;

use super::layout::{Plan, Source};
use super::{ExportSpec, WriterOptions};
use crate::error::{Error, Result};
use crate::input::{Content, InputFile, stored_bytes};

/// Bytes before the first page of a file.
const MAGIC_BYTES: i64 = 4;

/// The row groups of an input file that can be copied.
#[derive(Debug)]
pub struct InputGroups {
    path: PathBuf,
    file: Content,
    metadata: ParquetMetaData,
    /// Rows that are read of the file; `None`: all.
    read_rows: Option<Range<u64>>,
    /// By leaf of the export: the leaf of the input, `None` for those of new columns.
    leaves: Vec<Option<usize>>,
    /// By column of the export: its first leaf.
    first_leaves: Vec<usize>,
    row_group_bytes: u64,
}

impl InputGroups {
    /// The row groups of the Parquet file `input`, among those that are read of it, whose columns
    /// are `schema` and that an export as `spec` and `options` say can copy; `None` where it is none
    /// of them.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Decode`] for a damaged file.
    pub fn open(
        input: &InputFile,
        schema: &Schema,
        spec: &ExportSpec,
        options: &WriterOptions,
    ) -> Result<Option<Self>> {
        let path = &input.path;
        if options.max_file_bytes.is_some() {
            return Ok(None);
        }
        let file = Content::open(input)?;
        let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Optional);
        let metadata = reader.parse_and_finish(&file);
        let metadata = metadata.map_err(|e| Error::decode(path, "Parquet", e));
        let metadata = file.failure().on(metadata)?;
        let Some((leaves, first_leaves)) = matching_leaves(&metadata, schema, spec) else {
            return Ok(None);
        };
        let (path, read_rows) = (path.clone(), input.rows.clone());
        let row_group_bytes = options.row_group_bytes;
        let mut groups =
            Self { path, file, metadata, read_rows, leaves, first_leaves, row_group_bytes };
        let streams: Vec<_> = groups.copyable().map(|(group, _)| groups.stored(group)).collect();
        if streams.is_empty() {
            return Ok(None);
        }
        groups.file = groups.file.again(&groups.path, &streams)?;
        Ok(Some(groups))
    }

    /// The bytes that are copied of a row group, in their order.
    fn stored(&self, group: usize) -> Vec<Range<u64>> {
        let columns = self.metadata.row_group(group).columns();
        self.leaves
            .iter()
            .flatten()
            .filter_map(|&leaf| columns.get(leaf))
            .map(stored_bytes)
            .collect()
    }

    /// The index and the rows of every row group that can be copied, in order.
    pub fn copyable(&self) -> impl Iterator<Item = (usize, Range<u64>)> + '_ {
        let length = self.file.len();
        let mut end = 0;
        let rows = self.metadata.row_groups().iter().map(move |group| {
            let start = end;
            end += group.num_rows().max(0) as u64;
            (group, start..end)
        });
        rows.enumerate()
            .filter(|(_, (_, rows))| !rows.is_empty() && self.is_read(rows))
            .filter(move |(_, (group, _))| self.can_copy(group, length))
            .map(|(index, (_, rows))| (index, rows))
    }

    fn is_read(&self, rows: &Range<u64>) -> bool {
        let contains = |read: &Range<u64>| read.start <= rows.start && rows.end <= read.end;
        self.read_rows.as_ref().is_none_or(contains)
    }

    fn can_copy(&self, group: &RowGroupMetaData, file_length: u64) -> bool {
        let bytes = u64::try_from(group.total_byte_size()).unwrap_or(u64::MAX);
        let is_inside = |column: &ColumnChunkMetaData| {
            let (pages, size) = (column.data_page_offset(), column.compressed_size());
            let start = column.dictionary_page_offset().unwrap_or(pages);
            let end = start.checked_add(size).and_then(|end| u64::try_from(end).ok());
            start >= MAGIC_BYTES
                && start <= pages
                && size > 0
                && end.is_some_and(|end| end <= file_length)
        };
        bytes <= self.row_group_bytes && group.columns().iter().all(is_inside)
    }

    /// The input file.
    pub(super) fn file(&self) -> &Content {
        &self.file
    }

    /// Where the input file is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of rows of a row group.
    pub(super) fn num_rows(&self, group: usize) -> u64 {
        self.metadata.row_group(group).num_rows().max(0) as u64
    }

    /// What is to be copied as `leaf` of the export, `None` for a new column.
    pub(super) fn column(&self, group: usize, leaf: usize) -> Option<ColumnCloseResult> {
        let from = self.leaves.get(leaf).copied().flatten()?;
        let metadata = self.metadata.row_group(group).column(from).clone();
        let index = self.metadata.page_index_for_row_group(group);
        Some(ColumnCloseResult {
            bytes_written: metadata.compressed_size().max(0) as u64,
            rows_written: self.num_rows(group),
            metadata,
            bloom_filter: None,
            column_index: index.column_index(from).cloned(),
            offset_index: index.offset_index(from).cloned(),
        })
    }
}

/// By leaf of the export the leaf of the input, and by column of the export its first leaf; `None`
/// where one is not stored alike.
fn matching_leaves(
    metadata: &ParquetMetaData,
    schema: &Schema,
    spec: &ExportSpec,
) -> Option<(Vec<Option<usize>>, Vec<usize>)> {
    let plan = Plan::new(schema, spec).ok().filter(|plan| plan.nested.is_empty())?;
    let output = ArrowSchemaConverter::new().convert(&plan.schema()).ok()?;
    let input = metadata.file_metadata().schema_descr();
    let leaves_of = |descriptor: &parquet::schema::types::SchemaDescriptor, root: usize| {
        let of_root = |leaf: &usize| descriptor.get_column_root_idx(*leaf) == root;
        (0..descriptor.num_columns()).filter(of_root).collect::<Vec<_>>()
    };
    let (mut leaves, mut first_leaves) = (Vec::new(), Vec::new());
    for (root, column) in plan.top.iter().enumerate() {
        let own = leaves_of(&output, root);
        first_leaves.push(leaves.len());
        let Source::Input(path) = &column.source else {
            leaves.extend(own.iter().map(|_| None));
            continue;
        };
        let [input_root] = path[..] else { return None };
        let theirs = leaves_of(input, input_root);
        let is_alike = |(&own, &their): (&usize, &usize)| output.column(own) == input.column(their);
        if own.len() != theirs.len() || !own.iter().zip(&theirs).all(is_alike) {
            return None;
        }
        leaves.extend(theirs.into_iter().map(Some));
    }
    Some((leaves, first_leaves))
}

/// A row group in progress whose input columns will be copied.
#[derive(Debug)]
pub struct CopiedGroup {
    writers: Vec<ArrowColumnWriter>,
    rows: u64,
}

impl CopiedGroup {
    pub(super) fn new(writers: Vec<ArrowColumnWriter>) -> Self {
        Self { writers, rows: 0 }
    }

    /// Encodes the next rows of the new columns: index in the export, field, values.
    pub(super) fn write(
        &mut self,
        columns: &[(usize, FieldRef, ArrayRef)],
        num_rows: usize,
        input: &InputGroups,
    ) -> ParquetResult<()> {
        for (root, field, values) in columns {
            let first = input.first_leaves[*root];
            for (leaf, writer) in
                compute_leaves(field, values)?.iter().zip(&mut self.writers[first..])
            {
                writer.write(leaf)?;
            }
        }
        self.rows += num_rows as u64;
        Ok(())
    }

    /// Rows written.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Encoders by leaf of the export; those of copied columns hold nothing.
    pub(super) fn into_writers(self) -> Vec<ArrowColumnWriter> {
        self.writers
    }
}
