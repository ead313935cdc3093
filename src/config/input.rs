//! `[input]`: files, columns, languages.

use serde::{Deserialize, Serialize};

/// [`InputConfig::max_document_bytes`].
pub const DEFAULT_MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// Most that [`InputConfig::max_document_bytes`] can be: Arrow's 32-bit offsets hold any text of a
/// line of so many bytes.
pub const LARGEST_DOCUMENT_BYTES: u64 = 1 << 30;

/// `[input]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputConfig {
    /// Files, directories (searched recursively) and globs; `{lang}` in a pattern names the language.
    pub files: Vec<String>,
    /// Column of the text; a dotted name reaches into a struct.
    pub text: String,
    /// Column of the id; where a file has none, ids are `<shard name>/<row>` as datatrove makes them.
    pub id: String,
    /// Where a document's language comes from.
    #[serde(skip_serializing_if = "LanguageSource::is_path")]
    pub language: LanguageSource,
    /// Column of embeddings that the input already has (FineWeb2-embedded: `embeddings`); they are used as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embeddings: Option<String>,
    /// Malformed rows (JSON lines that do not parse, documents that are too long) that are set aside
    /// per file before the file fails.
    pub max_rejects: u64,
    /// Bytes of the longest document: of a line of JSON, of a text in Parquet.
    pub max_document_bytes: u64,
    /// Parquet files larger than this are split between row groups, so that several processes can do one.
    pub max_shard_bytes: u64,
}

impl Default for InputConfig {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            text: "text".into(),
            id: "id".into(),
            language: LanguageSource::default(),
            embeddings: None,
            max_rejects: 0,
            max_document_bytes: DEFAULT_MAX_DOCUMENT_BYTES,
            max_shard_bytes: 512 << 20,
        }
    }
}

/// Where a document's language comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "needs a language code in quotes, or { column = \"...\", script_column = \"...\" }"
)]
pub enum LanguageSource {
    /// From `{lang}` in the pattern that matched the file; without one, everything is `und`.
    #[default]
    Path,
    /// The same code for all documents.
    Fixed(String),
    /// From a column, with the script from a second one joined by `_` (FineWeb-2: `language`, `language_script`).
    Column {
        /// Column of the language code.
        column: String,
        /// Column of the script code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        script_column: Option<String>,
    },
}

impl LanguageSource {
    /// Whether this is the default; TOML has no way to write it.
    pub(super) fn is_path(&self) -> bool {
        *self == Self::Path
    }
}
