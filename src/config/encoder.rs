//! `[encoder]` and `[store]`: how text becomes embeddings and how these are kept.

use serde::{Deserialize, Serialize};

use super::{
    DEFAULT_MAX_TOKENS, DEFAULT_MODEL, DEFAULT_PART_ROWS, DEFAULT_ZSTD_LEVEL, DeviceChoice,
};
use crate::error::{Error, Result};

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

/// In what the encoder computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Dtype {
    /// What the device does: f32 on the CPU, bf16 on a card.
    #[default]
    Auto,
    /// f32.
    F32,
    /// Weights and states in bf16; sums, layer norm and pooling in f32.
    Bf16,
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
    /// What computes.
    pub device: DeviceChoice,
    /// In what it computes.
    pub dtype: Dtype,
    /// Form of the GELU.
    pub gelu: Gelu,
    /// Most tokens in one packed batch; the encoder's own choice when unset. Changes no result on
    /// the CPU, and on a card none by more than the rounding of bf16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_tokens: Option<usize>,
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
            device: DeviceChoice::default(),
            dtype: Dtype::default(),
            gelu: Gelu::default(),
            batch_tokens: None,
        }
    }
}

impl EncoderConfig {
    /// Whether only the CPU computes what is asked for.
    pub fn needs_cpu(&self) -> bool {
        self.device == DeviceChoice::Cpu || self.dtype == Dtype::F32
    }

    /// Whether only a card computes what is asked for.
    pub fn needs_card(&self) -> bool {
        matches!(self.device, DeviceChoice::Cuda(_))
            || self.dtype == Dtype::Bf16
            || self.gelu == Gelu::Tanh
    }

    /// Checks that device, type and GELU go together.
    pub(super) fn check_device(&self) -> Result<()> {
        if !(self.needs_cpu() && self.needs_card()) {
            return Ok(());
        }
        let (name, reason) = match (&self.device, self.dtype) {
            (DeviceChoice::Cpu, Dtype::Bf16) => {
                ("encoder.dtype", "is bf16; the CPU computes in f32 (auto and f32 are allowed)")
            }
            (DeviceChoice::Cuda(_), _) => {
                ("encoder.dtype", "is f32; cards compute in bf16 (auto and bf16 are allowed)")
            }
            _ => {
                ("encoder.gelu", "is tanh, which is only for cards; the CPU, in f32, computes erf")
            }
        };
        Err(Error::config(name, reason))
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
