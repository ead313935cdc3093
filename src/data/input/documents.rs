//! Documents: their columns, in batches that readers return, tokenizing and encoding pass on, and
//! part files hold; and the readers. They read the columns that embedding needs, with defaults for
//! missing ids and languages; other columns are not decoded (Parquet) or not kept (JSON lines).

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeListArray, StringArray, StringViewArray, UInt64Array};

use super::columns::{
    ColumnBatch, ColumnKind, ColumnReader, ColumnRequest, Reject, Rejects, string_at,
};
use super::csv::CsvReader;
use super::json_lines::JsonReader;
use super::parquet::ParquetReader;
use super::values::row_vectors;
use super::{Format, InputFile};
use polysift_base::error::Result;
use polysift_base::language::UNDETERMINED_LANGUAGE;
use polysift_config::{InputConfig, LanguageSource};

/// Name of the column of token counts, the only column of documents with nulls.
pub const NUM_TOKENS: &str = "num_tokens";
/// Names of the columns that identify a document in part files, in their order.
pub(crate) const DOCUMENT_COLUMNS: [&str; 5] = ["row", "id", "language", "num_bytes", NUM_TOKENS];

/// Identity and size of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentInfo<'a> {
    /// Row in the file, counted from 0. In JSON lines it is the line number less one: blank and
    /// malformed lines are not documents, but they are numbered.
    pub row: u64,
    /// Id column (integers as decimal text). If it is absent or null: `<shard name>/<row>`.
    pub id: &'a str,
    /// Language code as set by [`polysift_config::LanguageSource`]; `und` if unknown, and in what
    /// a reader returns if a model is to identify it.
    pub language: &'a str,
    /// UTF-8 bytes of the text; 0 for a document without text, even if it holds white space.
    pub num_bytes: u64,
    /// Content tokens of the text; `None` if they are not counted.
    pub num_tokens: Option<u64>,
}

/// Consecutive documents of a shard, column by column, in ascending order of their rows. The texts
/// and the embeddings of the input are present only between the reader and the tokenizer.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentBatch {
    pub(crate) rows: UInt64Array,
    pub(crate) ids: StringArray,
    /// The [`DocumentInfo::language`] of each document; a model may identify others.
    pub languages: StringArray,
    pub(crate) num_bytes: UInt64Array,
    /// All null if tokens are not counted; the other columns have no nulls.
    pub num_tokens: UInt64Array,
    /// Texts as stored, including blank ones; null where the input has none.
    pub(crate) texts: Option<StringViewArray>,
    /// Present if the settings name a column of embeddings.
    pub(crate) embeddings: Option<LargeListArray>,
}

impl DocumentBatch {
    /// Returns the names and values of the [`DOCUMENT_COLUMNS`].
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&'static str, ArrayRef)> {
        let columns: [ArrayRef; 5] = [
            Arc::new(self.rows.clone()),
            Arc::new(self.ids.clone()),
            Arc::new(self.languages.clone()),
            Arc::new(self.num_bytes.clone()),
            Arc::new(self.num_tokens.clone()),
        ];
        DOCUMENT_COLUMNS.into_iter().zip(columns)
    }

    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no documents.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns document `i`. This and the methods below panic if there is none.
    pub fn get(&self, i: usize) -> DocumentInfo<'_> {
        let (row, num_bytes) = (self.rows.value(i), self.num_bytes.value(i));
        let num_tokens = self.num_tokens.is_valid(i).then(|| self.num_tokens.value(i));
        let (id, language) = (self.ids.value(i), self.languages.value(i));
        DocumentInfo { row, id, language, num_bytes, num_tokens }
    }

    /// Iterates over all documents.
    pub fn iter(&self) -> impl Iterator<Item = DocumentInfo<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Returns the [`DocumentInfo::row`] of each document, ascending.
    pub fn rows(&self) -> &[u64] {
        self.rows.values()
    }

    /// Returns the text of document `i`; `None` if it is null, empty or only white space.
    pub fn text(&self, i: usize) -> Option<&str> {
        if self.num_bytes.value(i) == 0 { None } else { self.stored_text(i) }
    }

    /// Returns the text of document `i` as stored, even if it is only white space; `None` for null.
    pub fn stored_text(&self, i: usize) -> Option<&str> {
        string_at(self.texts.as_ref()?, i)
    }

    /// Iterates over the indices and texts of the documents with text.
    pub fn texts(&self) -> impl Iterator<Item = (usize, &str)> {
        (0..self.len()).filter_map(|i| Some((i, self.text(i)?)))
    }

    /// Returns the number of chunks of document `i` and their vectors `[num_chunks, D]`, if the
    /// settings name a column of embeddings and the row has them. `D` is constant within a file.
    pub fn embeddings(&self, i: usize) -> Option<(usize, &[f32])> {
        row_vectors(self.embeddings.as_ref()?, i)
    }

    /// Returns the bytes that the documents use in memory, including the texts and embeddings.
    pub fn memory(&self) -> usize {
        let columns = self.columns().map(|(_, column)| column.get_array_memory_size());
        let texts = self.texts.iter().flat_map(StringViewArray::lengths).map(|len| len as usize);
        let vectors = (0..self.len()).filter_map(|i| Some(size_of_val(self.embeddings(i)?.1)));
        columns.chain(texts).chain(vectors).sum()
    }

    /// Frees the texts and embeddings of the input, which use most of the batch's memory.
    pub fn drop_texts(&mut self) {
        self.texts = None;
        self.embeddings = None;
    }
}

