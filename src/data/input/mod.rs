//! The input: which files there are, and how their rows are read.
//!
//! Owns file discovery, shard names, the two formats (Parquet, JSON lines) and their errors; CSV is
//! read as well, but only as a table of published data ([`read_table`]).
//! Does not tokenize, select or write. There is one iterator of batches of columns for each format,
//! on which [`DocumentReader`] (only what embedding needs), the readers of samples and those of tables
//! are built. [`RowReader`] reads every column for the export and sees the same rows under the same
//! numbers. Files are streamed: no file, row group or column is ever held in memory whole.
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
//! assert_eq!(documents.language(0), "deu_Latn");
//! assert_eq!(documents.text(1), None); // counted, never selected
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod column_values;
mod columns;
mod content;
mod csv;
mod discover;
mod document_batch;
mod documents;
mod infer;
mod json;
mod json_lines;
mod labelled;
mod lines;
mod lists;
mod parquet;
mod pattern;
mod rows;
mod stream;
mod table;
mod vectors;

use std::ops::Range;
use std::path::PathBuf;

pub use column_values::{ColumnValues, NumberColumn};
pub use columns::{ColumnKind, ColumnRequest, Reject};
pub use columns::{InputColumn, METADATA, column_at, strings};
pub(crate) use content::Content;
pub use discover::discover;
pub use document_batch::{DOCUMENT_COLUMNS, NUM_TOKENS, document_fields};
pub use document_batch::{DocumentBatch, DocumentBuilder, DocumentInfo};
pub use documents::DocumentReader;
pub use labelled::class as label_class;
pub use labelled::{LabelledText, LabelledTexts, SampleColumns, SkippedRows, Split, read_samples};
pub use labelled::{for_each_sample, score_value};
pub use lists::{ListFile, check_list, for_each_listed, list_files};
pub use parquet::{FileFacts, RowGroup};
pub use pattern::{LANG, languages_of};
pub use rows::{JsonColumns, RowBatch, RowReader};
pub use stream::{DocumentStream, StreamDocument};
pub use table::{
    TableCounts, TableRow, is_table, named_tables, read_table, table_at, table_columns,
    table_files, table_stem,
};

/// Language of a document whose language is not known (ISO 639-2 "undetermined").
pub const UNDETERMINED_LANGUAGE: &str = "und";

/// Most rows decoded at once; long rows lower it, see [`BATCH_BYTES`].
const BATCH_ROWS: usize = 1024;

/// Rows are decoded in batches of about this size in bytes, so that memory does not grow with
/// the length of documents (one single longer row still fits).
const BATCH_BYTES: usize = 16 << 20;

/// Format of an input file, by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `.parquet`.
    Parquet,
    /// One JSON object per line: `.jsonl`, `.ndjson`, `.json`.
    JsonLines(Compression),
    /// `.csv`, only of tables: see [`read_table`].
    Csv(Compression),
}

impl Format {
    /// What is around all of the file.
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
    /// Where it is: a path, or the URL of an object.
    pub path: PathBuf,
    /// Unique name: a relative path with `/`, without `..`; generated ids begin with it.
    pub name: String,
    /// What `{lang}` stands for in the pattern that matched it.
    pub language: Option<String>,
    /// Size in bytes, compressed as it lies.
    pub bytes: u64,
    /// Format by the extension.
    pub format: Format,
    /// Rows of the file that are read, which are those of whole row groups; `None`: all. Rows keep
    /// the numbers that they have in the file.
    pub rows: Option<Range<u64>>,
    /// What the store of an object calls its content (ETag, else time of change; the commit on a
    /// hub), if it does; `None` for local files.
    pub version: Option<String>,
}
