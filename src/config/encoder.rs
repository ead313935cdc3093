//! `[encoder]` and `[parts]`: how text becomes embeddings and how these are kept.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{DEFAULT_MODEL, DEFAULT_ZSTD_LEVEL, DeviceChoice};
use polysift_base::error::{Error, Result};

/// How token states become one vector per chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// Mean over all real tokens, special ones included.
    #[default]
    Mean,
    /// State of the first token (`<s>`, `[CLS]`).
    Cls,
    /// State of the last token, which is a special one where the tokenizer ends a text with one.
    Last,
}

impl Pooling {
    /// As settings write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
        }
    }
}

/// A setting that is `"auto"` where it is `None`.
mod auto {
    use serde::de::{DeserializeOwned, Error};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use toml::Value;

    #[expect(clippy::ref_option, reason = "serde passes a reference")]
    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.serialize(serializer),
            None => serializer.serialize_str("auto"),
        }
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) if text == "auto" => Ok(None),
            value => value.try_into().map(Some).map_err(|e| Error::custom(e.message())),
        }
    }
}

/// Which chunks of a document are embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Chunks {
    /// The first one; enough for heads with `chunk = "first"`.
    #[default]
    First,
    /// All, cut without overlap.
    All,
}

/// In what the encoder computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderPrecision {
    /// What suits the device: bf16 on a GPU; on the CPU the fastest of f32, bf16 and f16 there.
    #[default]
    Auto,
    /// f32; on the CPU only.
    F32,
    /// Products of bf16 values; sums, layer norm and pooling in f32.
    Bf16,
    /// Products of f16 values, summed in f16 over short stretches and in f32 beyond; on the CPU only.
    F16,
    /// Products of 8-bit integers, weights scaled by output and states, less their mean, by token; on the CPU only.
    Int8,
    /// Products of 8-bit floating-point values (e4m3), weights scaled by output and states by token;
    /// attention in bf16; on GPUs of compute capability 9.0 only.
    Fp8,
}

impl EncoderPrecision {
    /// As settings write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::Fp8 => "fp8",
        }
    }

    /// Whether GPUs do not compute in it.
    fn needs_cpu(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Int8)
    }
}

impl fmt::Display for EncoderPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The form of GELU that every run computes with; earlier versions also had `tanh`, on GPUs.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Gelu {
    #[default]
    Erf,
}

/// `[encoder]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncoderConfig {
    /// `polysift-mini` (bundled), a Hugging Face directory, or a hub id (`FacebookAI/xlm-roberta-base`);
    /// `none` where no head scores embeddings.
    pub model: String,
    /// Revision of a hub id: commit, tag or branch.
    pub revision: Option<String>,
    /// Pooling; `None`: what suits the model.
    #[serde(with = "auto")]
    pub pooling: Option<Pooling>,
    /// Whether embeddings are divided by their L2 norm; `None`: what suits the model.
    #[serde(with = "auto")]
    pub normalize: Option<bool>,
    /// Values that are kept of an embedding, the first ones; `None`: what suits the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<usize>,
    /// Longest chunk in tokens, `<s>` and `</s>` included.
    pub max_tokens: usize,
    /// How many characters (code points) of a document are tokenized, its first ones; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<usize>,
    /// Which chunks are embedded.
    pub chunks: Chunks,
    /// Text put before every document (`query: ` for the E5 models); `None`: the model's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Name of a prompt of the model, in the place of `prompt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_name: Option<String>,
    /// What computes.
    pub device: DeviceChoice,
    /// In what it computes; a run that is resumed keeps the type that it was begun with where this is
    /// `auto`.
    pub precision: EncoderPrecision,
    /// Kept so that the settings of all versions read alike.
    #[doc(hidden)]
    pub gelu: Gelu,
    /// Most tokens in one packed batch; the encoder's own choice when unset. Changes no result on
    /// the CPU, and on a GPU none by more than the rounding of bf16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_tokens: Option<usize>,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self {
            model: DEFAULT_MODEL.into(),
            revision: None,
            pooling: None,
            normalize: None,
            dimensions: None,
            max_tokens: 512, // `xlmr_embeddings.py` of FineWeb2-HQ
            max_chars: None,
            chunks: Chunks::default(),
            prompt: None,
            prompt_name: None,
            device: DeviceChoice::default(),
            precision: EncoderPrecision::default(),
            gelu: Gelu::Erf,
            batch_tokens: None,
        }
    }
}

impl EncoderConfig {
    /// Whether only the CPU computes what is asked for.
    pub fn needs_cpu(&self) -> bool {
        self.device == DeviceChoice::Cpu || self.precision.needs_cpu()
    }

    /// Whether only a GPU computes what is asked for.
    pub fn needs_gpu(&self) -> bool {
        matches!(self.device, DeviceChoice::Cuda(_)) || self.precision == EncoderPrecision::Fp8
    }

    /// Takes `precision`, in which a run was begun, where the settings leave it open and the device
    /// allows it.
    pub fn resume_in(&mut self, precision: EncoderPrecision) {
        let begun = Self { precision, ..self.clone() };
        if self.precision == EncoderPrecision::Auto && !(begun.needs_gpu() && begun.needs_cpu()) {
            self.precision = precision;
        }
    }

    /// Checks that device and type go together.
    pub(super) fn check_device(&self) -> Result<()> {
        if !(self.needs_cpu() && self.needs_gpu()) {
            return Ok(());
        }
        let reason = match self.device {
            DeviceChoice::Cuda(_) => format!(
                "is {}; GPUs compute in bf16 or fp8 (auto, bf16, fp8 are allowed)",
                self.precision
            ),
            _ => "is fp8, which is only for GPUs of compute capability 9.0".into(),
        };
        Err(Error::config("encoder.precision", reason))
    }
}

/// How the values of an embedding are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
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

/// `[parts]`: the embeddings in the run directory. Scores are computed from what is stored, so
/// re-scoring always reproduces them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartsConfig {
    /// Type of the stored values.
    pub embeddings: EmbeddingDtype,
    /// Rows of one part file, the unit of resume.
    pub rows: usize,
    /// Compression level.
    pub zstd: i32,
}

impl Default for PartsConfig {
    fn default() -> Self {
        Self { embeddings: EmbeddingDtype::default(), rows: 16_384, zstd: DEFAULT_ZSTD_LEVEL }
    }
}
