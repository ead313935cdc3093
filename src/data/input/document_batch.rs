//! Documents in batches: the only declaration of the columns of a document, which readers return,
//! tokenizing and encoding pass on, and part files hold.

use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{Array, ArrayRef, LargeListArray, StringArray, StringViewArray, UInt64Array};

use super::columns::string;
use super::vectors::row_vectors;

/// Name of the column of token counts, the only one of [`DOCUMENT_COLUMNS`] with nulls.
pub const NUM_TOKENS: &str = "num_tokens";
/// Names of the columns that identify a document in part files, in their order.
pub const DOCUMENT_COLUMNS: [&str; 5] = ["row", "id", "language", "num_bytes", NUM_TOKENS];

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
    pub(crate) languages: StringArray,
    pub(crate) num_bytes: UInt64Array,
    /// All null if tokens are not counted; the other columns have no nulls.
    pub(crate) num_tokens: UInt64Array,
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
        DocumentInfo {
            row: self.rows.value(i),
            id: self.id(i),
            language: self.language(i),
            num_bytes: self.num_bytes.value(i),
            num_tokens: self.num_tokens.is_valid(i).then(|| self.num_tokens.value(i)),
        }
    }

    /// Iterates over all documents.
    pub fn iter(&self) -> impl Iterator<Item = DocumentInfo<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Returns the [`DocumentInfo::row`] of each document, ascending.
    pub fn rows(&self) -> &[u64] {
        self.rows.values()
    }

    /// Returns the [`DocumentInfo::num_bytes`] of each document.
    pub fn num_bytes(&self) -> &[u64] {
        self.num_bytes.values()
    }

    /// Returns the [`DocumentInfo::id`] of document `i`.
    pub fn id(&self, i: usize) -> &str {
        self.ids.value(i)
    }

    /// Returns the [`DocumentInfo::language`] of document `i`.
    pub fn language(&self, i: usize) -> &str {
        self.languages.value(i)
    }

    /// Returns the text of document `i`; `None` if it is null, empty or only white space.
    pub fn text(&self, i: usize) -> Option<&str> {
        if self.num_bytes()[i] == 0 { None } else { self.stored_text(i) }
    }

    /// Returns the text of document `i` as stored, even if it is only white space; `None` for null.
    pub fn stored_text(&self, i: usize) -> Option<&str> {
        string(self.texts.as_ref()?, i)
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

    /// Sets the language code of each document, which a model identified.
    pub fn set_languages(&mut self, codes: Vec<&str>) {
        self.languages = codes.into();
    }

    /// Sets the number of tokens of each document.
    pub fn set_num_tokens(&mut self, num_tokens: Vec<u64>) {
        self.num_tokens = num_tokens.into();
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
        DocumentBatch {
            rows: self.rows.finish(),
            ids: self.ids.finish(),
            languages: self.languages.finish(),
            num_bytes: self.num_bytes.finish(),
            num_tokens: self.num_tokens.finish(),
            texts: None,
            embeddings: None,
        }
    }
}
