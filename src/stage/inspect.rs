//! Descriptions of files, heads and runs for people and scripts.

use std::collections::BTreeMap;
use std::path::Path;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use serde_json::{Value, json};

use super::Context;
use crate::config::InputConfig;
use crate::error::{Error, Result};
use crate::fasttext::{FastTextHead, Model};
use crate::head::{HEAD_EXTENSIONS, Head};
use crate::input::{InputFile, RowReader};
use crate::remote::is_url;

/// Quantiles that are shown of a numeric column.
const QUANTILES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];

/// Describes a data file (schema, rows, nulls, quantiles of score columns) or a head.
pub fn inspect_file(path: &Path) -> Result<Value> {
    if path.is_file() && FastTextHead::is_at(path)? {
        return inspect_text_head(path);
    }
    if path.extension().is_some_and(|e| HEAD_EXTENSIONS.iter().any(|known| e == *known)) {
        let head = Head::open(path)?;
        return Ok(json!({"file": path, "spec": head.spec(), "digest": head.digest(),
                         "card": head.card()}));
    }
    if !path.to_str().is_some_and(is_url) && !path.exists() {
        let path = path.display().to_string();
        return Err(Error::Missing { path, reason: "no such file".into() });
    }
    let file = InputFile::at(path, "file".to_owned(), None)?;
    let mut reader = RowReader::open(&file, &InputConfig::default())?;
    let schema = reader.schema();
    let mut columns: Vec<Column> = schema.fields().iter().map(|_| Column::default()).collect();
    let mut rows = 0;
    while let Some(block) = reader.next_batch()? {
        rows += block.batch.num_rows();
        for (index, column) in columns.iter_mut().enumerate() {
            column.add(&block.batch, index);
        }
    }
    let described: serde_json::Map<String, Value> = schema
        .fields()
        .iter()
        .zip(columns)
        .map(|(field, column)| (field.name().clone(), column.describe(field.data_type())))
        .collect();
    Ok(json!({"file": path, "bytes": file.bytes, "rows": rows, "columns": described}))
}

/// Describes a fastText model, with its card where it has one.
fn inspect_text_head(path: &Path) -> Result<Value> {
    let (model, digest) = Model::read(path)?;
    Ok(json!({
        "file": path, "digest": digest, "dim": model.dim(), "words": model.num_words(),
        "buckets": model.num_buckets(), "word_ngrams": model.word_ngrams(),
        "labels": model.labels(),
        "card": FastTextHead::card_of(path, &digest)?,
    }))
}

/// Describes a run: status, settings digests and the cuts of every language.
pub fn inspect_run(context: Context<'_>) -> Result<Value> {
    let heads: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let mut thresholds: BTreeMap<&str, Value> = BTreeMap::new();
    for head in &heads {
        let path = context.run.path("thresholds").join(format!("{head}.json"));
        if let Some(report) = context.run.read_json(&path)? {
            thresholds.insert(head, report);
        }
    }
    Ok(json!({
        "run": context.run.root(),
        "encoder_digest": super::embed::encoder_digest(context.run)?,
        "status": super::status::status(context.run, &heads, context.worker)?,
        "thresholds": thresholds,
    }))
}

#[derive(Default)]
struct Column {
    nulls: usize,
    values: Vec<f64>,
    nans: usize,
}

impl Column {
    fn add(&mut self, batch: &RecordBatch, index: usize) {
        let array = batch.column(index);
        self.nulls += array.null_count();
        let values: Vec<f64> = match array.data_type() {
            DataType::Float32 => {
                array.as_primitive::<Float32Type>().iter().flatten().map(f64::from).collect()
            }
            DataType::Float64 => array.as_primitive::<Float64Type>().iter().flatten().collect(),
            _ => return,
        };
        self.nans += values.iter().filter(|v| v.is_nan()).count();
        self.values.extend(values.into_iter().filter(|v| !v.is_nan()));
    }

    fn describe(mut self, data_type: &DataType) -> Value {
        let mut description = json!({"type": data_type.to_string(), "nulls": self.nulls});
        if !self.values.is_empty() {
            self.values.sort_unstable_by(f64::total_cmp);
            let last = (self.values.len() - 1) as f64;
            let quantiles: serde_json::Map<String, Value> = QUANTILES
                .iter()
                .map(|q| (q.to_string(), json!(self.values[(q * last).round() as usize])))
                .collect();
            description["quantiles"] = Value::Object(quantiles);
            description["nans"] = json!(self.nans);
        }
        description
    }
}
