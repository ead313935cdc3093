//! The parts of frozen settings that later stages and views read: embeddings and trained heads.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use polysift_base::error::{Error, Result};
use polysift_config::{EmbeddingDtype, EncoderPrecision, NO_MODEL, PartsConfig, RunConfig};
use polysift_encoder::{Model, Recipe};
use polysift_runs::run::{RunDir, Stage};

/// Stands for the digest of the encoder if the input brings embeddings.
const FOREIGN_ENCODER: &str = "embeddings from the input";

/// The source of embeddings: the encoder with its precision, but not its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FrozenEncoder {
    /// The encoder of the run.
    Run {
        /// How texts become embeddings.
        #[serde(flatten)]
        recipe: Recipe,
        /// Type of the computation.
        precision: EncoderPrecision,
    },
    /// No encoder of the run.
    Other {
        /// Names what replaces the encoder: nothing, or embeddings from the input.
        digest: String,
    },
}

impl FrozenEncoder {
    /// Describes the encoder of these settings; `model` is `None` if no text is embedded.
    pub fn of(config: &RunConfig, model: Option<&Model>) -> Self {
        match model {
            Some(model) => {
                Self::Run { recipe: model.recipe.clone(), precision: model.placement.precision }
            }
            None if config.has_embeddings() => Self::Other { digest: FOREIGN_ENCODER.to_owned() },
            None => Self::Other { digest: NO_MODEL.to_owned() },
        }
    }

    /// Returns the digest of the encoder, or the name of what replaces it.
    pub fn digest(&self) -> &str {
        match self {
            Self::Run { recipe, .. } => &recipe.model_digest,
            Self::Other { digest } => digest,
        }
    }

    /// Returns true if the embeddings come from the input, which does not say what made them.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Other { digest } if digest == FOREIGN_ENCODER)
    }
}

/// How embeddings were made: of the corpus in the embed and cascade stages, of samples in training.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct FrozenEmbeddings {
    /// The source of the embeddings; `None` before the stage, or if all trained heads score texts.
    pub encoder: Option<FrozenEncoder>,
    /// Type of the stored values of samples.
    embeddings: Option<EmbeddingDtype>,
    /// How parts of the corpus are stored.
    parts: Option<PartsConfig>,
    /// Whether the tokens of whole documents were counted.
    #[serde(default)]
    pub counts_tokens: bool,
}

impl FrozenEmbeddings {
    /// Reads what `stage` of `run` froze; the default before the stage.
    pub fn read(run: &RunDir, stage: Stage) -> Result<Self> {
        Ok(read_frozen(run, stage)?.unwrap_or_default())
    }

    /// Returns the type of the stored values; `None` before the stage.
    pub fn dtype(&self) -> Option<EmbeddingDtype> {
        self.embeddings.or(self.parts.as_ref().map(|parts| parts.embeddings))
    }

    /// Returns the precision of the run's encoder; `None` if it did not make the embeddings.
    pub fn precision(&self) -> Option<EncoderPrecision> {
        match &self.encoder {
            Some(FrozenEncoder::Run { precision, .. }) => Some(*precision),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct FrozenTraining {
    heads: BTreeMap<String, FrozenHead>,
}

#[derive(Deserialize)]
struct FrozenHead {
    /// Digests of the samples by language.
    samples: Map<String, Value>,
}

/// Returns the keys of the heads that are trained in `run`; `None` before training starts.
pub fn trained_keys(run: &RunDir) -> Result<Option<Vec<String>>> {
    let Some(FrozenTraining { heads }) = read_frozen(run, Stage::Train)? else { return Ok(None) };
    let keys_of = |(name, head): (&String, &FrozenHead)| -> Vec<String> {
        head.samples.keys().map(|language| format!("{name}/{language}")).collect()
    };
    Ok(Some(heads.iter().flat_map(keys_of).collect()))
}

/// Reads what `stage` froze, as far as `T` has it; `None` before the stage.
fn read_frozen<T: DeserializeOwned>(run: &RunDir, stage: Stage) -> Result<Option<T>> {
    let Some(settings) = run.frozen_settings(stage)? else { return Ok(None) };
    serde_json::from_value(settings).map(Some).map_err(|e| {
        let reason = format!("frozen/{}.json is not what the stage writes: {e}", stage.name());
        Error::corrupt(run.root(), reason)
    })
}
