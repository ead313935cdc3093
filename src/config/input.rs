//! `[input]`: files, columns and languages of the corpus.

use serde::{Deserialize, Serialize};

/// Default of [`InputConfig::max_document_bytes`]: 64 MiB.
pub const DEFAULT_MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// Largest [`InputConfig::max_document_bytes`]: 1 GiB of text always fits Arrow's 32-bit offsets.
pub const LARGEST_DOCUMENT_BYTES: u64 = 1 << 30;

/// Settings of `[input]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputConfig {
    /// Files, directories (searched recursively) and globs; `{lang}` in a pattern is the language.
    pub files: Vec<String>,
    /// Name of the text column; a dotted name reaches into a struct.
    pub text: String,
    /// Name of the id column; without this column, ids are `<shard name>/<row>`, as in datatrove.
    pub id: String,
    /// Where a document's language comes from; TOML cannot express the default.
    #[serde(skip_serializing_if = "super::is_default")]
    pub language: LanguageSource,
    /// Column of ready embeddings (FineWeb2-embedded: `embeddings`), which are used unchanged.
    pub embeddings: Option<String>,
    /// Maximum malformed rows per file that are set aside (unparsable JSON, too long documents).
    pub max_rejects: u64,
    /// Maximum size of a document in bytes: of a JSON line, or of a text in Parquet.
    pub max_document_bytes: u64,
    /// Maximum size of a Parquet file in bytes; larger ones are split between row groups, so that
    /// several processes can share one.
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
    /// The language is `{lang}` in the pattern that matched the file, or `und` without `{lang}`.
    #[default]
    Path,
    /// All documents have this language code.
    Fixed(String),
    /// The language is read from a column and joined by `_` with the script from a second one, if
    /// named (FineWeb-2: `language`, `language_script`).
    Column {
        /// Column with the language code.
        column: String,
        /// Column with the script code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        script_column: Option<String>,
    },
}
