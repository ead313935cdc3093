//! `[encoder]` and `[store]`: how text becomes embeddings and how these are kept.

use serde::{Deserialize, Serialize};

use super::{
    DEFAULT_BATCH_TOKENS, DEFAULT_MAX_TOKENS, DEFAULT_MODEL, DEFAULT_PART_ROWS, DEFAULT_ZSTD_LEVEL,
};

/// How token states become one vector per chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// Mean over all real tokens, `<s>` and `</s>` included.
    #[default]
    Mean,
    /// State of `<s>`.
    Cls,
}

/// Which chunks of a document are embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Chunks {
    /// The first one; enough for heads with `chunk = "first"`.
    #[default]
    First,
    /// All, cut without overlap.
    All,
}

/// Form of the GELU between the two layers of a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Gelu {
    /// The exact one, with the error function.
    #[default]
    Erf,
    /// The approximation with tanh, inside the matrix product; on cards only.
    Tanh,
}

/// `[encoder]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncoderConfig {
    /// `polysift-mini` (bundled), a Hugging Face directory, or a hub id (`FacebookAI/xlm-roberta-base`).
    pub model: String,
    /// Revision of a hub id: commit, tag or branch.
    pub revision: Option<String>,
    /// Pooling.
    pub pooling: Pooling,
    /// Longest chunk in tokens, `<s>` and `</s>` included.
    pub max_tokens: usize,
    /// Which chunks are embedded.
    pub chunks: Chunks,
    /// Text put before every document (`query: ` for the E5 models).
    pub prompt: String,
    /// Most tokens in one packed batch. Does not change results.
    pub batch_tokens: usize,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self {
            model: DEFAULT_MODEL.into(),
            revision: None,
            pooling: Pooling::default(),
            max_tokens: DEFAULT_MAX_TOKENS,
            chunks: Chunks::default(),
            prompt: String::new(),
            batch_tokens: DEFAULT_BATCH_TOKENS,
        }
    }
}

/// How the values of an embedding are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingDtype {
    /// As computed.
    #[default]
    F32,
    /// Half precision.
    F16,
    /// Rounded to bf16, stored as f32: the type users expect at a third of the bytes after zstd.
    Bf16InF32,
}

/// `[store]`: the embeddings in the run directory. Scores are computed from what is stored, so
/// re-scoring always reproduces them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// Type of the stored values.
    pub embeddings: EmbeddingDtype,
    /// Rows of one part file, the unit of resume.
    pub part_rows: usize,
    /// Compression level.
    pub zstd: i32,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            embeddings: EmbeddingDtype::default(),
            part_rows: DEFAULT_PART_ROWS,
            zstd: DEFAULT_ZSTD_LEVEL,
        }
    }
}
