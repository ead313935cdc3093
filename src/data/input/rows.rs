//! Rows with every column in its own type: for the export, and to show the first rows of data files
//! or those with the highest or lowest values of a column. Types are those of the footer for a
//! Parquet file, and inferred from all lines for JSON lines (see `infer`). Rows are numbered as in
//! [`super::DocumentReader`], and the lines that it rejects are left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use parquet::arrow::ProjectionMask;
use serde_json::{Map, Value, json};

use super::columns::{InputColumn, Rejects, RowBatch};
use super::discover::unknown_extension;
use super::documents::DocumentRequest;
use super::infer::JsonColumns;
use super::json::Json;
use super::json_lines::{JsonReader, LineChecker, parse_object};
use super::lines::{LineReader, TextLine};
use super::parquet::{ParquetFile, ParquetRows};
use super::values::{strings, to_json};
use super::{BATCH_BYTES, BATCH_ROWS, Format, InputFile};
use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;
use polysift_base::progress::Stop;
use polysift_config::{InputConfig, LARGEST_DOCUMENT_BYTES};

const MAX_COLUMNS: usize = 10_000;
/// Maximum characters shown of a list or a struct, such as an embedding.
const NESTED_CHARS: usize = 80;

impl JsonColumns {
    /// Infers the columns of `file`, which is read to its end.
    pub fn infer(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let requests = DocumentRequest::new(file, config).requests;
        let (max_bytes, rejects) = (config.max_document_bytes, Rejects::new(config.max_rejects));
        let mut reader = JsonReader::open(file, requests, max_bytes, rejects)?;
        let mut columns = Self::default();
        while reader.visit_line(|_, _, json| {
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
    /// Names and types of all columns in file order, and a Parquet file's metadata. A column that the
    /// file declares as a dictionary is read as its values ([`super::dense`]).
    pub schema: SchemaRef,
    next: Box<dyn FnMut() -> Result<Option<RowBatch>> + Send>,
}

impl RowReader {
    /// Opens `file`. JSON lines are first read to the end to infer the schema, with the errors of
    /// [`super::DocumentReader`]; CSV, which only tables are read from, is [`Error::Config`].
    pub fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        match file.format {
            Format::Parquet => {
                let parquet = ParquetFile::open(file)?;
                let schema = Arc::clone(&parquet.schema);
                let text = InputColumn::find(parquet.footer.schema().fields(), &config.text);
                let (mask, max_bytes) = (ProjectionMask::all(), config.max_document_bytes);
                let mut rows = ParquetRows::new(parquet, mask, text, max_bytes, Rejects::counted());
                Ok(Self { schema, next: Box::new(move || rows.next(BATCH_ROWS)) })
            }
            Format::Csv(_) => Err(unknown_extension(&file.path.display())),
            Format::JsonLines(_) => {
                Self::open_json(file, config, JsonColumns::infer(file, config)?)
            }
        }
    }

    /// Opens a `file` of JSON lines that has some of `columns`; the other columns are null.
    pub fn open_json(file: &InputFile, config: &InputConfig, columns: JsonColumns) -> Result<Self> {
        columns.check(file)?;
        let schema = Arc::new(Schema::new(columns.fields(&DataType::Utf8)));
        let mut lines = LineReader::open(file, config.max_document_bytes)?;
        let mut checker = LineChecker::new(DocumentRequest::new(file, config).requests);
        let rows_schema = Arc::clone(&schema);
        let next = move || next_objects(&mut lines, &mut checker, &columns, &rows_schema);
        Ok(Self { schema, next: Box::new(next) })
    }

    /// Returns the next rows, or `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<RowBatch>> {
        (self.next)()
    }
}

/// Reads the next rows of JSON lines in the second pass over their file.
fn next_objects(
    reader: &mut LineReader,
    checker: &mut LineChecker,
    columns: &JsonColumns,
    schema: &SchemaRef,
) -> Result<Option<RowBatch>> {
    loop {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let mut line = TextLine::default();
            if !reader.read(&mut line)? {
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
            let json = parse_object(line).ok()?;
            checker.fields(&json).ok()?;
            Some((line.row, json))
        });
        let (rows, objects): (Vec<u64>, Vec<Json<'_>>) = usable.unzip();
        if !rows.is_empty() {
            let objects: Vec<_> = objects.iter().map(Some).collect();
            let arrays = columns.arrays(&objects);
            let batch = arrays.and_then(|arrays| RecordBatch::try_new(schema.clone(), arrays));
            let batch = batch.map_err(|e| Error::decode(&reader.path, "JSON lines", e))?;
            return Ok(Some(RowBatch { rows, batch }));
        }
    }
}

/// Returns `count` rows of `files` as `file`, `row` (counted from 0) and `columns`: the first ones,
/// or those with the highest (if `ascending`: lowest) values of the numeric column `sort_by`, as
/// f64. Of equal values the first ones are taken; null and NaN are left out.
pub fn row_values(
    files: &[PathBuf],
    count: usize,
    sort_by: Option<&str>,
    ascending: bool,
    stop: &Stop,
) -> Result<Vec<Value>> {
    let order = |a: &f64, b: &f64| if ascending { a.total_cmp(b) } else { b.total_cmp(a) };
    // The sort is stable: of equal values the first ones stay.
    let first = |mut rows: Vec<(f64, Value)>| {
        rows.sort_by(|(a, _), (b, _)| order(a, b));
        rows.truncate(count);
        rows
    };
    // Rows, each with its value in the sorted column; 0 without one.
    let mut best: Vec<(f64, Value)> = Vec::new();
    // Value of the last of the best rows, once there are enough.
    let mut last: Option<f64> = None;
    'files: for path in files {
        let (file, mut reader) = open_rows(path)?;
        while let Some(block) = reader.next_batch()? {
            stop.check()?;
            let values = match sort_by {
                Some(column) => Some(numeric_values(&block.batch, column, &file.path)?),
                None if best.len() >= count => break 'files,
                None => None,
            };
            for (at, row) in block.rows.iter().enumerate() {
                let value = values.as_ref().map_or(Some(0.0), |values| values[at]);
                let is_better = |value: &f64| last.is_none_or(|last| order(&last, value).is_gt());
                let Some(value) = value.filter(is_better) else { continue };
                let columns = row_as_json(&block.batch, at);
                let row =
                    json!({"file": file.path.to_string_lossy(), "row": row, "columns": columns});
                best.push((value, row));
                if best.len() >= count.saturating_mul(2) {
                    best = first(best);
                    last = best.last().map(|(value, _)| *value);
                }
            }
        }
    }
    Ok(first(best).into_iter().map(|(_, row)| row).collect())
}

