//! Shows rows of data files: the first, or those with the highest or lowest values of a column.

use std::path::{Path, PathBuf};

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, FieldRef};
use serde_json::{Map, Value, json};

use super::values::{json, strings};
use super::{InputFile, RowReader};
use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;
use polysift_base::progress::Stop;
use polysift_config::{InputConfig, LARGEST_DOCUMENT_BYTES};

/// Maximum characters shown of a list or a struct, such as an embedding.
const NESTED_CHARS: usize = 80;

/// A number as f64, then as an integer: f64 rounds integers from 2^53 on.
type Number = (f64, i128);

/// Which rows to show.
#[derive(Debug, Clone, Copy)]
pub struct RowsRequest<'a> {
    /// Number of rows, of all files together.
    pub count: usize,
    /// Numeric column to sort by, highest values first; `None` for the first rows.
    pub sort_by: Option<&'a str>,
    /// Whether to show the lowest values, lowest first.
    pub ascending: bool,
}

/// Returns the requested rows of `files` as `file`, `row` (counted from 0) and `columns`. Of equal
/// values the first ones are taken; null and NaN are left out.
pub fn row_values(files: &[PathBuf], request: RowsRequest<'_>, stop: &Stop) -> Result<Vec<Value>> {
    let order = |a: &Number, b: &Number| {
        let order = a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        if request.ascending { order } else { order.reverse() }
    };
    // The sort is stable: of equal values the first ones stay.
    let first = |mut rows: Vec<(Number, Value)>| {
        rows.sort_by(|(a, _), (b, _)| order(a, b));
        rows.truncate(request.count);
        rows
    };
    // Rows, each with its value in the sorted column; 0 without one.
    let mut best: Vec<(Number, Value)> = Vec::new();
    // Value of the last of the best rows, once there are enough.
    let mut last: Option<Number> = None;
    'files: for path in files {
        let (file, mut reader) = open_rows(path)?;
        while let Some(block) = reader.next_batch()? {
            stop.check()?;
            let values = match request.sort_by {
                Some(column) => Some(numbers(&block.batch, column, &file.path)?),
                None if best.len() >= request.count => break 'files,
                None => None,
            };
            for (at, row) in block.rows.iter().enumerate() {
                let value = values.as_ref().map_or(Some(number(0.0)), |values| values[at]);
                let is_better =
                    |value: &Number| last.is_none_or(|last| order(&last, value).is_gt());
                let Some(value) = value.filter(is_better) else { continue };
                let columns = columns(&block.batch, at);
                let row =
                    json!({"file": file.path.to_string_lossy(), "row": row, "columns": columns});
                best.push((value, row));
                if best.len() >= request.count.saturating_mul(2) {
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

/// Returns the values of the column `name`; `None` for null and NaN.
fn numbers(batch: &RecordBatch, name: &str, path: &Path) -> Result<Vec<Option<Number>>> {
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
        "true" => Some(number(1.0)),
        "false" => Some(number(0.0)),
        text => {
            let (value, whole) = number(text.parse().ok().filter(|value: &f64| !value.is_nan())?);
            Some((value, text.parse().unwrap_or(whole)))
        }
    };
    Ok(numbers.iter().map(|text| text.and_then(value)).collect())
}

fn number(value: f64) -> Number {
    (value, value as i128)
}

/// Returns the values of the row `at` by column; lists and structs are shortened JSON.
fn columns(batch: &RecordBatch, at: usize) -> Map<String, Value> {
    let value = |(field, column): (&FieldRef, &ArrayRef)| {
        let value = match column.data_type() {
            _ if column.is_null(at) => Value::Null,
            other if other.is_nested() => cut_off(&json(column, at).to_string()).into(),
            _ => json(column, at),
        };
        (field.name().clone(), value)
    };
    batch.schema_ref().fields().iter().zip(batch.columns()).map(value).collect()
}

fn cut_off(text: &str) -> String {
    match text.char_indices().nth(NESTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
