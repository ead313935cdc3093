//! Token counts of documents, stored by their file's content, so that nothing is counted twice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rayon::prelude::*;

use super::copies::whole_number;
use polysift_base::error::{Error, Result};
use polysift_base::hub::{HubSettings, is_repository_id};
use polysift_base::io::read;
use polysift_base::progress::{Progress, Stop};
use polysift_config::{DEFAULT_ZSTD_LEVEL, EncoderConfig, InputConfig, MixConfig, TokenCount};
use polysift_data::export::{ExportWriter, WriterOptions};
use polysift_data::input::{ColumnKind, ColumnRequest, Format, InputFile, RowReader, read_table};
use polysift_remote::{RepoType, Repository};
use polysift_tokenizer::Tokenizer;

/// Name of a tokenizer's file in a directory or a repository.
const TOKENIZER: &str = "tokenizer.json";
/// Number of text bytes that are tokenized together.
const BATCH_BYTES: usize = 4 << 20;
/// Number of documents that are written together.
const BATCH_DOCUMENTS: usize = 4096;
/// Uncompressed bytes of a row group of the counts.
const ROW_GROUP_BYTES: u64 = 16 << 20;
/// Key in the metadata of the schema for the bytes of all columns.
const DATA_BYTES: &str = "data_bytes";
/// Key for the number of rows, including those without text.
const NUM_ROWS: &str = "num_rows";

/// Method of counting tokens, with the columns that it uses.
pub(super) struct TokenCounter {
    count: CountMethod,
    text: String,
    id: String,
}

enum CountMethod {
    Tokenizer { tokenizer: Box<Tokenizer>, digest: String },
    Bytes,
    Column(String),
}

#[derive(Debug, Clone)]
pub(super) struct CountedFile {
    /// Documents with their tokens.
    counts: InputFile,
    pub(super) schema: SchemaRef,
    /// Approximate number of bytes in the columns.
    pub(super) data_bytes: u64,
    /// Number of rows, including those without text.
    pub(super) num_rows: u64,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CountedRow<'a> {
    pub row: u64,
    pub id: &'a str,
    pub(super) tokens: u32,
    /// Value of the additional column.
    pub value: Option<&'a str>,
}

impl TokenCounter {
    /// Makes the counter for `config`; its files are below `base`.
    ///
    /// # Errors
    /// [`Error::Config`] for a wrong tokenizer; [`Error::Model`], [`Error::Service`],
    /// [`Error::Io`].
    pub(super) fn load(config: &MixConfig, base: &Path, hub: &HubSettings) -> Result<Self> {
        let count = match (&config.count, &config.tokenizer) {
            (Some(TokenCount::Column(name)), _) => CountMethod::Column(name.clone()),
            (_, Some(name)) => {
                let path = tokenizer_path(name, base, hub)?;
                let json = read(&path)?;
                let encoder = EncoderConfig::default();
                let tokenizer = Box::new(Tokenizer::from_bytes(&json, &path, &encoder)?);
                let digest = blake3::hash(&json).to_hex().to_string();
                CountMethod::Tokenizer { tokenizer, digest }
            }
            _ => CountMethod::Bytes,
        };
        Ok(Self { count, text: config.text.clone(), id: config.id.clone() })
    }

    /// Describes the method of counting; different methods have different descriptions.
    pub(super) fn describe(&self) -> String {
        match &self.count {
            CountMethod::Tokenizer { digest, .. } => format!("tokenizer {digest}"),
            CountMethod::Bytes => "bytes".to_owned(),
            CountMethod::Column(name) => format!("column:{name}"),
        }
    }

