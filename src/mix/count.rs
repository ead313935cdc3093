//! Token counts of documents, stored by their file's content, so that nothing is counted twice.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rayon::prelude::*;

use super::config::{MixConfig, TokenCount};
use super::copies::parse_whole;
use polysift_base::error::{Error, Result};
use polysift_base::hub::{HubSettings, is_repository_id};
use polysift_base::io::read;
use polysift_base::progress::{Progress, Stop};
use polysift_base::sample::hash_of;
use polysift_config::{DEFAULT_ZSTD_LEVEL, EncoderConfig, InputConfig, LARGEST_DOCUMENT_BYTES};
use polysift_data::export::{ExportWriter, WriterOptions};
use polysift_data::input::{
    ColumnKind, ColumnRequest, Format, InputFile, JsonColumns, RowGroup, RowReader, dense,
    read_table,
};
use polysift_remote::{RepoType, Repository};
use polysift_tokenizer::Tokenizer;

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

pub(super) struct TokenCounter {
    count: CountMethod,
    text: String,
    input: InputConfig,
}

enum CountMethod {
    Tokenizer { tokenizer: Box<Tokenizer>, digest: String },
    Bytes,
    Column(String),
}

/// The counts of a file, and what else a mixture needs to know of it.
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

/// Returns how rows are read: with the text, if it is counted, and the id.
pub(super) fn input_config(config: &MixConfig) -> InputConfig {
    let is_column = matches!(config.count, Some(TokenCount::Column(_)));
    let text = if is_column { String::new() } else { config.text.clone() };
    let max_document_bytes = LARGEST_DOCUMENT_BYTES;
    InputConfig { text, id: config.id.clone(), max_document_bytes, ..InputConfig::default() }
}

impl TokenCounter {
    /// Makes the counter for `config`; its tokenizer is below `base` or downloaded from the hub.
    pub(super) fn load(config: &MixConfig, base: &Path, hub: &HubSettings) -> Result<Self> {
        let count = match (&config.count, &config.tokenizer) {
            (Some(TokenCount::Column(name)), _) => CountMethod::Column(name.clone()),
            (_, Some(name)) => {
                let path = find_tokenizer(name, base, hub)?;
                let json = read(&path)?;
                let encoder = EncoderConfig::default();
                let tokenizer = Box::new(Tokenizer::from_bytes(&json, &path, &encoder)?);
                let digest = blake3::hash(&json).to_hex().to_string();
                CountMethod::Tokenizer { tokenizer, digest }
            }
            _ => CountMethod::Bytes,
        };
        Ok(Self { count, text: config.text.clone(), input: input_config(config) })
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
        let parts = [fingerprint, &file.name, &format, &described, &self.text, &self.input.id];
        hash_of(parts.into_iter().chain(value)).to_hex().to_string()
    }

    /// Counts `file` and stores the counts under `key` in `folder`, with the column `value`.
    pub(super) fn count(
        &self,
        file: &InputFile,
        value: Option<&str>,
        (folder, key): (&Path, &str),
        (stop, progress): (&Stop, &dyn Progress),
    ) -> Result<()> {
        let schema = Arc::new(Schema::new(vec![
            Field::new("row", DataType::UInt64, false),
            Field::new("id", DataType::Utf8, false),
            Field::new("tokens", DataType::UInt32, false),
            Field::new("value", DataType::Utf8, true),
        ]));
        let options = writer_options(ROW_GROUP_BYTES);
        let writer = ExportWriter::create(&folder.join(key), &schema, &options)?;
        let mut writer =
            CountWriter { counter: self, writer, schema, documents: Vec::new(), text_bytes: 0 };
        let (mut failure, mut read_bytes) = (None, 0);
        let table = read_table(file, &self.columns_to_read(file, value), None, stop, &mut |row| {
            if failure.is_some() {
                return Ok(());
            }
            let text = row.text(&self.text);
            read_bytes += text.map_or(0, str::len) as u64;
            let (tokens, text) = match (&self.count, text) {
                (CountMethod::Column(column), _) => {
                    let tokens = row.required_text(column)?;
                    let number = parse_whole(tokens).and_then(|tokens| u32::try_from(tokens).ok());
                    let wrong = || format!("`{column}` is {tokens}, not a number of tokens");
                    (number.ok_or_else(wrong)?, "")
                }
                // A row without the text that is counted is no document.
                (_, None) => return Ok(()),
                (CountMethod::Bytes, Some(text)) => (text.len() as u32, ""),
                (CountMethod::Tokenizer { .. }, Some(text)) => (0, text),
            };
            let id = row.text(&self.input.id).map(ToOwned::to_owned);
            let id = id.unwrap_or_else(|| format!("{}/{}", file.name, row.row));
            let value = value.and_then(|value| row.text(value)).map(ToOwned::to_owned);
            let document = Counted { row: row.row, id, tokens, value, text: text.to_owned() };
            failure = writer.push(document, progress).err();
            Ok(())
        });
        failure.map_or(Ok(()), Err)?;
        let (num_rows, _) = table?;
        writer.flush(progress)?;
        writer.writer.finish()?;
        let decoded = |groups: Vec<RowGroup>| {
            groups.iter().map(|group| group.decoded_bytes).fold(0, u64::saturating_add)
        };
        let data_bytes = file.row_groups()?.map_or(read_bytes, decoded);
        let fields = match file.format {
            Format::JsonLines(_) => {
                let columns = JsonColumns::infer(file, &self.input)?;
                columns.check(file)?;
                columns.fields(&DataType::Null)
            }
            _ => RowReader::open(file, &self.input)?.schema.fields().clone(),
        };
        let facts = [(DATA_BYTES, data_bytes), (NUM_ROWS, num_rows)];
        let facts = facts.map(|(key, number)| (key.to_owned(), number.to_string()));
        let schema = Schema::new_with_metadata(fields, facts);
        // This file is written last and marks the counts as complete.
        let columns = columns_file(folder, key).with_extension("");
        ExportWriter::create(&columns, &schema, &options)?.finish().map(drop)
    }

