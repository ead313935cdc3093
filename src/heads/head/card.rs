//! The model card, which describes a head in its file. It contains no time and no host name, so
//! that equal trainings give equal bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use polysift_base::metrics::Metrics;
use polysift_config::{
    Activation, Centering, ChunkRule, FastTextConfig, HeadConfig, HeadKind, HeadOutput, Keep,
    Negatives, TextSpec, TrainingConfig, is_default,
};
use polysift_encoder::Recipe;

/// A head: its card, and what computes its scores.
#[derive(Debug, Clone)]
pub struct HeadOf<S> {
    /// The model card, which says what the head computes and where it comes from.
    pub card: ModelCard,
    /// The part of the head that computes the scores.
    pub scorer: S,
    /// BLAKE3 of the file's bytes, in hex. It does not cover settings that override the file's
    /// card. A head without a file has the digest of its source as JSON.
    pub digest: String,
}

/// Definition of what a head computes; part of the [`ModelCard`] in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct HeadSpec {
    /// Kind of model that computes the score.
    pub kind: HeadKind,
    /// Widths of all layers: input `D`, hidden layers, outputs. A cosine head has `[D, K]` for `K`
    /// references, a fastText head `[dim, labels]`, a head of rows none.
    pub layer_sizes: Vec<usize>,
    /// Activation between the linear layers of an MLP; the tensors tell its place beside norms.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Number that layer norms add to the variance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_eps: Option<f64>,
    /// How the outputs become the score.
    pub output: HeadOutput,
    /// Which chunks count. The rule works on logits; `output` is applied to the resulting logit.
    pub chunk: ChunkRule,
    /// Which side of a threshold is kept.
    pub keep: Keep,
}

impl HeadSpec {
    /// Sets what `config` says of the head called `name`: output, chunk rule and kept side.
    pub(crate) fn configured(self, config: &HeadConfig, name: &str) -> Self {
        let (output, chunk) = (config.output(name), config.chunk(name));
        Self { output, chunk, keep: config.keep(name), ..self }
    }

    /// Describes the layers for people: their widths, and what stands between them besides ReLU.
    pub fn layers_in_words(&self) -> String {
        let sizes: Vec<String> = self.layer_sizes.iter().map(ToString::to_string).collect();
        let activation = match self.activation {
            Activation::Relu => "",
            Activation::Tanh => " tanh",
            Activation::Gelu => " gelu",
        };
        let norm = if self.norm_eps.is_some() { " norm" } else { "" };
        format!("{}{activation}{norm}", sizes.join("-"))
    }

    /// Checks that `output` fits the number of outputs; the error text says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let outputs = self.layer_sizes.last().copied().unwrap_or_default();
        match (self.kind, self.output) {
            (HeadKind::Cosine, HeadOutput::Raw) => Ok(()),
            (HeadKind::Cosine, other) => Err(format!(
                "a cosine head's score is the similarity itself (`raw`), not `{other}`"
            )),
            (_, output) if output.fits(outputs) => Ok(()),
            (_, output) => Err(format!(
                "`{output}` does not fit {outputs} output(s): `sigmoid` and `raw` need 1, `sigmoid:K` \
                 more than K, `class:K` and `expected` at least 2"
            )),
        }
    }
}

/// Key of the [`ModelCard`] in the metadata of a head file.
pub(super) const CARD_KEY: &str = "polysift.card";

/// Everything known about a head: JSON in its file's metadata, or beside a fastText model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ModelCard {
    /// Name of the head.
    pub head: String,
    /// What the head computes.
    pub spec: HeadSpec,
    /// Names of the outputs, if the file that the head was imported from has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// How texts become the words of a fastText head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextCard>,
    /// Language code of the samples, or the one that an import found or was given, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Version of polysift that trained the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polysift_version: Option<String>,
    /// What the head was trained from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Where an imported head comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ImportSource>,
    /// Counts of the references of a cosine head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<ReferenceCounts>,
    /// How the head was trained, and its metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingRecord>,
}

/// How a fastText head treats texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextCard {
    /// How a text becomes words.
    pub spec: TextSpec,
    /// BLAKE3 of the model file, in hex.
    pub model_digest: String,
    /// Longest n-gram of words.
    pub word_ngrams: usize,
    /// Settings of the training; `None` for a file that polysift did not write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<FastTextConfig>,
}