    /// Returns a key for the counts of a file with `fingerprint`; equal content has an equal key.
    pub(super) fn key(&self, file: &InputFile, fingerprint: &str, value: Option<&str>) -> String {
        let (format, described) = (format!("{:?}", file.format), self.describe());
        let parts = [fingerprint, &file.name, &format, &described, &self.text, &self.id];
        let mut hasher = blake3::Hasher::new();
        for part in parts.into_iter().chain(value) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// Counts `file` and stores the counts under `key` in `folder`, with the column `value`.
    ///
    /// # Errors
    /// The errors of [`read_table`]; [`Error::Model`] if the tokenizer refuses a text.
    pub(super) fn count(
        &self,
        file: &InputFile,
        value: Option<&str>,
        (folder, key): (&Path, &str),
        (stop, progress): (&Stop, &dyn Progress),
    ) -> Result<()> {
        let (mut requests, text_bytes) = (Vec::new(), file.format != Format::Parquet);
        if self.needs_text() || text_bytes {
            let kind = ColumnKind::Text;
            requests.push(ColumnRequest::new(&self.text, kind, self.needs_text()));
        }
        requests.push(ColumnRequest::new(&self.id, ColumnKind::Id, false));
        let tokens = match &self.count {
            CountMethod::Column(name) => Some(name.as_str()),
            _ => None,
        };
        let others = tokens.into_iter().chain(value);
        requests.extend(others.map(|name| ColumnRequest::new(name, ColumnKind::Scalar, true)));
        let mut writer = CountWriter::create(self, &folder.join(key))?;
        let (mut failure, mut read_bytes) = (None, 0);
        let table = read_table(file, &requests, None, stop, &mut |row| {
            if failure.is_some() {
                return Ok(());
            }
            let text = row.text(&self.text);
            read_bytes += text.map_or(0, str::len) as u64;
            if self.needs_text() && text.is_none() {
                return Ok(());
            }
            let tokens = tokens.map_or(Ok(0), |column| {
                let tokens = row.required_text(column)?;
                let number = whole_number(tokens).and_then(|tokens| u32::try_from(tokens).ok());
                number.ok_or_else(|| format!("`{column}` is {tokens}, not a number of tokens"))
            })?;
            let id = row.text(&self.id).map(ToOwned::to_owned);
            writer.rows.push(row.row);
            writer.ids.push(id.unwrap_or_else(|| format!("{}/{}", file.name, row.row)));
            writer.tokens.push(tokens);
            writer.values.push(value.and_then(|value| row.text(value)).map(ToOwned::to_owned));
            if self.needs_text() {
                writer.push_text(text.unwrap_or_default());
            }
            if writer.is_full() {
                failure = writer.flush(progress).err();
            }
            Ok(())
        });
        failure.map_or(Ok(()), Err)?;
        let num_rows = table?.rows;
        writer.finish(progress)?;
        let data_bytes = file.decoded_bytes()?.unwrap_or(read_bytes);
        let input = InputConfig { text: self.text.clone(), ..InputConfig::default() };
        let fields = RowReader::open(file, &input)?.schema().fields().clone();
        let facts = [(DATA_BYTES, data_bytes), (NUM_ROWS, num_rows)];
        let facts = facts.map(|(key, number)| (key.to_owned(), number.to_string()));
        let schema = Schema::new_with_metadata(fields, facts);
        // This file is written last and marks the counts as complete.
        let columns = columns_file(folder, key).with_extension("");
        ExportWriter::create(&columns, &schema, &options())?.finish().map(drop)
    }

    fn needs_text(&self) -> bool {
        !matches!(self.count, CountMethod::Column(_))
    }
}

impl CountedFile {
    /// Returns true if `folder` has counts under `key`.
    pub(super) fn is_in(folder: &Path, key: &str) -> bool {
        columns_file(folder, key).exists()
    }

    /// Opens the counts under `key` in `folder`.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and errors of reading.
    pub(crate) fn open(folder: &Path, key: &str) -> Result<Self> {
        let open = |path: &Path| InputFile::at(path, key.to_owned(), None);
        let columns = columns_file(folder, key);
        let schema = RowReader::open(&open(&columns)?, &InputConfig::default())?.schema();
        let fact = |key: &str| {
            let number = schema.metadata().get(key).and_then(|number| number.parse().ok());
            number.ok_or_else(|| Error::corrupt(&columns, format!("has no {key}")))
        };
        let (data_bytes, num_rows) = (fact(DATA_BYTES)?, fact(NUM_ROWS)?);
        let counts = open(&folder.join(format!("{key}.parquet")))?;
        Ok(Self { counts, schema, data_bytes, num_rows })
    }

