//! Describes files, heads and runs, for people and scripts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::status::status;
use polysift_base::error::{Error, Result};
use polysift_base::io::is_url;
use polysift_base::progress::Stop;
use polysift_corpus::Context;
use polysift_corpus::model::encoder_digest;
use polysift_corpus::select::selections;
use polysift_data::input::{InputFile, MIXTURE, discover, open_rows};
use polysift_fasttext::{FastTextModel, is_model};
use polysift_heads::head::{FastTextHead, HEAD_EXTENSIONS, Head};
use polysift_runs::run::RunDir;

const QUANTILES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];

/// Returns the files that `paths` name. Directories and URLs are replaced by their data files, runs
/// are not.
pub fn expand_paths(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let is_url = path.to_str().is_some_and(is_url);
        if !is_url && (!path.is_dir() || RunDir::open(path).is_ok()) {
            files.push(path.clone());
            continue;
        }
        let pattern = path.to_str().ok_or_else(|| {
            Error::config(path.display().to_string(), "is not UTF-8; name its files one by one")
        })?;
        // A mixture has a file with its description beside its parts.
        let is_mixture = path.join(MIXTURE).is_file();
        let pattern = if is_mixture { format!("{pattern}/part-*") } else { pattern.to_owned() };
        let found = discover(&[pattern], Path::new("."))?;
        // Paths start with the directory as typed, not with an absolute path.
        let root = std::path::absolute(path).map_err(Error::io(path, "resolve"))?;
        let typed = |file: InputFile| match file.path.strip_prefix(&root) {
            Ok(below) => path.join(below),
            Err(_) => file.path,
        };
        files.extend(found.into_iter().map(typed));
    }
    Ok(files)
}

/// Totals of several files: by column the types, nulls and NaNs.
#[derive(Default, Serialize)]
pub struct Total {
    files: u64,
    bytes: u64,
    rows: u64,
    columns: Map<String, Value>,
}

impl Total {
    /// Adds a file as described by [`inspect_file`]; heads have no rows to add.
    pub fn add(&mut self, file: &Value) {
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        self.files += 1;
        self.bytes += count(&file["bytes"]);
        self.rows += count(&file["rows"]);
        for (name, column) in file["columns"].as_object().into_iter().flatten() {
            let total = self.columns.entry(name).or_insert_with(|| json!({"type": "", "nulls": 0}));
            let known = total["type"].as_str().unwrap_or_default();
            let types = known.split(" | ").chain(column["type"].as_str());
            let types: BTreeSet<&str> = types.filter(|name| !name.is_empty()).collect();
            total["type"] = types.into_iter().collect::<Vec<_>>().join(" | ").into();
            for counted in ["nulls", "nans"].into_iter().filter(|key| column.get(key).is_some()) {
                total[counted] = (count(&total[counted]) + count(&column[counted])).into();
            }
        }
    }
}

/// Describes a data file (schema, rows, nulls, quantiles of score columns) or a head.
pub fn inspect_file(path: &Path, stop: &Stop) -> Result<Value> {
    if path.is_file() && is_model(path)? {
        let (model, digest) = FastTextModel::read(path)?;
        return Ok(json!({
            "file": path.to_string_lossy(), "digest": digest, "dim": model.settings.dim,
            "words": model.dictionary.num_words, "buckets": model.settings.buckets,
            "word_ngrams": model.settings.word_ngrams, "labels": model.labels(),
            "card": FastTextHead::read_matching_card(path, &digest)?,
        }));
    }
    if path.extension().is_some_and(|e| HEAD_EXTENSIONS.iter().any(|known| e == *known)) {
        let head = Head::open(path)?;
        let (spec, file) = (&head.card.spec, path.to_string_lossy());
        return Ok(json!({"file": file, "spec": spec, "digest": head.digest, "card": head.card}));
    }
    let (file, mut reader) = open_rows(path)?;
    let schema = reader.schema.clone();
    let mut columns: Vec<Column> = schema.fields().iter().map(|_| Column::default()).collect();
    let mut rows = 0;
    while let Some(block) = reader.next_batch()? {
        stop.check()?;
        rows += block.batch.num_rows();
        for (index, column) in columns.iter_mut().enumerate() {
            column.add(&block.batch, index);
        }
    }
    let described = schema.fields().iter().zip(columns);
    let described: Map<String, Value> = described
        .map(|(field, column)| (field.name().clone(), column.describe(field.data_type())))
        .collect();
    Ok(
        json!({"file": file.path.to_string_lossy(), "bytes": file.bytes, "rows": rows, "columns": described}),
    )
}

/// Describes a run: its status, encoder digest and the thresholds of every language.
pub fn inspect_run(context: Context<'_>) -> Result<Value> {
    Ok(json!({
        "run": context.run.root().to_string_lossy(),
        "encoder_digest": encoder_digest(context.run)?,
        "status": status(context)?,
        "thresholds": selections(context.run)?,
    }))
}

#[derive(Default)]
struct Column {
    nulls: usize,
    values: Vec<f64>,
    nans: usize,
}

impl Column {
    /// Counts the column `index` of `batch`; only floats have values.
    fn add(&mut self, batch: &RecordBatch, index: usize) {
        let array = batch.column(index);
        self.nulls += array.logical_null_count();
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

    /// Describes type and nulls; NaNs and quantiles (nearest rank) only if there are values.
    fn describe(mut self, data_type: &DataType) -> Value {
        let mut description = json!({"type": data_type.to_string(), "nulls": self.nulls});
        if self.nans > 0 {
            description["nans"] = json!(self.nans);
        }
        if !self.values.is_empty() {
            self.values.sort_unstable_by(f64::total_cmp);
            let last = (self.values.len() - 1) as f64;
            let quantile = |q: &f64| (q.to_string(), self.values[(q * last).round() as usize]);
            description["quantiles"] = QUANTILES.iter().map(quantile).collect();
            description["nans"] = json!(self.nans);
        }
        description
    }
}
