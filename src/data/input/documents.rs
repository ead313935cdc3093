//! Readers of documents: the columns that embedding needs, in batches, with defaults for missing
//! ids and languages. Other columns are not decoded (Parquet) or not kept (JSON lines).

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::{StringArray, StringViewArray, UInt64Array};

use super::columns::{
    ColumnBatch, ColumnKind, ColumnReader, ColumnRequest, Reject, Rejects, string,
};
use super::csv::CsvReader;
use super::document_batch::DocumentBatch;
use super::json_lines::JsonReader;
use super::parquet::ParquetReader;
use super::{Format, InputFile, UNDETERMINED_LANGUAGE};
use polysift_base::error::Result;
use polysift_config::{InputConfig, LanguageSource};

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

    /// Skips the documents whose row is below `rows`. An earlier reader set `rejected` of these
    /// rows aside; that number counts if the rows are not read again. Parquet jumps there. JSON
    /// lines are read and checked, so that the rejects and their limit equal those of an
    /// uninterrupted run; they never go back.
    pub fn resume(&mut self, rows: u64, rejected: u64) {
        self.reader.seek(rows, rejected);
    }

    /// Returns the next documents, or `None` at the end of the file. There are at most `max_rows`;
    /// fewer if the decoder's batch ends or texts are long. Returns [`polysift_base::Error::Row`]
    /// if more than `config.max_rejects` rows are malformed (JSON lines) or too long, or if
    /// embeddings in Parquet differ in width.
    pub fn next_batch(&mut self, max_rows: usize) -> Result<Option<DocumentBatch>> {
        let batch = self.reader.next_batch(max_rows)?;
        Ok(batch.map(|batch| self.columns.documents(&batch)))
    }

    /// Returns the number of rows to read, if the file stores it (Parquet).
    pub fn num_rows_hint(&self) -> Option<u64> {
        self.reader.num_rows()
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

/// Opens a reader of `columns`; the first may hold up to `max_bytes` per row.
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

#[derive(Debug, Clone)]
pub(super) struct DocumentRequest {
    /// The text, the id, the language and the script if columns have them, the embeddings if the
    /// input has them, and then any further columns.
    pub requests: Vec<ColumnRequest>,
    /// Prefix of generated ids.
    name: String,
    /// Language of all documents; `None` if a column has it.
    language: Option<String>,
    has_script: bool,
    has_embeddings: bool,
}

impl DocumentRequest {
    pub(super) fn new(file: &InputFile, config: &InputConfig) -> Self {
        let (language, code, script) = match &config.language {
            LanguageSource::Path => (file.language.as_deref(), None, None),
            LanguageSource::Fixed(code) => (Some(code.as_str()), None, None),
            LanguageSource::Model { .. } => (None, None, None),
            LanguageSource::Column { column, script_column } => {
                (None, Some(column), script_column.as_ref())
            }
        };
        let language = language.unwrap_or(UNDETERMINED_LANGUAGE).to_owned();
        let mut columns = Self {
            requests: Vec::new(),
            name: file.name.clone(),
            language: Some(language).filter(|_| code.is_none()),
            has_script: script.is_some(),
            has_embeddings: config.embeddings.is_some(),
        };
        // Rows are shown without naming a text column.
        columns.request(&config.text, ColumnKind::Text, !config.text.is_empty());
        columns.request(&config.id, ColumnKind::Id, false);
        for name in code.into_iter().chain(script) {
            columns.request(name, ColumnKind::Text, true);
        }
        if let Some(name) = &config.embeddings {
            columns.request(name, ColumnKind::Vectors, true);
        }
        columns
    }

    pub(super) fn open(
        &self,
        file: &InputFile,
        config: &InputConfig,
    ) -> Result<Box<dyn ColumnReader>> {
        let rejects = Rejects::new(config.max_rejects);
        open(file, self.requests.clone(), config.max_document_bytes, rejects)
    }

    pub(super) fn request(&mut self, name: &str, kind: ColumnKind, required: bool) {
        self.requests.push(ColumnRequest::new(name, kind, required));
    }

    pub(super) fn documents(&self, batch: &ColumnBatch) -> DocumentBatch {
        let ColumnBatch { rows, columns } = batch;
        let mut columns = columns.iter();
        let mut strings = |is_there: bool| -> Option<&StringViewArray> {
            let column = if is_there { columns.next() } else { None };
            column?.as_string_view_opt()
        };
        let (texts, ids) = (strings(true), strings(true));
        let (codes, scripts) = (strings(self.language.is_none()), strings(self.has_script));
        let embeddings = if self.has_embeddings { columns.next() } else { None };
        let embeddings = embeddings.and_then(|column| column.as_list_opt().cloned());
        let id = |(i, row): (usize, &u64)| {
            let id = ids.and_then(|ids| string(ids, i));
            id.map_or_else(|| Cow::Owned(format!("{}/{row}", self.name)), Cow::Borrowed)
        };
        let ids = StringArray::from_iter_values(rows.iter().enumerate().map(id));
        let language = |i| {
            let [code, script] = [codes, scripts].map(|column| string(column?, i));
            let own = self.language.as_deref().map(Cow::Borrowed);
            own.or_else(|| joined(code, script)).unwrap_or(Cow::Borrowed(UNDETERMINED_LANGUAGE))
        };
        let num_bytes = |i| {
            let text = texts.and_then(|texts| string(texts, i));
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
pub(super) fn joined<'a>(code: Option<&'a str>, script: Option<&str>) -> Option<Cow<'a, str>> {
    let code = code.filter(|code| !code.is_empty())?;
    let script = script.filter(|script| !script.is_empty() && !code.contains('_'));
    Some(script.map_or(Cow::Borrowed(code), |script| Cow::Owned(format!("{code}_{script}"))))
}
