//! An open file of the export: rows are encoded into it, or row groups copied.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::Result;
use parquet::file::writer::SerializedFileWriter;

use super::copy::{CopiedGroup, InputGroups};
use super::target::Target;

/// Most rows of a row group, that of [`ArrowWriter`].
const GROUP_ROWS: usize = 1 << 20;

/// Where the rows of a file go.
#[derive(Debug)]
pub(super) enum Sink {
    /// Only rows so far.
    Rows(Box<ArrowWriter<Target>>),
    /// A row group was copied; arrow's writer cannot do that.
    Groups(Box<Groups>),
}

/// A file row group by row group.
#[derive(Debug)]
pub(super) struct Groups {
    file: SerializedFileWriter<Target>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// The row group in progress, by leaf column.
    open: Vec<ArrowColumnWriter>,
    open_rows: usize,
}

impl Sink {
    /// Encodes the rows of `batch`.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Rows(writer) => writer.write(batch),
            Self::Groups(groups) => groups.write(batch),
        }
    }

    /// Ends the row group in progress.
    pub(super) fn flush(&mut self) -> Result<()> {
        match self {
            Self::Rows(writer) => writer.flush(),
            Self::Groups(groups) => groups.flush(),
        }
    }

    /// About as many bytes as the file has.
    pub(super) fn num_bytes(&self) -> u64 {
        match self {
            Self::Rows(writer) => (writer.bytes_written() + writer.in_progress_size()) as u64,
            Self::Groups(groups) => groups.file.bytes_written() as u64,
        }
    }

    /// Writes the footer.
    pub(super) fn into_file(mut self) -> Result<Target> {
        self.flush()?;
        match self {
            Self::Rows(writer) => writer.into_inner(),
            Self::Groups(groups) => groups.file.into_inner(),
        }
    }

    /// The same file, ready for row groups.
    pub(super) fn into_groups(self, schema: &SchemaRef) -> Result<Box<Groups>> {
        match self {
            Self::Rows(writer) => {
                let (file, factory) = writer.into_serialized_writer()?;
                let (schema, open) = (SchemaRef::clone(schema), Vec::new());
                Ok(Box::new(Groups { file, factory, schema, open, open_rows: 0 }))
            }
            Self::Groups(mut groups) => {
                groups.flush()?;
                Ok(groups)
            }
        }
    }
}

impl Groups {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.open.is_empty() {
            self.open = self.column_writers()?;
        }
        let mut writers = self.open.iter_mut();
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            for leaf in compute_leaves(field, column)? {
                if let Some(writer) = writers.next() {
                    writer.write(&leaf)?;
                }
            }
        }
        self.open_rows += batch.num_rows();
        if self.open_rows >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.open_rows = 0;
        let open = std::mem::take(&mut self.open);
        if open.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        for writer in open {
            writer.close()?.append_to_row_group(&mut group)?;
        }
        group.close().map(drop)
    }

    /// Encoders of a row group, by leaf column.
    pub(super) fn column_writers(&self) -> Result<Vec<ArrowColumnWriter>> {
        self.factory.create_column_writers(self.file.flushed_row_groups().len())
    }

    /// Adds row group `index` of `input`, with the new columns of `copied`.
    pub(super) fn append(
        &mut self,
        copied: CopiedGroup,
        input: &InputGroups,
        index: usize,
    ) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for (leaf, writer) in copied.into_writers().into_iter().enumerate() {
            match input.column(index, leaf) {
                Some(column) => group.append_column(input.file(), column)?,
                None => writer.close()?.append_to_row_group(&mut group)?,
            }
        }
        group.close().map(drop)
    }
}
