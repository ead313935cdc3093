//! `[export]`: columns and files of the result.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_ZSTD_LEVEL, EmbeddingDtype};

/// Column layout of the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// FineWeb2-HQ: every column at the top level.
    #[default]
    Flat,
    /// datatrove: `text`, `id` and a struct `metadata` with the rest.
    Nested,
}

/// `[export]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExportConfig {
    /// Where the files go: a place in a store (`s3://bucket/prefix`, `gs://`, `az://`); by default the
    /// run directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether the embeddings are exported beside the text.
    pub with_embeddings: bool,
    /// Type of exported embeddings; by default as stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<EmbeddingDtype>,
    /// Column layout.
    pub layout: Layout,
    /// Start a new file after this many megabytes (10^6 bytes); by default files mirror the inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_file_mb: Option<usize>,
    /// Uncompressed size of a row group in megabytes (10^6 bytes); smaller ones of the input go over as
    /// they are where all their rows are kept.
    pub row_group_mb: usize,
    /// Compression level of what is encoded.
    pub zstd: i32,
    /// Also write the documents that were not selected, by reason.
    pub keep_removed: bool,
    /// Also write the card of the data set beside the files, `README.md`.
    pub card: bool,
}

impl Default for ExportConfig {
    fn default() -> Self {
        Self {
            to: None,
            with_embeddings: true,
            embeddings: None,
            layout: Layout::default(),
            max_file_mb: None,
            row_group_mb: 100,
            zstd: DEFAULT_ZSTD_LEVEL,
            keep_removed: false,
            card: false,
        }
    }
}
