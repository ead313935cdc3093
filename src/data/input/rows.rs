//! Rows with every column in its own type, for the export: that of the footer for a Parquet file,
//! and one inferred from all lines for JSON lines (see `infer`). Rows are numbered as in
//! [`super::DocumentReader`], and the lines that it rejects are left out.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;

use super::columns::{InputColumn, Rejects};
use super::documents::DocumentRequest;
use super::infer::JsonColumns;
use super::json::Json;
use super::json_lines::{JsonReader, LineChecker, object};
use super::lines::{LineReader, TextLine};
use super::parquet::{ParquetFile, ParquetRows};
use super::{BATCH_BYTES, BATCH_ROWS, Format, InputFile};
use polysift_base::error::{Error, Result};
use polysift_config::InputConfig;

const MAX_COLUMNS: usize = 10_000;

/// A batch of at most 1024 rows; fewer if they are long.
#[derive(Debug, Clone, PartialEq)]
pub struct RowBatch {
    /// The [`super::DocumentInfo::row`] of each row, ascending; with gaps in JSON lines.
    pub rows: Vec<u64>,
    /// All columns of these rows.
    pub batch: RecordBatch,
}

impl JsonColumns {
    /// Infers the columns of `file`, which is read to its end.
    pub fn infer(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let requests = DocumentRequest::new(file, config).requests;
        let (max_bytes, rejects) = (config.max_document_bytes, Rejects::new(config.max_rejects));
        let mut reader = JsonReader::open(file, requests, max_bytes, rejects)?;
        let mut columns = Self::default();
        while reader.visit(|_, _, json| {
            // One column too many is enough for the error of [`RowReader::open_json`].
            if columns.check(file).is_ok() {
                columns.observe(json);
            }
            Ok(())
        })? {}
        Ok(columns)
    }

    /// Returns [`Error::Schema`] for `file` if there are too many columns.
    pub fn check(&self, file: &InputFile) -> Result<()> {
        let Some((name, _)) = self.0.get(MAX_COLUMNS) else { return Ok(()) };
        let reason = format!("is one too many; {MAX_COLUMNS} columns are allowed");
        Err(Error::schema(&file.path, name, reason))
    }
}

/// Reads all columns of one file in order.
pub struct RowReader {
    schema: SchemaRef,
    source: RowSource,
}

enum RowSource {
    Parquet(Box<ParquetRows>),
    Json(Box<JsonRows>),
}

impl RowReader {
    /// Opens `file`. JSON lines are first read to the end to infer the schema, with the errors of
    /// [`super::DocumentReader`]; CSV is [`Error::Corrupt`].
    pub fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        match file.format {
            Format::Parquet => {
                let parquet = ParquetFile::open(file)?;
                let schema = Arc::clone(&parquet.schema);
                let text = InputColumn::find(parquet.footer.schema().fields(), &config.text);
                let (mask, max_bytes) = (ProjectionMask::all(), config.max_document_bytes);
                let rows = ParquetRows::new(parquet, mask, text, max_bytes, Rejects::counted());
                Ok(Self { schema, source: RowSource::Parquet(Box::new(rows)) })
            }
            Format::Csv(_) => Err(Error::corrupt(&file.path, "CSV is read as a table only")),
            Format::JsonLines(_) => {
                Self::open_json(file, config, JsonColumns::infer(file, config)?)
            }
        }
    }

    /// Opens a `file` of JSON lines that has some of `columns`; the other columns are null.
    pub fn open_json(file: &InputFile, config: &InputConfig, columns: JsonColumns) -> Result<Self> {
        columns.check(file)?;
        let schema = Arc::new(Schema::new(columns.fields(&DataType::Utf8)));
        let lines = LineReader::open(file, config.max_document_bytes)?;
        let checker = LineChecker::new(DocumentRequest::new(file, config).requests);
        let rows = JsonRows { lines, checker, columns };
        Ok(Self { schema, source: RowSource::Json(Box::new(rows)) })
    }

    /// Returns the names and types of all columns in file order, and a Parquet file's metadata. A
    /// column that the file declares as a dictionary is read as its values ([`super::dense`]).
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns the next rows, or `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        match &mut self.source {
            RowSource::Parquet(rows) => Ok(rows.next(BATCH_ROWS)?.map(|(first_row, batch)| {
                RowBatch { rows: (first_row..).take(batch.num_rows()).collect(), batch }
            })),
            RowSource::Json(rows) => rows.next_batch(&self.schema),
        }
    }
}

/// Second pass over a file of JSON lines.
struct JsonRows {
    lines: LineReader,
    checker: LineChecker,
    columns: JsonColumns,
}

impl JsonRows {
    fn next_batch(&mut self, schema: &SchemaRef) -> Result<Option<RowBatch>> {
        loop {
            let (mut lines, mut bytes) = (Vec::new(), 0);
            while lines.len() < BATCH_ROWS && bytes < BATCH_BYTES {
                let mut line = TextLine::default();
                if !self.lines.read(&mut line)? {
                    break;
                }
                bytes += line.bytes.len();
                lines.push(line);
            }
            if lines.is_empty() {
                return Ok(None);
            }
            // The first pass has counted the bad lines and found them within the limit.
            let usable = lines.iter().filter_map(|line| {
                let json = object(line).ok()?;
                self.checker.fields(&json).ok()?;
                Some((line.row, json))
            });
            let (rows, objects): (Vec<u64>, Vec<Json<'_>>) = usable.unzip();
            if !rows.is_empty() {
                let objects: Vec<_> = objects.iter().map(Some).collect();
                let columns = self.columns.arrays(&objects);
                let batch = columns.and_then(|of| RecordBatch::try_new(schema.clone(), of));
                let batch = batch.map_err(|e| Error::decode(&self.lines.path, "JSON lines", e))?;
                return Ok(Some(RowBatch { rows, batch }));
            }
        }
    }
}