    /// Returns the columns to read. Only Parquet tells the size of a file without its text.
    fn columns_to_read(&self, file: &InputFile, value: Option<&str>) -> Vec<ColumnRequest> {
        let tokens = match &self.count {
            CountMethod::Column(name) => Some(name.as_str()),
            CountMethod::Tokenizer { .. } | CountMethod::Bytes => None,
        };
        let mut columns = vec![ColumnRequest::new(&self.input.id, ColumnKind::Id, false)];
        if tokens.is_none() || file.format != Format::Parquet {
            columns.push(ColumnRequest::new(&self.text, ColumnKind::Text, tokens.is_none()));
        }
        let others = tokens.into_iter().chain(value);
        columns.extend(others.map(|name| ColumnRequest::new(name, ColumnKind::Scalar, true)));
        columns
    }
}

impl CountedFile {
    /// Opens the complete counts under `key`, but reads no document yet.
    pub(crate) fn open(folder: &Path, key: &str) -> Result<Self> {
        let open = |path: &Path| InputFile::at(path, key.to_owned(), None);
        let columns = columns_file(folder, key);
        let schema = dense(&RowReader::open(&open(&columns)?, &InputConfig::default())?.schema);
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
            let Some((rows, ids, tokens, values)) = typed_columns(&batch.batch) else {
                let reason = "does not have the columns of counts, or not in their types";
                return Err(Error::corrupt(&self.counts.path, reason));
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

type CountColumns<'a> = (&'a UInt64Array, &'a StringArray, &'a UInt32Array, &'a StringArray);

/// Returns the columns of counts in their types; `None` if the file has others.
fn typed_columns(batch: &RecordBatch) -> Option<CountColumns<'_>> {
    let [rows, ids, tokens, values] = batch.columns() else { return None };
    let (rows, ids) = (rows.as_primitive_opt()?, ids.as_string_opt()?);
    Some((rows, ids, tokens.as_primitive_opt()?, values.as_string_opt()?))
}

struct Counted {
    row: u64,
    id: String,
    tokens: u32,
    value: Option<String>,
    /// The text if a tokenizer is to count its tokens, else nothing.
    text: String,
}

struct CountWriter<'a> {
    counter: &'a TokenCounter,
    writer: ExportWriter,
    schema: SchemaRef,
    documents: Vec<Counted>,
    text_bytes: usize,
}

impl CountWriter<'_> {
    /// Adds a document, and writes the collected ones if there are enough.
    fn push(&mut self, document: Counted, progress: &dyn Progress) -> Result<()> {
        self.text_bytes += document.text.len();
        self.documents.push(document);
        let is_full = self.text_bytes >= BATCH_BYTES || self.documents.len() >= BATCH_DOCUMENTS;
        if is_full { self.flush(progress) } else { Ok(()) }
    }

    /// Tokenizes the texts of the collected documents, if need be, and writes their counts.
    fn flush(&mut self, progress: &dyn Progress) -> Result<()> {
        let mut documents = std::mem::take(&mut self.documents);
        self.text_bytes = 0;
        if let CountMethod::Tokenizer { tokenizer, .. } = &self.counter.count {
            documents.par_iter_mut().try_for_each(|document| {
                document.tokens = tokenizer.tokenize(&document.text)?.num_tokens as u32;
                Ok::<_, Error>(())
            })?;
        }
        let all = || documents.iter();
        progress.advance(documents.len() as u64, all().map(|one| u64::from(one.tokens)).sum());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt64Array::from_iter_values(all().map(|one| one.row))),
            Arc::new(StringArray::from_iter_values(all().map(|one| &one.id))),
            Arc::new(UInt32Array::from_iter_values(all().map(|one| one.tokens))),
            Arc::new(all().map(|one| one.value.as_deref()).collect::<StringArray>()),
        ];
        let batch = RecordBatch::try_new(self.schema.clone(), columns);
        self.writer.write(&batch.map_err(|e| Error::shape("count", e.to_string()))?)
    }
}

pub(super) fn writer_options(row_group_bytes: u64) -> WriterOptions {
    let (zstd, max_file_bytes, metadata) = (DEFAULT_ZSTD_LEVEL, None, Vec::new());
    WriterOptions { zstd, row_group_bytes, max_file_bytes, metadata }
}

/// Returns the path of the file that marks the counts under `key` as complete.
pub(super) fn columns_file(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}-columns.parquet"))
}

/// Returns the path of a tokenizer: a file or folder below `base`, else downloaded by its hub id.
fn find_tokenizer(name: &str, base: &Path, hub: &HubSettings) -> Result<PathBuf> {
    let local = base.join(name);
    if local.is_file() {
        return Ok(local);
    }
    if local.is_dir() {
        let path = local.join(TOKENIZER);
        let missing = || Error::model(&local, format!("has no {TOKENIZER}"));
        return path.is_file().then_some(path).ok_or_else(missing);
    }
    let is_json = Path::new(name).extension().is_some_and(|extension| extension == "json");
    if is_json || name.starts_with(['.', '/']) {
        return Err(Error::missing(&local, "no such tokenizer"));
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
    repository.get(TOKENIZER)?.ok_or_else(|| repository.missing_error(TOKENIZER))
}
