//! Documents in batches: the one declaration of the columns of a document.
//!
//! These are the columns as readers give them, as they go through tokenizing and encoding, and as part
//! files hold them.

use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt64Builder};
use arrow_array::{Array, ArrayRef, LargeListArray, StringArray, StringViewArray, UInt64Array};
use arrow_schema::{DataType, Field};

use super::columns::string;
use super::vectors::row_vectors;

/// Column of the token counts, the only one of [`DOCUMENT_COLUMNS`] with nulls.
pub const NUM_TOKENS: &str = "num_tokens";
/// The columns that identify a document in part files, in their order.
pub const DOCUMENT_COLUMNS: [&str; 5] = ["row", "id", "language", "num_bytes", NUM_TOKENS];

/// Fields of the [`DOCUMENT_COLUMNS`].
pub fn document_fields() -> impl Iterator<Item = Field> {
    DOCUMENT_COLUMNS.into_iter().map(|name| match name {
        "id" | "language" => Field::new(name, DataType::Utf8, false),
        _ => Field::new(name, DataType::UInt64, name == NUM_TOKENS),
    })
}

/// Which document a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentInfo<'a> {
    /// Row in the file, counted from 0. In JSON lines the number of the line less one: blank and
    /// malformed lines are not documents but have their numbers.
    pub row: u64,
    /// Id column (integers as decimal text); where absent or null, `<shard name>/<row>`.
    pub id: &'a str,
    /// Language code as [`polysift_config::LanguageSource`] says; `und` where it is not known.
    pub language: &'a str,
    /// UTF-8 bytes of the text; 0 for a document without text, whatever white space it holds.
    pub num_bytes: u64,
    /// Content tokens of the text; `None` where they are not counted.
    pub num_tokens: Option<u64>,
}

/// Consecutive documents of a shard, column by column, in ascending order of their rows.
///
/// Texts and ids lie where the decoder of the file put them. The texts and the embeddings of the input
/// are there only between the reader and the tokenizer.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentBatch {
    rows: UInt64Array,
    ids: StringArray,
    languages: StringArray,
    num_bytes: UInt64Array,
    /// All null where tokens are not counted.
    num_tokens: UInt64Array,
    /// As they are stored, blank ones included; null where the input has none.
    texts: Option<StringViewArray>,
    /// Where the settings name a column of embeddings.
    embeddings: Option<LargeListArray>,
}

impl DocumentBatch {
    /// Of columns of one length, without nulls but in `num_tokens`.
    pub(crate) fn from_columns(
        rows: UInt64Array,
        ids: StringArray,
        languages: StringArray,
        num_bytes: UInt64Array,
        num_tokens: UInt64Array,
    ) -> Self {
        let (texts, embeddings) = (None, None);
        Self { rows, ids, languages, num_bytes, num_tokens, texts, embeddings }
    }

    /// Of what a reader found, with the texts and the embeddings of the input.
    pub(super) fn with_texts(
        rows: Vec<u64>,
        ids: StringArray,
        languages: StringArray,
        texts: Option<StringViewArray>,
        embeddings: Option<LargeListArray>,
    ) -> Self {
        let bytes_of = |i| {
            let text = texts.as_ref().and_then(|texts| string(texts, i));
            text.filter(|text| !text.trim().is_empty()).map_or(0, str::len) as u64
        };
        let num_bytes = (0..rows.len()).map(bytes_of).collect::<Vec<_>>().into();
        let num_tokens = UInt64Array::new_null(rows.len());
        Self { rows: rows.into(), ids, languages, num_bytes, num_tokens, texts, embeddings }
    }

    /// The [`DOCUMENT_COLUMNS`], as [`document_fields`] describes them.
    pub(crate) fn columns(&self) -> Vec<ArrayRef> {
        vec![
            Arc::new(self.rows.clone()),
            Arc::new(self.ids.clone()),
            Arc::new(self.languages.clone()),
            Arc::new(self.num_bytes.clone()),
            Arc::new(self.num_tokens.clone()),
        ]
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All about document `i`.
    ///
    /// # Panics
    /// As the following, when `i` is not below [`DocumentBatch::len`].
    pub fn get(&self, i: usize) -> DocumentInfo<'_> {
        DocumentInfo {
            row: self.rows.value(i),
            id: self.id(i),
            language: self.language(i),
            num_bytes: self.num_bytes.value(i),
            num_tokens: self.num_tokens.is_valid(i).then(|| self.num_tokens.value(i)),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = DocumentInfo<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }

    /// [`DocumentInfo::row`] of each document, ascending.
    pub fn rows(&self) -> &[u64] {
        self.rows.values()
    }

    /// [`DocumentInfo::num_bytes`] of each document.
    pub fn num_bytes(&self) -> &[u64] {
        self.num_bytes.values()
    }

    /// [`DocumentInfo::id`] of document `i`.
    pub fn id(&self, i: usize) -> &str {
        self.ids.value(i)
    }

    /// [`DocumentInfo::language`] of document `i`.
    pub fn language(&self, i: usize) -> &str {
        self.languages.value(i)
    }

    /// Text of document `i`; `None` when it is null, empty or only white space.
    pub fn text(&self, i: usize) -> Option<&str> {
        if self.num_bytes()[i] == 0 { None } else { self.stored_text(i) }
    }

    /// Text of document `i` as it is stored, also when it is only white space; `None` for null.
    pub fn stored_text(&self, i: usize) -> Option<&str> {
        string(self.texts.as_ref()?, i)
    }

    /// The documents with text: their places and texts.
    pub fn texts(&self) -> impl Iterator<Item = (usize, &str)> {
        (0..self.len()).filter_map(|i| Some((i, self.text(i)?)))
    }

    /// Number of chunks of document `i` and their vectors `[num_chunks, D]`, when the settings name a
    /// column of embeddings and the row has them. `D` is the same throughout the file.
    pub fn embeddings(&self, i: usize) -> Option<(usize, &[f32])> {
        row_vectors(self.embeddings.as_ref()?, i)
    }

    /// Bytes that the documents take in memory, with the texts and the embeddings that are there.
    pub fn memory(&self) -> usize {
        let columns = self.columns().into_iter().map(|column| column.get_array_memory_size());
        let texts = self.texts.iter().flat_map(StringViewArray::lengths).map(|len| len as usize);
        let vectors = (0..self.len()).filter_map(|i| Some(size_of_val(self.embeddings(i)?.1)));
        columns.chain(texts).chain(vectors).sum()
    }

    /// Lets the texts and the embeddings of the input go, whose memory is most of the batch.
    pub fn drop_texts(&mut self) {
        self.texts = None;
        self.embeddings = None;
    }

    /// Sets the number of tokens of each document.
    pub fn set_num_tokens(&mut self, num_tokens: Vec<u64>) {
        self.num_tokens = num_tokens.into();
    }
}

impl Default for DocumentBatch {
    /// No documents.
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

/// A [`DocumentBatch`] without texts that grows.
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

    /// The documents since the last call.
    pub fn finish(&mut self) -> DocumentBatch {
        DocumentBatch::from_columns(
            self.rows.finish(),
            self.ids.finish(),
            self.languages.finish(),
            self.num_bytes.finish(),
            self.num_tokens.finish(),
        )
    }
}
