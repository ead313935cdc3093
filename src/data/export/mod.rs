//! The export: every input column, unchanged, beside embeddings, scores and retention rates.
//! Callers pass record batches that hold only the rows to export.
//!
//! Invariants: no input column is lost or changes its type. The bytes of the files depend on the
//! rows and the settings, not on how the rows were split into batches.

mod columns;
mod writer;

use arrow_array::ArrayRef;

use polysift_config::{EmbeddingDtype, Layout};

pub use columns::{EMBEDDINGS, ExportColumns, PII_COUNT, PROVENANCE};
pub use writer::{ExportWriter, ExportedFile, WriterOptions};

/// Which columns are exported, and how they are arranged.
///
/// - [`Layout::Flat`] (FineWeb2-HQ): the input columns in their order, then `embeddings`, the
///   scores, the retention rates, the text columns and `pii_count`. In an input of datatrove's
///   layout (`text`, `id` and a struct `metadata`) the children of the struct take its place. They
///   are null where it is null, and a child whose name is taken is called `metadata.<child>`.
/// - [`Layout::Nested`] (datatrove): `text`, `id` (left out if the input has none), and a struct
///   `metadata` of all other columns of the flat layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportSpec {
    /// Arrangement of the columns.
    pub layout: Layout,
    /// Input column of the text. A dotted name reaches into structs. [`Layout::Nested`] needs it.
    pub text: String,
    /// Input column of the id. A dotted name reaches into structs.
    pub id: String,
    /// Type of the values of the new column `embeddings`; `None` leaves the column out.
    pub embeddings: Option<EmbeddingDtype>,
    /// Whether the embeddings come from a column `embeddings` of the input: a new column takes its
    /// place, and without a new one it is dropped. Otherwise it is an error to have both.
    pub replace_embeddings: bool,
    /// Names of the columns of scores and retention rates (float64).
    pub new_columns: Vec<String>,
    /// Names of the text columns: the identified language and what filters that flag write.
    pub text_columns: Vec<String>,
    /// Whether the texts of [`RowExtras::texts`] replace those of the input.
    pub replaces_texts: bool,
    /// Whether a column `pii_count` holds the number of PII matches.
    pub counts_pii: bool,
}

/// Values added to the rows of one batch of input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowExtras {
    /// Shape `[rows + 1]`. Row `i` has the chunks `chunk_offsets[i]..chunk_offsets[i + 1]`; without
    /// chunks its embeddings are null. Ignored if [`ExportSpec::embeddings`] is `None`.
    pub chunk_offsets: Vec<usize>,
    /// Embeddings, shape `[chunks, hidden_size]`, f32.
    pub values: Vec<f32>,
    /// Length of one embedding.
    pub hidden_size: usize,
    /// Shape `[rows]` for each of [`ExportSpec::new_columns`]; `None` is null.
    pub new_columns: Vec<Vec<Option<f64>>>,
    /// Shape `[rows]` for each of [`ExportSpec::text_columns`]; `None` is null.
    pub text_columns: Vec<Vec<Option<String>>>,
    /// Texts that replace those of the input, if some differ.
    pub texts: Option<ArrayRef>,
    /// Shape `[rows]` if [`ExportSpec::counts_pii`] is set.
    pub pii_counts: Vec<i32>,
}