impl Default for DocumentBatch {
    fn default() -> Self {
        DocumentBuilder::default().finish()
    }
}

impl<'a> FromIterator<DocumentInfo<'a>> for DocumentBatch {
    fn from_iter<I: IntoIterator<Item = DocumentInfo<'a>>>(documents: I) -> Self {
        let mut builder = DocumentBuilder::default();
        documents.into_iter().for_each(|document| builder.push(&document));
        builder.finish()
    }
}

/// Builds a [`DocumentBatch`] without texts.
#[derive(Debug, Default)]
pub struct DocumentBuilder {
    rows: UInt64Builder,
    ids: StringBuilder,
    languages: StringBuilder,
    num_bytes: UInt64Builder,
    num_tokens: UInt64Builder,
}

impl DocumentBuilder {
    /// Appends a document.
    pub fn push(&mut self, document: &DocumentInfo<'_>) {
        self.rows.append_value(document.row);
        self.ids.append_value(document.id);
        self.languages.append_value(document.language);
        self.num_bytes.append_value(document.num_bytes);
        self.num_tokens.append_option(document.num_tokens);
    }

    /// Returns the documents appended since the last call.
    pub fn finish(&mut self) -> DocumentBatch {
        let (rows, num_bytes) = (self.rows.finish(), self.num_bytes.finish());
        let (ids, languages) = (self.ids.finish(), self.languages.finish());
        let num_tokens = self.num_tokens.finish();
        DocumentBatch { rows, ids, languages, num_bytes, num_tokens, texts: None, embeddings: None }
    }
}

/// Reads the documents of one file in order.
pub struct DocumentReader {
    reader: Box<dyn ColumnReader>,
    columns: DocumentRequest,
}

impl DocumentReader {
    /// Opens `file` and finds its columns.
    ///
    /// A name is looked up among the columns, then as a dotted path into structs, then in a struct
    /// `metadata`. In JSON lines, a key that a line lacks is null there.
    ///
    /// # Errors
    /// [`polysift_base::Error::Schema`] if a column is missing or of a wrong type (in JSON lines:
    /// if none of the first 1000 objects has it, found while reading).
    pub fn open(file: &InputFile, config: &InputConfig) -> Result<Self> {
        let columns = DocumentRequest::new(file, config);
        let reader = columns.open(file, config)?;
        Ok(Self { reader, columns })
    }

    /// Skips the documents before the row `rows`. An earlier reader set `rejected` of them aside,
    /// which counts if they are not read again: Parquet jumps there. JSON lines are read and
    /// checked, so rejects and their limit are as in an uninterrupted run; they never go back.
    pub fn resume(&mut self, rows: u64, rejected: u64) {
        self.reader.seek(rows, rejected);
    }

    /// Returns up to `max_rows` documents, fewer if the decoder's batch ends or texts are long, and
    /// `None` at the end. [`polysift_base::Error::Row`] if more than `config.max_rejects` rows are
    /// malformed (JSON lines) or too long, or if embeddings in Parquet differ in width.
    pub fn next_batch(&mut self, max_rows: usize) -> Result<Option<DocumentBatch>> {
        let batch = self.reader.next_batch(max_rows)?;
        Ok(batch.map(|batch| self.columns.to_documents(&batch)))
    }

    /// Returns the bytes of the file read so far, before decompression; `None` for Parquet.
    pub fn bytes_read(&self) -> Option<u64> {
        self.reader.bytes_read()
    }

    /// Returns the rows set aside so far: the first `max_rejects`, and at least the first one.
    pub fn rejects(&self) -> &[Reject] {
        &self.reader.rejects().kept
    }
}

