//! `[encoder]` and `[parts]`: how text becomes embeddings and how embeddings are stored.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::amounts::as_text;
use super::{DEFAULT_MODEL, DEFAULT_ZSTD_LEVEL};
use polysift_base::error::{Error, Result};

/// How token states are pooled into one vector per chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// Mean of all tokens except padding, special tokens included.
    #[default]
    Mean,
    /// State of the first token (`<s>`, `[CLS]`).
    Cls,
    /// State of the last token, which is a special token if the tokenizer appends one.
    Last,
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Serialization of a setting in which `None` is written as `"auto"`.
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
    /// Only the first chunk; enough for heads with `chunk = "first"`.
    #[default]
    First,
    /// All chunks, without overlap.
    All,
}

/// Number format of the encoder's computations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EncoderPrecision {
    /// The best format for the device: bf16 on a GPU, the fastest of f32, bf16 and f16 on a CPU.
    #[default]
    Auto,
    /// f32. CPU only.
    F32,
    /// bf16 products; sums, layer norm and pooling in f32.
    Bf16,
    /// f16 products, summed in f16 over short stretches and in f32 beyond. CPU only.
    F16,
    /// 8-bit integers; weights scaled per output, states centred and scaled per token. CPU only.
    Int8,
    /// 8-bit floating-point (e4m3) products; weights are scaled per output, states by constants;
    /// attention is in bf16. Only GPUs of compute capability 9.0.
    Fp8,
}

impl fmt::Display for EncoderPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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

/// Device of the encoder: `auto`, `cpu`, `cuda` or `cuda:0,2`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// `auto`: all suitable GPUs, or the CPU if there is none.
    #[default]
    Auto,
    /// `cpu`: the CPU.
    Cpu,
    /// `cuda:0,2`: the GPUs with these numbers, each named once; `cuda`: all suitable GPUs.
    Cuda(Vec<usize>),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `parse` would accept a sign.
        let is_number = |number: &&str| number.bytes().all(|b| b.is_ascii_digit());
        let number = |number| Some(number).filter(is_number)?.parse().ok();
        let numbers = text.strip_prefix("cuda:").map(|numbers| numbers.split(',').map(number));
        let ordinals: Option<Vec<usize>> = numbers.and_then(Iterator::collect);
        let is_set = |of: &Vec<usize>| (1..of.len()).all(|at| !of[..at].contains(&of[at]));
        match (text, ordinals.filter(is_set)) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(Vec::new())),
            (_, Some(ordinals)) => Ok(Self::Cuda(ordinals)),
            _ => Err(format!(
                "`{text}` is no device; allowed are auto, cpu, cuda, and numbers of GPUs, each \
                 once, as in cuda:0,2"
            )),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinals) if ordinals.is_empty() => f.write_str("cuda"),
            Self::Cuda(ordinals) => {
                let numbers: Vec<String> = ordinals.iter().map(ToString::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
        }
    }
}

as_text!(DeviceChoice);

/// The table `[encoder]` chooses the model and says how texts become embeddings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct EncoderConfig {
    /// The encoder: `polysift-mini` (bundled), a directory in the form of Hugging Face, or an id of
    /// its hub (`FacebookAI/xlm-roberta-base`); `none` if no head scores embeddings.
    #[default(DEFAULT_MODEL.to_owned())]
    pub model: String,
    /// Revision of a hub id: a commit, a tag or a branch. Default: `main`.
    pub revision: Option<String>,
    /// How token states become one vector per chunk; `auto` does what the model expects.
    #[serde(with = "auto")]
    pub pooling: Option<Pooling>,
    /// Divide embeddings by their L2 norm; `auto` does what the model expects.
    #[serde(with = "auto")]
    pub normalize: Option<bool>,
    /// Number of leading values that are kept of each embedding. Default: what the model expects,
    /// mostly all.
    pub dimensions: Option<usize>,
    /// Maximum tokens per chunk, special tokens such as `<s>` and `</s>` included; at least 3.
    #[default = 512] // `xlmr_embeddings.py` of FineWeb2-HQ
    pub max_tokens: usize,
    /// Maximum characters (code points) per document; the rest is ignored. Default: no limit.
    pub max_chars: Option<usize>,
    /// Which chunks are embedded.
    pub chunks: Chunks,
    /// Text that is put before every document, such as `query: ` for the E5 models. Default: the
    /// model's own.
    pub prompt: Option<String>,
    /// Name of one of the model's own prompts, to use instead of `prompt`.
    pub prompt_name: Option<String>,
    /// Device that computes the embeddings.
    pub device: DeviceChoice,
    /// Number format of the computation. With `auto`, a resumed run keeps the format it began with.
    pub precision: EncoderPrecision,
    /// Kept so that the settings of all versions read alike.
    #[doc(hidden)]
    pub gelu: Gelu,
    /// Maximum tokens per packed batch, at least `encoder.max_tokens`; it does not change results.
    /// Default: 16384 on a CPU, 67584 on a GPU.
    pub batch_tokens: Option<usize>,
}

impl EncoderConfig {
    /// Returns true if only the CPU supports these settings.
    pub fn needs_cpu(&self) -> bool {
        use EncoderPrecision::{F16, F32, Int8};
        self.device == DeviceChoice::Cpu || matches!(self.precision, F32 | F16 | Int8)
    }

    /// Returns true if only a GPU supports these settings.
    pub fn needs_gpu(&self) -> bool {
        matches!(self.device, DeviceChoice::Cuda(_)) || self.precision == EncoderPrecision::Fp8
    }

    /// Sets `precision`, with which a run began, if it is left open and the device allows it.
    pub fn resume_in(&mut self, precision: EncoderPrecision) {
        let begun = Self { precision, ..self.clone() };
        if self.precision == EncoderPrecision::Auto && !(begun.needs_gpu() && begun.needs_cpu()) {
            self.precision = precision;
        }
    }

    /// Checks that the chosen device computes in the chosen precision.
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

/// Type of stored embedding values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EmbeddingDtype {
    /// f32, as computed.
    #[default]
    F32,
    /// Half precision (f16).
    F16,
    /// Rounded to bf16 but stored as f32, the type users expect; a third of the bytes after zstd.
    Bf16InF32,
}

/// The table `[parts]` says how embeddings are stored in the run directory. Scores are computed
/// from the stored values, so re-scoring always reproduces them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct PartsConfig {
    /// Type of the stored values.
    pub embeddings: EmbeddingDtype,
    /// Documents per part file. A process that was killed loses at most the part it worked on.
    #[default = 16_384]
    pub rows: usize,
    /// Compression level of zstd, 1 to 22.
    #[default(DEFAULT_ZSTD_LEVEL)]
    pub zstd: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_displayed_as_it_was_written() -> Result<(), String> {
        for text in ["auto", "cpu", "cuda", "cuda:0", "cuda:2,0"] {
            assert_eq!(text.parse::<DeviceChoice>()?.to_string(), text);
        }
        assert_eq!("cuda:0,2".parse(), Ok(DeviceChoice::Cuda(vec![0, 2])));
        Ok(())
    }

    #[test]
    fn what_is_no_device_is_refused_with_what_is_allowed() {
        for text in ["gpu", "cpu:0", "CUDA", "", "cuda:", "cuda:0,", "cuda:+1", "cuda:0,1,0"] {
            let message = text.parse::<DeviceChoice>().err().unwrap_or_default();
            let expected = format!("`{text}` is no device; ");
            assert!(message.contains(&expected) && message.contains("cuda:0,2"), "{message}");
        }
    }
}
