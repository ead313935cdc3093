//! The export: every input column, untouched, beside embeddings, scores and retention rates.
//!
//! Owns the layout of the exported columns and putting rows together ([`ExportColumns`]), and the files
//! ([`ExportWriter`]). Does not choose rows and does not read inputs: it is given record batches that
//! hold only the rows to export.
//!
//! Invariants: no input column is lost or changes type; the bytes of the files depend on the rows and
//! the settings, not on how the rows were cut into batches.
//!
//! ```
//! use arrow_schema::{DataType, Field, Schema};
//! use polysift_data::export::{ExportColumns, ExportSpec};
//!
//! let input = Schema::new(vec![Field::new("text", DataType::Utf8, true)]).into();
//! let spec = ExportSpec { new_columns: vec!["quality_score".into()], ..ExportSpec::default() };
//! let columns = ExportColumns::new(&input, &spec, "a.parquet".as_ref())?;
//! assert_eq!(columns.schema().field(1).name(), "quality_score"); // behind the columns of the input
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod columns;
mod writer;

use arrow_array::ArrayRef;

use polysift_config::{EmbeddingDtype, Layout};

pub use columns::ExportColumns;
pub use columns::{EMBEDDINGS, PII_COUNT};
pub use writer::{ExportWriter, ExportedFile, WriterOptions};

/// Which columns are exported, and how they are arranged.
///
/// - [`Layout::Flat`] (FineWeb2-HQ): the input columns in their order. In an input of datatrove's
///   layout, `text`, `id` and a struct `metadata`, the struct gives its place to its children, null
///   where it is null; a child whose name is taken is called `metadata.<child>`. Then `embeddings`,
///   the scores, the retention rates, the flags and `pii_count`.
/// - [`Layout::Nested`] (datatrove): `text`, `id` (left out when the input has none), and a
///   struct `metadata` of all other columns of the flat layout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportSpec {
    /// Arrangement of the columns.
    pub layout: Layout,
    /// Input column of the text, a dotted name reaching into structs; [`Layout::Nested`] needs it.
    pub text: String,
    /// Input column of the id, likewise.
    pub id: String,
    /// Type of the values of the new column `embeddings`; `None` leaves the column out.
    pub embeddings: Option<EmbeddingDtype>,
    /// Whether a column `embeddings` of the input is where the embeddings came from: the new one
    /// then takes its place, or it goes when there is no new one. Otherwise it is an error to
    /// have both.
    pub replace_embeddings: bool,
    /// Names of the columns of scores and of retention rates (float64).
    pub new_columns: Vec<String>,
    /// Names of the columns of filters that flag (text).
    pub flags: Vec<String>,
    /// Whether texts are exported as [`RowExtras::texts`] has them.
    pub replaces_texts: bool,
    /// Whether a column `pii_count` says how much personal data was found.
    pub counts_pii: bool,
}

/// What is put beside the rows of one batch of input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowExtras {
    /// `[rows + 1]`: row `i` has the chunks `chunk_offsets[i]..chunk_offsets[i + 1]`; none makes
    /// its embeddings null. Not looked at when [`ExportSpec::embeddings`] is `None`.
    pub chunk_offsets: Vec<usize>,
    /// `[chunks, hidden_size]`, f32.
    pub values: Vec<f32>,
    /// Length of one embedding.
    pub hidden_size: usize,
    /// `[rows]` for each of [`ExportSpec::new_columns`]; `None` is null.
    pub new_columns: Vec<Vec<Option<f64>>>,
    /// `[rows]` for each of [`ExportSpec::flags`]; `None` is null.
    pub flags: Vec<Vec<Option<String>>>,
    /// Texts that take the place of those of the input, where some differ.
    pub texts: Option<ArrayRef>,
    /// `[rows]` where [`ExportSpec::counts_pii`] is set.
    pub pii_counts: Vec<i32>,
}
