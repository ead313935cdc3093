//! The input as its users see it: discovery, both readers, labelled texts.

mod bad_input;
mod discovery;
mod json_lines;
mod labelled;
mod limits;
mod parquet;
mod ranges;

use std::io::Write;
use std::path::Path;

use polysift::config::InputConfig;
use polysift::input::{
    DocumentBatch, DocumentReader, InputFile, RowBatch, RowReader, dense, discover,
};
use polysift::{Error, Result};
use tempfile::TempDir;

use crate::util::root;

/// Result of a test.
type TestResult = std::result::Result<(), Box<dyn std::error::Error>>;

/// One file `name` of `bytes`, found as a user would name it.
fn file(name: &str, bytes: &[u8]) -> Result<(TempDir, InputFile)> {
    let directory = tempfile::tempdir().map_err(Error::io(Path::new(name), "create"))?;
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).map_err(Error::io(&path, "write"))?;
    let found = found(&path)?;
    Ok((directory, found))
}

/// The one input file at `path`.
fn found(path: &Path) -> Result<InputFile> {
    let pattern = path.to_string_lossy().into_owned();
    let files = discover(std::slice::from_ref(&pattern), Path::new("/"))?;
    files.into_iter().next().ok_or(Error::Missing { path: pattern, reason: "nothing".into() })
}

/// File of the goldens.
fn golden(name: &str) -> Result<InputFile> {
    found(&root().join("tests/golden/input").join(name))
}

/// A document of a batch.
#[derive(Debug, Clone, PartialEq)]
struct Document {
    row: u64,
    id: String,
    language: String,
    text: Option<String>,
    /// Of the text as it is stored, also where it is blank.
    num_bytes: u64,
    embeddings: Option<Vec<Vec<f32>>>,
}

/// The documents of a batch, whose columns agree.
fn each(batch: &DocumentBatch) -> Vec<Document> {
    let document = |i| {
        let text = batch.text(i).map(ToOwned::to_owned);
        assert_eq!(batch.get(i).num_bytes, text.as_ref().map_or(0, String::len) as u64);
        Document {
            row: batch.rows()[i],
            id: batch.get(i).id.to_owned(),
            language: batch.get(i).language.to_owned(),
            text,
            num_bytes: batch.stored_text(i).map_or(0, str::len) as u64,
            embeddings: batch.embeddings(i).map(|(num_chunks, values)| {
                let width = values.len().checked_div(num_chunks).unwrap_or(1);
                values.chunks(width).map(<[_]>::to_vec).collect()
            }),
        }
    };
    (0..batch.len()).map(document).collect()
}

/// What `reader` has left, in batches of at most `max_rows`.
fn rest(reader: &mut DocumentReader, max_rows: usize) -> Result<Vec<Document>> {
    let mut all = Vec::new();
    while let Some(batch) = reader.next_batch(max_rows)? {
        assert!((1..=max_rows).contains(&batch.len()));
        all.extend(each(&batch));
    }
    Ok(all)
}

fn documents(file: &InputFile, config: &InputConfig) -> Result<Vec<Document>> {
    rest(&mut DocumentReader::open(file, config)?, 3)
}

fn rows(file: &InputFile, config: &InputConfig) -> Result<Vec<RowBatch>> {
    let mut reader = RowReader::open(file, config)?;
    let mut all = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        assert_eq!(batch.rows.len(), batch.batch.num_rows());
        assert_eq!(batch.batch.schema().fields(), dense(&reader.schema).fields());
        all.push(batch);
    }
    Ok(all)
}

/// Message of the error that both readers must return.
fn failure(file: &InputFile, config: &InputConfig) -> String {
    let message = |error: Option<Error>| error.map_or_else(|| "no error".into(), |e| chain(&e));
    let of_documents = message(documents(file, config).err());
    let of_rows = message(rows(file, config).err());
    assert_eq!(of_documents, of_rows);
    of_documents
}

/// A message with its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn zst(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    zstd::encode_all(bytes, 3)
}
