//! `[input]`: files, columns and languages of the corpus.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::{LANGUAGE_CODE, is_language_code};
use polysift_base::error::{Error, Result};

/// Default of [`InputConfig::max_document_bytes`]: 64 MiB.
pub const DEFAULT_MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// Largest [`InputConfig::max_document_bytes`]: 1 GiB of text always fits Arrow's 32-bit offsets.
pub const LARGEST_DOCUMENT_BYTES: u64 = 1 << 30;

/// The table `[input]` names the files of documents and their columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct InputConfig {
    /// Files, directories (searched recursively), globs and URLs of Parquet or JSON lines. `{lang}`
    /// in a pattern stands for the language of the files that match.
    pub files: Vec<String>,
    /// Name of the text column; a dotted name reaches into a struct.
    #[default = "text"]
    pub text: String,
    /// Name of the id column. In files without it, ids are `SHARD/ROW`, as in datatrove.
    #[default = "id"]
    pub id: String,
    /// Where the language of a document comes from. Default: `{lang}` in the pattern that matched
    /// the file, or `und` (undetermined) in a pattern without `{lang}`.
    #[serde(skip_serializing_if = "super::is_default")]
    pub language: LanguageSource,
    /// Column of ready embeddings (FineWeb2-embedded: `embeddings`), which are used unchanged. The
    /// run then needs the encoder only to train heads. Default: texts are embedded.
    pub embeddings: Option<String>,
    /// Maximum number of malformed rows (unparsable JSON, too long documents) that are set aside
    /// in each file, or in each part of a file that `input.max_shard_bytes` splits; one more fails it.
    pub max_rejects: u64,
    /// Maximum size of a document in bytes, at most 1 GiB: of a JSON line, or of a text in Parquet.
    #[default(DEFAULT_MAX_DOCUMENT_BYTES)]
    pub max_document_bytes: u64,
    /// Maximum size of a Parquet file in bytes; larger ones are split between row groups, so that
    /// several processes can share one.
    #[default(512 << 20)]
    pub max_shard_bytes: u64,
}

/// Where a document's language comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "needs a language code in quotes, { column = \"...\", script_column = \"...\" } or { model = \"lid.bin\" }"
)]
pub enum LanguageSource {
    /// The language is `{lang}` in the pattern that matched the file, or `und` without `{lang}`.
    #[default]
    Path,
    /// `"deu_Latn"`: all documents have this language code.
    Fixed(String),
    /// `{ column = "language", script_column = "language_script" }`: a column of the input holds
    /// the language; without a value it is `und`. The script of a second column, if it is named,
    /// is joined to a code that has no script by `_`.
    Column {
        /// Column with the language code.
        column: String,
        /// Column with the script code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        script_column: Option<String>,
    },
    /// `{ model = "lid.bin", labels = { en = "eng_Latn" }, threshold = 0.65 }`: a fastText
    /// classifier such as lid.176 or GlotLID identifies the language of every text. `labels` names
    /// codes of labels; below `threshold` (default 0.65) the language is `und`; `column` (default
    /// `language`) is the name of the new column in the export.
    Model {
        /// Path of the classifier, a `.bin` or `.ftz` file.
        model: String,
        /// Language codes by label, without `__label__`; other labels are codes as they are.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
        /// Minimum probability of the best label; below it, the language is `und`.
        #[serde(default = "default_threshold")]
        threshold: f32,
        /// Name of the language column that the export adds; `language` if it is not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        column: Option<String>,
    },
}

impl LanguageSource {
    /// Returns true if documents of one file can have different languages.
    pub fn is_by_document(&self) -> bool {
        matches!(self, Self::Column { .. } | Self::Model { .. })
    }

    /// Returns the language column that the export adds, if a classifier identifies languages.
    pub fn new_column(&self) -> Option<&str> {
        match self {
            Self::Model { column, .. } => Some(column.as_deref().unwrap_or("language")),
            _ => None,
        }
    }

    /// Checks language codes, names of columns and the threshold.
    pub(super) fn check(&self) -> Result<()> {
        let codes: Vec<&String> = match self {
            Self::Fixed(code) => vec![code],
            Self::Model { threshold, .. } if !(0.0..=1.0).contains(threshold) => {
                let reason = format!("is {threshold}; a probability from 0 to 1 is needed");
                return Err(Error::config("input.language.threshold", reason));
            }
            Self::Model { labels, .. } => labels.values().collect(),
            Self::Column { column, script_column }
                if column.is_empty() || script_column.as_deref() == Some("") =>
            {
                return Err(Error::config("input.language", "has a column without a name"));
            }
            Self::Column { .. } | Self::Path => Vec::new(),
        };
        if let Some(code) = codes.into_iter().find(|code| !is_language_code(code)) {
            let reason = format!("`{code}` is not {LANGUAGE_CODE}");
            return Err(Error::config("input.language", reason));
        }
        Ok(())
    }
}

/// datatrove's default of `LanguageFilter`.
fn default_threshold() -> f32 {
    0.65
}
