//! Recipes of published heads: how their embeddings are made, which their files do not say.

use clap::ValueEnum;

use polysift_config::{HeadOutput, Pooling, Preset};
use polysift_encoder::Recipe;

/// Groups of published heads that share an encoder, recipe and output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PublishedRecipe {
    /// FineWeb2-HQ, FineWeb-HQ: XLM-R base, mean
    Fineweb2Hq,
    /// Toxicity of Apertus: XLM-R base, mean, class 1, the largest of all chunks
    Apertus,
    /// JQL: arctic-embed-m-v2.0, first token, normalised, 8,192 tokens
    Jql,
    /// FineWeb-Edu: arctic-embed-m, first token
    FinewebEdu,
    /// FinePDFs: the encoder in the model itself, mean, 2,048 tokens of the first 10,000 characters
    Finepdfs,
    /// Registers of HPLT: the encoder in the model itself, first token
    HpltRegisters,
}

pub(super) struct Published {
    pub(super) encoder: &'static str,
    pub(super) preset: Preset,
    /// `None` if each output is a label of its own.
    pub(super) output: Option<HeadOutput>,
    /// The recipe without the digest of the encoder, which the publishers do not state.
    pub(super) recipe: Recipe,
}

impl PublishedRecipe {
    pub(super) fn describe(self) -> Published {
        const XLM_R: &str = "FacebookAI/xlm-roberta-base";
        const ARCTIC: &str = "Snowflake/snowflake-arctic-embed-m";
        const ARCTIC_2: &str = "Snowflake/snowflake-arctic-embed-m-v2.0";
        // These encoders were trained with the head: mmBERT or ModernBERT, and XLM-R large.
        const OWN: &str = "that of the model";
        let (encoder, pooling, max_tokens, output) = match self {
            Self::Fineweb2Hq => (XLM_R, Pooling::Mean, 512, Some(HeadOutput::Sigmoid)),
            Self::Apertus => (XLM_R, Pooling::Mean, 512, Some(HeadOutput::Class(1))),
            Self::Jql => (ARCTIC_2, Pooling::Cls, 8192, Some(HeadOutput::Raw)),
            Self::FinewebEdu => (ARCTIC, Pooling::Cls, 512, Some(HeadOutput::Raw)),
            Self::Finepdfs => (OWN, Pooling::Mean, 2048, Some(HeadOutput::Raw)),
            Self::HpltRegisters => (OWN, Pooling::Cls, 512, None),
        };
        let preset = if self == Self::Apertus { Preset::Toxicity } else { Preset::Quality };
        let normalize = self == Self::Jql;
        let max_chars = (self == Self::Finepdfs).then_some(10_000);
        let recipe = Recipe { pooling, normalize, max_tokens, max_chars, ..Recipe::default() };
        Published { encoder, preset, output, recipe }
    }
}