/// Opens the data file `path` and its rows; no column is required.
pub fn open_rows(path: &Path) -> Result<(InputFile, RowReader)> {
    if !path.to_str().is_some_and(is_url) && !path.exists() {
        return Err(Error::missing(path, "no such file"));
    }
    let file = InputFile::at(path, "file".to_owned(), None)?;
    let config = InputConfig {
        text: String::new(),
        id: String::new(),
        max_document_bytes: LARGEST_DOCUMENT_BYTES,
        ..InputConfig::default()
    };
    let reader = RowReader::open(&file, &config)?;
    Ok((file, reader))
}

/// Returns the values of the column `name`, booleans as 1 and 0; `None` for null and NaN.
/// [`Error::Schema`] if there is no such column or it has no numbers.
fn numeric_values(batch: &RecordBatch, name: &str, path: &Path) -> Result<Vec<Option<f64>>> {
    let wrong = |reason: String| Error::schema(path, name, reason);
    let column = batch.column_by_name(name).ok_or_else(|| {
        let fields = batch.schema_ref().fields().iter();
        let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
        wrong(format!("there is none; the columns are {}", names.join(", ")))
    })?;
    let found = column.data_type();
    if !(found.is_numeric() || *found == DataType::Boolean) {
        return Err(wrong(format!("is of {found}; needed are numbers")));
    }
    let numbers = strings(column).map_err(|e| wrong(e.to_string()))?;
    let value = |text: &str| match text {
        "true" => Some(1.0),
        "false" => Some(0.0),
        number => number.parse().ok().filter(|value: &f64| !value.is_nan()),
    };
    Ok(numbers.iter().map(|text| text.and_then(value)).collect())
}

/// Returns the values of the row `at` by column; lists and structs are shortened JSON.
fn row_as_json(batch: &RecordBatch, at: usize) -> Map<String, Value> {
    let value = |(field, column): (&FieldRef, &ArrayRef)| {
        let value = match column.data_type() {
            _ if column.is_null(at) => Value::Null,
            other if other.is_nested() => cut_off(&to_json(column, at).to_string()).into(),
            _ => to_json(column, at),
        };
        (field.name().clone(), value)
    };
    batch.schema_ref().fields().iter().zip(batch.columns()).map(value).collect()
}

/// Shortens `text` to [`NESTED_CHARS`] characters and `…`.
fn cut_off(text: &str) -> String {
    match text.char_indices().nth(NESTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