    /// Calls `each` with the documents, in the order of the file.
    pub(super) fn for_each(
        &self,
        stop: &Stop,
        mut each: impl FnMut(CountedRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut reader = RowReader::open(&self.counts, &InputConfig::default())?;
        while let Some(batch) = reader.next_batch()? {
            stop.check()?;
            let [rows, ids, tokens, values] = batch.batch.columns() else {
                return Err(Error::corrupt(
                    &self.counts.path,
                    "does not have the columns of counts",
                ));
            };
            let (rows, tokens) =
                (rows.as_primitive_opt::<UInt64Type>(), tokens.as_primitive_opt::<UInt32Type>());
            let (ids, values) = (ids.as_string_opt::<i32>(), values.as_string_opt::<i32>());
            let (Some(rows), Some(ids), Some(tokens), Some(values)) = (rows, ids, tokens, values)
            else {
                return Err(Error::corrupt(&self.counts.path, "does not have the types of counts"));
            };
            for at in 0..rows.len() {
                let value = values.is_valid(at).then(|| values.value(at));
                let (row, id, tokens) = (rows.value(at), ids.value(at), tokens.value(at));
                each(CountedRow { row, id, tokens, value })?;
            }
        }
        Ok(())
    }
}

/// Buffers documents for the file of counts.
struct CountWriter<'a> {
    counter: &'a TokenCounter,
    writer: ExportWriter,
    schema: SchemaRef,
    rows: Vec<u64>,
    ids: Vec<String>,
    tokens: Vec<u32>,
    values: Vec<Option<String>>,
    /// Concatenated texts that are not counted yet, and the end of each.
    texts: String,
    ends: Vec<usize>,
}

impl<'a> CountWriter<'a> {
    fn create(counter: &'a TokenCounter, base: &Path) -> Result<Self> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("row", DataType::UInt64, false),
            Field::new("id", DataType::Utf8, false),
            Field::new("tokens", DataType::UInt32, false),
            Field::new("value", DataType::Utf8, true),
        ]));
        let writer = ExportWriter::create(base, &schema, &options())?;
        let (rows, ids, tokens, values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (texts, ends) = (String::new(), Vec::new());
        Ok(Self { counter, writer, schema, rows, ids, tokens, values, texts, ends })
    }

    fn push_text(&mut self, text: &str) {
        self.texts.push_str(text);
        self.ends.push(self.texts.len());
    }

    fn is_full(&self) -> bool {
        self.texts.len() >= BATCH_BYTES || self.rows.len() >= BATCH_DOCUMENTS
    }

    fn flush(&mut self, progress: &dyn Progress) -> Result<()> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let texts: Vec<&str> =
            starts.zip(&self.ends).map(|(start, &end)| &self.texts[start..end]).collect();
        let counted = match &self.counter.count {
            CountMethod::Column(_) => Ok(std::mem::take(&mut self.tokens)),
            CountMethod::Bytes => Ok(texts.iter().map(|text| text.len() as u32).collect()),
            CountMethod::Tokenizer { tokenizer, .. } => {
                let count = |text: &&str| Ok(tokenizer.tokenize(text)?.num_tokens as u32);
                texts.par_iter().map(count).collect::<Result<Vec<u32>>>()
            }
        }?;
        progress
            .advance(counted.len() as u64, counted.iter().map(|&tokens| u64::from(tokens)).sum());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from(std::mem::take(&mut self.rows))),
            Arc::new(StringArray::from(std::mem::take(&mut self.ids))),
            Arc::new(UInt32Array::from(counted)),
            Arc::new(StringArray::from(std::mem::take(&mut self.values))),
        ];
        self.texts.clear();
        self.ends.clear();
        self.tokens.clear();
        let batch = RecordBatch::try_new(self.schema.clone(), columns);
        self.writer.write(&batch.map_err(|e| Error::shape("count", e.to_string()))?)
    }

    fn finish(mut self, progress: &dyn Progress) -> Result<()> {
        self.flush(progress)?;
        self.writer.finish().map(drop)
    }
}

fn options() -> WriterOptions {
    WriterOptions {
        zstd: DEFAULT_ZSTD_LEVEL,
        row_group_bytes: ROW_GROUP_BYTES,
        max_file_bytes: None,
        metadata: Vec::new(),
    }
}

/// Returns the path of the file with the columns of the file counted under `key`.
fn columns_file(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}-columns.parquet"))
}

/// Finds the `tokenizer.json` called `name`.
fn tokenizer_path(name: &str, base: &Path, hub: &HubSettings) -> Result<PathBuf> {
    let local = base.join(name);
    if local.is_file() {
        return Ok(local);
    }
    if local.is_dir() {
        let path = local.join(TOKENIZER);
        let missing = || Error::model(&local, format!("has no {TOKENIZER}"));
        return path.is_file().then_some(path).ok_or_else(missing);
    }
    let (id, revision) = name.split_once('@').map_or((name, None), |(id, rev)| (id, Some(rev)));
    if !is_repository_id(id) || local.exists() {
        let reason = format!(
            "`{name}` is neither a file or a directory, nor an id of the hub such as \
             `mistralai/Mistral-Nemo-Base-2407`"
        );
        return Err(Error::config("tokenizer", reason));
    }
    let repository = Repository::new(RepoType::Model, id, revision, hub)?;
    repository.get(TOKENIZER)?.ok_or_else(|| repository.missing(TOKENIZER))
}
