//! `[export]` and `[card]`: columns and files of the exported data set, and facts for its card.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::{DEFAULT_ZSTD_LEVEL, EmbeddingDtype};
use polysift_base::io::is_url;

/// Column layout of the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// FineWeb2-HQ layout: every column is at the top level.
    #[default]
    Flat,
    /// datatrove layout: `text`, `id` and a struct `metadata` with all other columns.
    Nested,
}

/// The table `[export]` says what the exported files hold and where they are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct ExportConfig {
    /// Destination: a folder, a place in an object store (`s3://bucket/prefix`, `gs://`, `az://`)
    /// or a data set of a hub (`hf://datasets/OWNER/NAME[@BRANCH][/PATH]`). Default: the run
    /// directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Export the embeddings together with the text.
    #[default = true]
    pub with_embeddings: bool,
    /// Type of the exported embeddings. Default: `parts.embeddings`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<EmbeddingDtype>,
    /// Column layout of the exported files.
    pub layout: Layout,
    /// Start a new file after this many megabytes (10^6 bytes). Default: one file for each input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_file_mb: Option<usize>,
    /// Uncompressed size of a row group in megabytes (10^6 bytes).
    #[default = 100]
    pub row_group_mb: usize,
    /// Compression level of zstd, 1 to 22.
    #[default(DEFAULT_ZSTD_LEVEL)]
    pub zstd: i32,
    /// Also write the documents that were not selected, in a folder for each reason.
    pub keep_removed: bool,
    /// Also write the data set card, `README.md`, next to the files.
    pub card: bool,
}

impl ExportConfig {
    /// Returns true if the files go to a data set of a hub.
    pub fn is_to_hub(&self) -> bool {
        self.to.as_deref().is_some_and(|to| to.starts_with("hf://"))
    }

    /// Returns the folder or URL below which all files are written: `run` if `to` is not set.
    pub fn place(&self, run: &Path) -> PathBuf {
        match &self.to {
            Some(url) if is_url(url) => url.trim_end_matches('/').into(),
            Some(folder) => folder.into(),
            None => run.to_owned(),
        }
    }
}

/// The table `[card]` holds facts for the data set card that a run cannot know. For each fact that
/// is not set, the card has a line with `TODO`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CardConfig {
    /// Hub repository of the data set, as `OWNER/NAME`.
    pub repository: Option<String>,
    /// Display name of the data set.
    pub pretty_name: Option<String>,
    /// Licence identifier as hubs write it, such as `odc-by`.
    pub license: Option<String>,
    /// Origin of the documents and their terms of use, in Markdown.
    pub source: Option<String>,
    /// Citation of the data set, in BibTeX.
    pub citation: Option<String>,
    /// File of a Jinja template that replaces the built-in one.
    pub template: Option<String>,
}
