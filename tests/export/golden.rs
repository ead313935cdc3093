//! Files that pyarrow wrote (`tests/golden/export.py`), exported and read back.

use std::path::{Path, PathBuf};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::json::WriterBuilder;
use arrow::json::writer::JsonArray;
use polysift::config::{EmbeddingDtype, Layout};
use polysift::export::{ExportColumns, ExportSpec};
use polysift::parts::embeddings_array;
use serde_json::Value;

use super::{StdError, TestResult, dense_rows, options, read, spec, write};
use crate::util::root;

/// Rows of a file as JSON, nulls written out.
fn json(batch: &RecordBatch) -> Result<Value, Box<dyn StdError>> {
    let mut text = Vec::new();
    let builder = WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, JsonArray>(&mut text);
    writer.write(batch)?;
    writer.finish()?;
    Ok(serde_json::from_slice(&text)?)
}

fn golden_file(name: &str) -> PathBuf {
    root().join("tests/golden/export").join(name)
}

fn golden(name: &str) -> Result<Value, Box<dyn StdError>> {
    let mut golden: Value = serde_json::from_slice(&std::fs::read(golden_file("expected.json"))?)?;
    Ok(golden[name].take())
}

/// Exports the golden file `name` with replaced embeddings and reads it back.
fn export_golden(name: &str, spec: &ExportSpec) -> Result<RecordBatch, Box<dyn StdError>> {
    let dir = tempfile::tempdir()?;
    let input = read(&golden_file(&format!("{name}.parquet")))?;
    let columns = ExportColumns::new(&input.schema(), spec, Path::new(name))?;
    let n = input.num_rows();
    let chunk_offsets: Vec<usize> = (0..=n).collect();
    let new = |dtype| embeddings_array(&chunk_offsets, &vec![0.5; n], 1, dtype);
    let new: Vec<ArrayRef> = spec.embeddings.into_iter().map(new).collect::<Result<_, _>>()?;
    let rows = columns.assemble(&dense_rows(&input)?, &new, None)?;
    read(&write(&dir.path().join("x"), &rows, &[2], &options())?[0].path)
}

#[test]
fn golden_the_published_layout_passes_through() -> TestResult {
    let read = export_golden("fineweb2_hq", &spec())?;
    assert_eq!(json(&read)?, golden("fineweb2_hq")?);
    // Its `huggingface` describes no column, and so does not describe ours.
    let mut keys: Vec<_> = read.schema().metadata().keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["pandas", "polysift"]);
    Ok(())
}

#[test]
fn golden_replaced_embeddings_take_the_place_of_the_old() -> TestResult {
    let dtype = Some(EmbeddingDtype::F32);
    let spec = ExportSpec { embeddings: dtype, replace_embeddings: true, ..spec() };
    let read = json(&export_golden("fineweb2_hq", &spec)?)?;
    let mut expected = golden("fineweb2_hq")?;
    for row in expected.as_array_mut().into_iter().flatten() {
        row["embeddings"] = serde_json::json!([[0.5]]);
    }
    // Text, not values: the order of the columns counts as well.
    assert_eq!(read.to_string(), expected.to_string());
    Ok(())
}

#[test]
fn golden_the_nested_layout_opens_and_closes() -> TestResult {
    let flat = json(&export_golden("datatrove", &spec())?)?;
    let nested = ExportSpec { layout: Layout::Nested, ..spec() };
    let nested = json(&export_golden("datatrove", &nested)?)?;
    let mut expected = golden("datatrove")?;
    let names = expected[0]["metadata"].as_object().ok_or("no object")?.clone();
    for (i, row) in expected.as_array_mut().into_iter().flatten().enumerate() {
        if row["metadata"].is_null() {
            // A null struct becomes a struct of nulls.
            row["metadata"] = names.keys().map(|name| (name.clone(), Value::Null)).collect();
        }
        for name in names.keys() {
            assert_eq!(flat[i][name], row["metadata"][name], "row {i}, {name}");
        }
    }
    assert_eq!(nested.to_string(), expected.to_string());
    Ok(())
}
