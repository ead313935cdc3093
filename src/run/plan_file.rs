//! The plan as a Parquet file, so that any tool can look at 100,000 shards. The file's metadata hold the
//! settings that it was made of.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, UInt64Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::plan::{Plan, Shard};
use crate::error::{Error, Result};

/// The columns, in order: name, type, whether it may be null.
const COLUMNS: [(&str, DataType, bool); 9] = [
    ("shard", DataType::Utf8, false),
    ("file", DataType::Utf8, false),
    ("language", DataType::Utf8, true),
    ("num_bytes", DataType::UInt64, false),
    ("num_rows", DataType::UInt64, true),
    ("first_row", DataType::UInt64, true),
    ("end_row", DataType::UInt64, true),
    ("fingerprint", DataType::Utf8, false),
    // Place among all shards, largest first: the order in which they are done.
    ("by_size", DataType::UInt64, false),
];

/// Key of the settings among the file's metadata.
const SETTINGS: &str = "polysift.input";

/// The bytes of the file `path` of `plan`.
pub(super) fn to_bytes(path: &Path, plan: &Plan) -> Result<Vec<u8>> {
    let shards = &plan.shards;
    let mut ranks = vec![0; shards.len()];
    for (rank, place) in plan.by_size().into_iter().enumerate() {
        ranks[place] = rank as u64;
    }
    let text = |of: &dyn Fn(&Shard) -> Option<String>| -> ArrayRef {
        Arc::new(shards.iter().map(of).collect::<StringArray>())
    };
    let number = |of: &dyn Fn(&Shard) -> Option<u64>| -> ArrayRef {
        Arc::new(shards.iter().map(of).collect::<UInt64Array>())
    };
    let arrays = vec![
        text(&|s| Some(s.name.clone())),
        text(&|s| Some(s.file.to_string_lossy().into_owned())),
        text(&|s| s.language.clone()),
        number(&|s| Some(s.bytes)),
        number(&|s| s.num_rows),
        number(&|s| s.rows.as_ref().map(|rows| rows.start)),
        number(&|s| s.rows.as_ref().map(|rows| rows.end)),
        text(&|s| Some(s.fingerprint.clone())),
        Arc::new(UInt64Array::from(ranks)),
    ];
    let fields = COLUMNS.map(|(name, kind, nullable)| Field::new(name, kind, nullable));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let failed = |e: &dyn std::fmt::Display| Error::write(path, e.to_string());
    let level = ZstdLevel::try_new(3).map_err(|e| failed(&e))?;
    let settings = KeyValue::new(SETTINGS.to_owned(), plan.settings.to_string());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_key_value_metadata(Some(vec![settings]))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), Some(properties))
        .map_err(|e| failed(&e))?;
    let batch = RecordBatch::try_new(schema, arrays).map_err(|e| failed(&e))?;
    writer.write(&batch).map_err(|e| failed(&e))?;
    writer.into_inner().map_err(|e| failed(&e))
}

/// Reads the file `path`.
pub(super) fn read(path: &Path) -> Result<Plan> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let damaged = |e: parquet::errors::ParquetError| Error::decode(path, "a plan", e);
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(damaged)?;
    let metadata = reader.metadata().file_metadata().key_value_metadata();
    let settings = metadata.into_iter().flatten().find(|pair| pair.key == SETTINGS);
    let settings = settings.and_then(|pair| serde_json::from_str(pair.value.as_deref()?).ok());
    let mut plan = Plan { settings: settings.unwrap_or_default(), ..Plan::default() };
    for batch in reader.build().map_err(damaged)? {
        let batch = batch.map_err(|e| Error::decode(path, "a plan", e))?;
        append(&mut plan, &batch, path)?;
    }
    Ok(plan)
}

fn append(plan: &mut Plan, batch: &RecordBatch, path: &Path) -> Result<()> {
    let column = |name: &str| {
        batch.column_by_name(name).ok_or_else(|| Error::schema(path, name, "is missing"))
    };
    let texts = |name: &str| {
        let array = column(name)?.as_string_opt::<i32>();
        array.ok_or_else(|| Error::schema(path, name, "is not of texts"))
    };
    let numbers = |name: &str| {
        let array = column(name)?.as_primitive_opt::<UInt64Type>();
        array.ok_or_else(|| Error::schema(path, name, "is not of numbers"))
    };
    let (names, files, languages) = (texts("shard")?, texts("file")?, texts("language")?);
    let (bytes, num_rows) = (numbers("num_bytes")?, numbers("num_rows")?);
    let (starts, ends) = (numbers("first_row")?, numbers("end_row")?);
    let fingerprints = texts("fingerprint")?;
    let number = |array: &UInt64Array, i: usize| array.is_valid(i).then(|| array.value(i));
    for i in 0..batch.num_rows() {
        plan.shards.push(Shard {
            name: names.value(i).to_owned(),
            file: files.value(i).into(),
            language: languages.is_valid(i).then(|| languages.value(i).to_owned()),
            bytes: bytes.value(i),
            rows: number(starts, i).zip(number(ends, i)).map(|(start, end)| start..end),
            num_rows: number(num_rows, i),
            fingerprint: fingerprints.value(i).to_owned(),
        });
    }
    Ok(())
}
