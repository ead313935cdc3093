//! Rows with every column in its own type, for the export.
//!
//! Owns the schema: the one in the footer of a Parquet file, one inferred from all lines of a
//! JSON lines file (see `infer` for the types). Rows have the numbers they have in
//! [`super::DocumentReader`], and lines that are rejected there are left out here.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::arrow::ProjectionMask;

use super::infer::{Shape, arrow_fields, columns, observe_object};
use super::json::Json;
use super::json_lines::{Checker, JsonRecords};
use super::lines::{Line, Lines};
use super::parquet_file::{Batches, ParquetFile};
use super::record::Wanted;
use super::{BLOCK_BYTES, BLOCK_ROWS, Format, InputFile};
use crate::config::InputConfig;
use crate::error::{Error, Result};

/// Most columns of a JSON lines file.
const MAX_COLUMNS: usize = 10_000;

/// At most 1024 rows; fewer where they are long.
#[derive(Debug, Clone, PartialEq)]
pub struct RowBatch {
    /// [`super::Document::row`] of each row, ascending; in JSON lines with gaps.
    pub rows: Vec<u64>,
    /// All columns; as many rows.
    pub batch: RecordBatch,
}

/// Reads all columns of one file in order.
pub struct RowReader {
    schema: SchemaRef,
    source: Source,
}

enum Source {
    Parquet { batches: Box<Batches>, next_row: u64 },
    Json(Box<JsonRows>),
}

impl RowReader {
    /// Opens `file`; one of JSON lines is read once to its end, to infer the schema.
    ///
    /// # Errors
    /// [`Error::Decode`] when the file is damaged; in JSON lines [`Error::Row`] and
    /// [`Error::Schema`] as [`super::DocumentReader`] returns them; [`Error::Io`].
    pub fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let (schema, source) = match file.format {
            Format::Parquet => {
                let parquet = ParquetFile::open(file)?;
                let next_row = parquet.first_row();
                let batches = Box::new(parquet.batches(ProjectionMask::all(), next_row)?);
                let metadata = parquet.footer.schema().metadata().clone();
                let schema = batches.schema().as_ref().clone().with_metadata(metadata);
                (Arc::new(schema), Source::Parquet { batches, next_row })
            }
            Format::JsonLines(_) => {
                let rows = JsonRows::open(file, config)?;
                (rows.schema.clone(), Source::Json(Box::new(rows)))
            }
        };
        Ok(Self { schema, source })
    }

    /// Names and types of all columns, in the order of the file, and what a Parquet file says of
    /// itself beside them.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// The next rows, `None` at the end.
    ///
    /// # Errors
    /// [`Error::Decode`] when the file is damaged; [`Error::Io`].
    pub fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        match &mut self.source {
            Source::Parquet { batches, next_row } => {
                let Some(batch) = batches.next()? else { return Ok(None) };
                let end = *next_row + batch.num_rows() as u64;
                let rows = (*next_row..end).collect();
                *next_row = end;
                Ok(Some(RowBatch { rows, batch }))
            }
            Source::Json(rows) => rows.next_batch(),
        }
    }
}

/// Second pass over a file of JSON lines.
struct JsonRows {
    lines: Lines,
    checker: Checker,
    fields: Vec<(String, Shape)>,
    schema: SchemaRef,
}

impl JsonRows {
    fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let wanted = Wanted::document(file, config);
        let mut fields = Vec::new();
        JsonRecords::open(file, config, wanted.clone())?.for_each(|json| {
            observe_object(&mut fields, json);
            if fields.len() > MAX_COLUMNS {
                let last = fields.last().map_or("", |(name, _)| name.as_str());
                let reason = format!("is one too many; {MAX_COLUMNS} columns are allowed");
                return Err(Error::schema(&file.path, last, reason));
            }
            Ok(())
        })?;
        let schema = Arc::new(Schema::new(arrow_fields(&fields)));
        Ok(Self { lines: Lines::open(file)?, checker: Checker::new(wanted), fields, schema })
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        loop {
            let lines = self.read_block()?;
            if lines.is_empty() {
                return Ok(None);
            }
            let mut rows = Vec::with_capacity(lines.len());
            let mut objects = Vec::with_capacity(lines.len());
            for line in &lines {
                // The first pass has counted the bad lines and found them few enough.
                if let Ok((json, _)) = self.checker.check(&line.bytes) {
                    rows.push(line.row);
                    objects.push(json);
                }
            }
            if !rows.is_empty() {
                let batch = self.batch(&objects);
                let batch = batch.map_err(|e| Error::decode(self.lines.path(), "JSON lines", e))?;
                return Ok(Some(RowBatch { rows, batch }));
            }
        }
    }

    fn batch(&self, objects: &[Json<'_>]) -> Result<RecordBatch, ArrowError> {
        let objects: Vec<_> = objects.iter().map(Some).collect();
        RecordBatch::try_new(self.schema.clone(), columns(&self.fields, &objects)?)
    }

    /// Lines of one batch.
    fn read_block(&mut self) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        let mut bytes = 0;
        while lines.len() < BLOCK_ROWS && bytes < BLOCK_BYTES {
            let mut line = Line::default();
            if !self.lines.read(&mut line)? {
                break;
            }
            bytes += line.bytes.len();
            lines.push(line);
        }
        Ok(lines)
    }
}
