//! Rows with every column in its own type, for the export.
//!
//! Owns the schema: the one in the footer of a Parquet file, one inferred from all lines of a
//! JSON lines file (see `infer` for the types). Rows have the numbers they have in
//! [`super::DocumentReader`], and lines that are rejected there are left out here.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::ProjectionMask;

use super::columns::{InputColumn, Rejects, column_at, string, strings};
use super::documents::DocumentRequest;
use super::infer::{JsonShape, arrow_fields, columns, observe_object};
use super::json::Json;
use super::json_lines::{JsonReader, LineChecker};
use super::lines::{LineReader, TextLine};
use super::parquet::{ParquetBatches, ParquetFile, guarded};
use super::{BATCH_BYTES, BATCH_ROWS, Format, InputFile};
use crate::config::InputConfig;
use crate::error::{Error, Result};

/// Most columns of a JSON lines file.
const MAX_COLUMNS: usize = 10_000;

/// At most 1024 rows; fewer where they are long.
#[derive(Debug, Clone, PartialEq)]
pub struct RowBatch {
    /// [`super::DocumentInfo::row`] of each row, ascending; in JSON lines with gaps.
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
    Parquet(Box<ParquetRows>),
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
                let rows = ParquetRows::new(&parquet, config)?;
                let metadata = parquet.footer.schema().metadata().clone();
                let schema = rows.batches.schema().as_ref().clone().with_metadata(metadata);
                (Arc::new(schema), Source::Parquet(Box::new(rows)))
            }
            Format::Csv(_) => {
                return Err(Error::corrupt(&file.path, "CSV is read as a table only"));
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
            Source::Parquet(rows) => rows.next_batch(),
            Source::Json(rows) => rows.next_batch(),
        }
    }
}

/// The rows of a Parquet file, without those whose text is too long.
struct ParquetRows {
    path: PathBuf,
    batches: ParquetBatches,
    next_row: u64,
    /// The column of the text, where there is one, and the most bytes of a text.
    text: Option<InputColumn>,
    max_text_bytes: u64,
}

impl ParquetRows {
    fn new(file: &ParquetFile, config: &InputConfig) -> Result<Self> {
        let text = InputColumn::find(file.footer.schema().fields(), &config.text);
        let next_row = file.first_row();
        Ok(Self {
            path: file.path.clone(),
            batches: file.batches(ProjectionMask::all(), next_row)?,
            next_row,
            text: text.filter(InputColumn::is_text),
            max_text_bytes: config.max_document_bytes,
        })
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        while let Some(batch) = self.batches.next()? {
            let rows = self.next_row..self.next_row + batch.num_rows() as u64;
            self.next_row = rows.end;
            let Some(kept) = guarded(&self.path, || self.short_texts(&batch))? else {
                return Ok(Some(RowBatch { rows: rows.collect(), batch }));
            };
            if kept.true_count() > 0 {
                let batch = guarded(&self.path, || filter_record_batch(&batch, &kept))?;
                let rows = rows.zip(kept.values()).filter(|(_, kept)| *kept);
                return Ok(Some(RowBatch { rows: rows.map(|(row, _)| row).collect(), batch }));
            }
        }
        Ok(None)
    }

    /// Which rows have no text that is too long; `None`: all.
    fn short_texts(&self, batch: &RecordBatch) -> Result<Option<BooleanArray>, ArrowError> {
        let Some(column) = &self.text else { return Ok(None) };
        let text = column_at(batch, &column.path)?;
        if text.get_array_memory_size() as u64 <= self.max_text_bytes {
            return Ok(None);
        }
        let text = strings(&text)?;
        let is_short =
            |i| string(&text, i).is_none_or(|text| text.len() as u64 <= self.max_text_bytes);
        let kept: BooleanArray = (0..batch.num_rows()).map(|i| Some(is_short(i))).collect();
        Ok((kept.true_count() < batch.num_rows()).then_some(kept))
    }
}

/// Second pass over a file of JSON lines.
struct JsonRows {
    lines: LineReader,
    checker: LineChecker,
    fields: Vec<(String, JsonShape)>,
    schema: SchemaRef,
}

impl JsonRows {
    fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let columns = DocumentRequest::new(file, config).requests;
        let (max_bytes, rejects) = (config.max_document_bytes, Rejects::new(config.max_rejects));
        let mut fields = Vec::new();
        JsonReader::open(file, columns.clone(), max_bytes, rejects)?.for_each(|json| {
            observe_object(&mut fields, json);
            if fields.len() > MAX_COLUMNS {
                let last = fields.last().map_or("", |(name, _)| name.as_str());
                let reason = format!("is one too many; {MAX_COLUMNS} columns are allowed");
                return Err(Error::schema(&file.path, last, reason));
            }
            Ok(())
        })?;
        let schema = Arc::new(Schema::new(arrow_fields(&fields)));
        let lines = LineReader::open(file, max_bytes)?;
        Ok(Self { lines, checker: LineChecker::new(columns), fields, schema })
    }

    fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        loop {
            let lines = self.read_lines()?;
            if lines.is_empty() {
                return Ok(None);
            }
            let mut rows = Vec::with_capacity(lines.len());
            let mut objects = Vec::with_capacity(lines.len());
            for line in &lines {
                // The first pass has counted the bad lines and found them few enough.
                if let Ok(json) = self.checker.check(line, |_| ()) {
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
    fn read_lines(&mut self) -> Result<Vec<TextLine>> {
        let mut lines = Vec::new();
        let mut bytes = 0;
        while lines.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let mut line = TextLine::default();
            if !self.lines.read(&mut line)? {
                break;
            }
            bytes += line.bytes.len();
            lines.push(line);
        }
        Ok(lines)
    }
}
