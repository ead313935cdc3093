//! Documents in columns, as they lie in a Parquet file: texts are looked at where the decoder put
//! them, ids and languages go on as arrays.

use arrow::array::{LargeStringArray, StringArray};

use super::Document;
use super::column::Strings;
use super::record::is_blank;

/// Consecutive documents of a file; what is said of the fields of [`Document`] holds here too.
#[derive(Debug, Clone)]
pub struct DocumentBlock {
    pub(super) rows: Vec<u64>,
    pub(super) ids: StringArray,
    pub(super) languages: StringArray,
    /// As many rows, blank texts included.
    pub(super) texts: Strings,
    /// One entry a row where the settings name a column of embeddings, else none at all.
    pub(super) embeddings: Vec<Option<Vec<Vec<f32>>>>,
}

impl DocumentBlock {
    /// Number of documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// [`Document::row`] of each document.
    pub fn rows(&self) -> &[u64] {
        &self.rows
    }

    /// [`Document::id`] of each document, without nulls.
    pub fn ids(&self) -> &StringArray {
        &self.ids
    }

    /// [`Document::language`] of each document, without nulls.
    pub fn languages(&self) -> &StringArray {
        &self.languages
    }

    /// [`Document::text`] of document `i`.
    ///
    /// # Panics
    /// As the following two, when `i` is not below [`DocumentBlock::len`].
    pub fn text(&self, i: usize) -> Option<&str> {
        self.texts.get(i).filter(|text| !is_blank(text))
    }

    /// UTF-8 bytes of what [`DocumentBlock::text`] gives; 0 without text.
    pub fn num_bytes(&self, i: usize) -> u64 {
        self.text(i).map_or(0, |text| text.len() as u64)
    }

    /// [`Document::embeddings`] of document `i`, which are taken out.
    pub fn take_embeddings(&mut self, i: usize) -> Option<Vec<Vec<f32>>> {
        self.embeddings.get_mut(i).and_then(Option::take)
    }

    /// Bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        (0..self.len()).map(|i| self.num_bytes(i) as usize).sum()
    }
}

impl FromIterator<Document> for DocumentBlock {
    fn from_iter<I: IntoIterator<Item = Document>>(documents: I) -> Self {
        let mut rows = Vec::new();
        let (mut ids, mut languages, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let mut embeddings = Vec::new();
        for document in documents {
            rows.push(document.row);
            ids.push(document.id);
            languages.push(document.language);
            texts.push(document.text);
            embeddings.push(document.embeddings);
        }
        Self {
            rows,
            ids: StringArray::from_iter_values(ids),
            languages: StringArray::from_iter_values(languages),
            texts: Strings::Large(LargeStringArray::from_iter(texts)),
            embeddings,
        }
    }
}
