//! The input: finds its files and reads their rows.
//!
//! The formats are Parquet and JSON lines; CSV is read too, but only as a table of published data
//! ([`read_table`]). Each format has one iterator over batches of columns, on which
//! [`DocumentReader`] (only what embedding needs) and the readers of samples and tables are built.
//! [`RowReader`] reads every column for the export, and sees the same rows under the same numbers.
//! Files are streamed; only what follows an open quote of CSV is held in memory whole.
//!
//! ```
//! use polysift_config::InputConfig;
//! use polysift_data::input::{DocumentReader, discover};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::create_dir(folder.path().join("deu_Latn"))?;
//! let lines = "{\"id\": \"1\", \"text\": \"Ein Text.\"}\n{\"id\": \"2\", \"text\": null}\n";
//! std::fs::write(folder.path().join("deu_Latn/a.jsonl"), lines)?;
//!
//! let files = discover(&["{lang}/*.jsonl".to_owned()], folder.path())?;
//! let mut reader = DocumentReader::open(&files[0], &InputConfig::default())?;
//! let documents = reader.next_batch(10)?.unwrap_or_default();
//! assert_eq!(documents.get(0).language, "deu_Latn");
//! assert_eq!(documents.text(1), None); // counted, never selected
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod columns;
mod content;
mod csv;
mod discover;
mod documents;
mod infer;
mod json;
mod json_lines;
mod labelled;
mod lines;
mod parquet;
mod pattern;
mod rows;
mod stream;
mod table;
mod values;

use std::ops::Range;
use std::path::PathBuf;

pub use columns::{ColumnKind, ColumnRequest, Reject, RowBatch, TableRow};
pub(crate) use columns::{InputColumn, METADATA, column_at};
pub use discover::{MIXTURE, discover, normalized};
pub(crate) use documents::DOCUMENT_COLUMNS;
pub use documents::{DocumentBatch, DocumentBuilder, DocumentInfo, DocumentReader, NUM_TOKENS};
pub use infer::JsonColumns;
pub use labelled::parse_class;
pub use labelled::{LabelledText, SampleColumns, SkippedRows, Split, read_samples};
pub use labelled::{for_each_sample, score_value, shown};
pub use parquet::{RowGroup, dense};
pub use pattern::{LANG, MatchedFile, lacking_series, languages_of};
pub use rows::{RowReader, open_rows, row_values};
pub use stream::{DocumentStream, StreamDocument};
pub use table::{
    ColumnValues, for_each_listed, is_table, list_files, named_tables, read_table, table_columns,
    table_files, table_stem,
};
pub use values::{retyped, strings};

/// Maximum rows per decoded batch; long rows lower it, see [`BATCH_BYTES`].
const BATCH_ROWS: usize = 1024;
/// Approximate bytes of a decoded batch: memory must not grow with its texts. One longer row fits.
const BATCH_BYTES: usize = 16 << 20;

/// Format of an input file, by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `.parquet`.
    Parquet,
    /// One JSON object per line: `.jsonl`, `.ndjson`, `.json`.
    JsonLines(Compression),
    /// `.csv`, only for tables: see [`read_table`].
    Csv(Compression),
}

impl Format {
    fn compression(self) -> Compression {
        match self {
            Self::Parquet => Compression::None,
            Self::JsonLines(compression) | Self::Csv(compression) => compression,
        }
    }
}

/// Compression of a file, by its last extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No further extension.
    None,
    /// `.gz`, `.gzip`; several members are read one after another.
    Gzip,
    /// `.zst`, `.zstd`; several frames are read one after another.
    Zstd,
}

/// One file of the input, found by [`discover`], or some row groups of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Path of the file, or URL of the object.
    pub path: PathBuf,
    /// Unique name: a relative path with `/` and without `..`. Generated ids begin with it.
    pub name: String,
    /// Value of `{lang}` in the pattern that matched the file.
    pub language: Option<String>,
    /// Size in bytes, as stored (compressed).
    pub bytes: u64,
    /// Format by the extension.
    pub format: Format,
    /// Rows to read, by their numbers in the file, always whole row groups; `None` reads all.
    pub rows: Option<Range<u64>>,
    /// Version of an object's content according to its store (ETag, else time of change; on a hub
    /// the commit), if known; `None` for local files.
    pub version: Option<String>,
}