/// The file that a head was imported from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSource {
    /// Name of the file or model, without its folder.
    pub file: String,
    /// BLAKE3 of the file's bytes, in hex, or the digest of the model.
    pub blake3: String,
    /// Encoder and pooling of the embeddings that the head is assumed to score. Only models state
    /// it, and their pooling is not verified.
    pub assumed_encoder: String,
}

/// What a head was trained from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Provenance {
    /// Digest of the encoder of the embeddings; empty if there was none or it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub encoder_digest: String,
    /// Recipe of the embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// [`Recipe::digest`]; empty if files of the encoder are not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recipe_digest: String,
    /// Name of the encoder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Digests of the files of labelled samples.
    pub data_digests: Vec<String>,
}

/// How a head was trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct TrainingRecord {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Hyperparameters of an MLP, checkpoint rule included; `None` for other heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyperparameters: Option<TrainingConfig>,
    /// scikit-learn's C of a logistic head or 1 / alpha of a ridge head, by the validation loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverse_penalty: Option<f64>,
    /// Schedule of the learning rate; `None` if it was constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// How negatives were drawn from the corpus; they are among the samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negatives: Option<Negatives>,
    /// Samples by split (`train`, `validation`, `test`).
    pub samples: BTreeMap<String, LabelCounts>,
    /// Digest of the test split's texts. Heads with equal digests were tested on the same texts.
    pub test_digest: Option<String>,
    /// Number of samples left out because their embedding is not finite.
    pub excluded_samples: usize,
    /// Metrics after each epoch, or after some of many; empty for heads that are not MLPs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochMetrics>,
    /// Number of the epoch whose weights were kept, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_epoch: Option<usize>,
    /// Validation loss of the kept weights, rounded for a linear head. For a published head of
    /// classes it is the loss that applies softmax twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_loss: Option<f64>,
    /// Metrics of the finished head on the validation split; `None` if that is empty.
    pub validation: Option<Metrics>,
    /// Metrics of the finished head on the test split; `None` if that is empty.
    pub test: Option<Metrics>,
    /// Metrics on the test split of a linear baseline, trained on the same split (not for cosine
    /// heads): a logistic head, or a ridge head for grades. `None` in published mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_test: Option<Metrics>,
    /// Metrics of training with a quarter, half and all of the training split. Empty in published
    /// mode, without a test split, and for a cosine head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learning_curve: Vec<LearningPoint>,
}

/// Statistics of the labels of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LabelCounts {
    /// Labels are classes.
    Classes {
        /// Samples of the positive class (toxic for example).
        positive: usize,
        /// Samples of the other class.
        negative: usize,
    },
    /// Labels are grades.
    Grades {
        /// Number of samples.
        num_samples: usize,
        /// Mean grade.
        mean: f64,
        /// Standard deviation of the grades.
        deviation: f64,
        /// Lowest grade.
        lowest: f64,
        /// Highest grade.
        highest: f64,
    },
}

impl LabelCounts {
    /// Returns the number of samples.
    pub fn num_samples(&self) -> usize {
        match self {
            Self::Classes { positive, negative } => positive + negative,
            Self::Grades { num_samples, .. } => *num_samples,
        }
    }
}

/// How the references of a cosine head were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ReferenceCounts {
    /// Requested number K (for a foreign file: the rows of its matrix).
    pub requested: usize,
    /// Positives to sample from, without positives of zero norm. All are used if K is larger.
    pub available: usize,
    /// Positives left out because their norm is zero.
    pub zero_norm: usize,
    /// Centering of embeddings before they are compared; the references had it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<Centering>,
    /// Number of negatives of the training split that the mean comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center_rows: Option<usize>,
}

/// Result of training with a part of the training split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningPoint {
    /// Number of training samples.
    pub num_samples: usize,
    /// Metrics on the test split.
    pub test: Metrics,
}

/// Metrics after one epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// Number of the epoch, counted from 1.
    pub epoch: usize,
    /// Metrics on the training split, without dropout.
    pub train: Option<Metrics>,
    /// Metrics on the validation split; `None` if that is empty.
    pub validation: Option<Metrics>,
    /// Mean validation loss of published mode (softmax twice); `None` in other modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_loss: Option<f64>,
}

/// A learning rate that rises linearly from 0, then falls linearly to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Number of steps in which the rate rises.
    pub warm_up_steps: usize,
    /// Number of all steps.
    pub steps: usize,
}