/// Opens a reader of `columns`. `max_bytes` limits the first column in Parquet, and a line in JSON
/// lines; CSV has no limit here.
pub(super) fn open(
    file: &InputFile,
    columns: Vec<ColumnRequest>,
    max_bytes: u64,
    rejects: Rejects,
) -> Result<Box<dyn ColumnReader>> {
    Ok(match file.format {
        Format::Parquet => Box::new(ParquetReader::open(file, &columns, max_bytes, rejects)?),
        Format::JsonLines(_) => Box::new(JsonReader::open(file, columns, max_bytes, rejects)?),
        Format::Csv(_) => Box::new(CsvReader::open(file, columns, rejects)?),
    })
}

/// The columns of documents in one file, and what stands in for missing ids and languages.
#[derive(Debug, Clone)]
pub(super) struct DocumentRequest {
    /// The text, the id, the language and the script (each without a name if no column has it), the
    /// embeddings if the input has them, and then any further columns.
    pub requests: Vec<ColumnRequest>,
    /// Prefix of generated ids.
    name: String,
    /// Language of the documents for which no column has one.
    language: String,
}

impl DocumentRequest {
    /// Requests the columns that `config` names.
    pub(super) fn new(file: &InputFile, config: &InputConfig) -> Self {
        let (language, code, script) = match &config.language {
            LanguageSource::Path => (file.language.as_deref(), "", ""),
            LanguageSource::Fixed(code) => (Some(code.as_str()), "", ""),
            LanguageSource::Model { .. } => (None, "", ""),
            LanguageSource::Column { column, script_column } => {
                (None, column.as_str(), script_column.as_deref().unwrap_or_default())
            }
        };
        let language = language.unwrap_or(UNDETERMINED_LANGUAGE).to_owned();
        let mut columns = Self { requests: Vec::new(), name: file.name.clone(), language };
        // Rows are shown without naming a text column.
        columns.add_column(&config.text, ColumnKind::Text, !config.text.is_empty());
        columns.add_column(&config.id, ColumnKind::Id, false);
        columns.add_column(code, ColumnKind::Text, !code.is_empty());
        columns.add_column(script, ColumnKind::Text, !script.is_empty());
        if let Some(name) = &config.embeddings {
            columns.add_column(name, ColumnKind::Vectors, true);
        }
        columns
    }

    /// Opens a reader of the requested columns of `file`, with the limits in `config`.
    pub(super) fn open(
        &self,
        file: &InputFile,
        config: &InputConfig,
    ) -> Result<Box<dyn ColumnReader>> {
        let rejects = Rejects::new(config.max_rejects);
        open(file, self.requests.clone(), config.max_document_bytes, rejects)
    }

    pub(super) fn add_column(&mut self, name: &str, kind: ColumnKind, required: bool) {
        self.requests.push(ColumnRequest::new(name, kind, required));
    }

    /// Makes documents of the first columns of `batch`, with generated ids and default languages.
    pub(super) fn to_documents(&self, batch: &ColumnBatch) -> DocumentBatch {
        let ColumnBatch { rows, columns } = batch;
        let strings = |at: usize| columns.get(at).and_then(|column| column.as_string_view_opt());
        let [texts, ids, codes, scripts] = [0, 1, 2, 3].map(strings);
        // A further column in the place of embeddings has no lists.
        let embeddings = columns.get(4).and_then(|column| column.as_list_opt().cloned());
        let id = |(i, row): (usize, &u64)| {
            let id = ids.and_then(|ids| string_at(ids, i));
            id.map_or_else(|| Cow::Owned(format!("{}/{row}", self.name)), Cow::Borrowed)
        };
        let ids = StringArray::from_iter_values(rows.iter().enumerate().map(id));
        let language = |i| {
            let [code, script] = [codes, scripts].map(|column| string_at(column?, i));
            join_script(code, script).unwrap_or(Cow::Borrowed(self.language.as_str()))
        };
        let num_bytes = |i| {
            let text = texts.and_then(|texts| string_at(texts, i));
            text.filter(|text| !text.trim().is_empty()).map_or(0, str::len) as u64
        };
        DocumentBatch {
            rows: rows.clone().into(),
            ids,
            languages: StringArray::from_iter_values((0..rows.len()).map(language)),
            num_bytes: (0..rows.len()).map(num_bytes).collect::<Vec<_>>().into(),
            num_tokens: UInt64Array::new_null(rows.len()),
            texts: texts.cloned(),
            embeddings,
        }
    }
}

/// Joins a language and a script, if they are not empty. A code with a script gets no other.
pub(super) fn join_script<'a>(code: Option<&'a str>, script: Option<&str>) -> Option<Cow<'a, str>> {
    let code = code.filter(|code| !code.is_empty())?;
    let script = script.filter(|script| !script.is_empty() && !code.contains('_'));
    Some(script.map_or(Cow::Borrowed(code), |script| Cow::Owned(format!("{code}_{script}"))))
}
