//! A corpus of made-up documents: random paragraphs of real texts, with the lengths of web documents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::workload::normal;

/// Documents of one file.
const FILE_DOCUMENTS: usize = 25_000;
/// Lengths in bytes are log-normal: a mean of about 3,800.
const MEDIAN_BYTES: f64 = 2000.0;
const SIGMA: f64 = 1.1;
const MAX_BYTES: f64 = 60_000.0;

/// Draws documents, the same ones every time.
pub(crate) struct Documents {
    /// Paragraphs of each language; a document is in one.
    languages: Vec<Vec<String>>,
    rng: ChaCha8Rng,
}

impl Documents {
    /// Takes the paragraphs of the Parquet files below `folder`, a language each.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let mut languages = Vec::new();
        for path in parquet_files(folder)? {
            let texts = read_texts(&path)?;
            let paragraphs =
                texts.iter().flat_map(|text| text.lines()).filter(|p| !p.trim().is_empty());
            languages.push(paragraphs.map(str::to_owned).collect::<Vec<_>>());
        }
        languages.retain(|paragraphs| !paragraphs.is_empty());
        ensure!(!languages.is_empty(), "{} has no texts", folder.display());
        Ok(Self { languages, rng: ChaCha8Rng::seed_from_u64(4) })
    }

    /// The next `count` documents.
    pub(crate) fn draw(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.draw_one()).collect()
    }

    fn draw_one(&mut self) -> String {
        let rng = &mut self.rng;
        let paragraphs = &self.languages[rng.random_range(0..self.languages.len())];
        let wanted = (MEDIAN_BYTES * (SIGMA * normal(rng)).exp()).min(MAX_BYTES) as usize;
        let mut document = String::new();
        while document.len() < wanted {
            document.push_str(&paragraphs[rng.random_range(0..paragraphs.len())]);
            document.push('\n');
        }
        document
    }
}

/// Writes a corpus of `count` documents into the new `folder`.
pub(crate) fn write_corpus(texts: &Path, count: usize, folder: &Path) -> Result<()> {
    let mut documents = Documents::of(texts)?;
    let unfinished = folder.with_extension("tmp");
    for first in (0..count).step_by(FILE_DOCUMENTS) {
        let part = documents.draw(FILE_DOCUMENTS.min(count - first));
        write_documents(&unfinished, first, &part)?;
    }
    Ok(std::fs::rename(unfinished, folder)?)
}

/// Writes `folder/NNNNNNN.parquet` with the columns `id` and `text`.
pub(crate) fn write_documents(folder: &Path, first: usize, texts: &[String]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let ids = (first..first + texts.len()).map(|i| Some(i.to_string()));
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(ids.collect::<StringArray>())),
        ("text", Arc::new(StringArray::from(texts.to_vec()))),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let file = std::fs::File::create(folder.join(format!("{first:07}.parquet")))?;
    let zstd = Compression::ZSTD(ZstdLevel::try_new(3)?);
    let properties = WriterProperties::builder().set_compression(zstd).build();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.close()?;
    Ok(())
}

/// The Parquet files below `folder`, by name.
pub(crate) fn parquet_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "parquet") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn read_texts(path: &Path) -> Result<Vec<String>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path)?)?;
    let mut texts = Vec::new();
    for batch in builder.build()? {
        let batch = batch?;
        let column = batch.column_by_name("text").context("no column `text`")?;
        let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8)?;
        texts.extend(column.as_string::<i32>().iter().flatten().map(str::to_owned));
    }
    Ok(texts)
}
