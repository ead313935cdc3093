//! The model card: what a head file says about itself. No clock and no host, so the same training
//! gives the same bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use polysift_base::metrics::Metrics;
use polysift_config::{
    Activation, Centering, ChunkRule, FastTextConfig, HeadConfig, HeadKind, HeadOutput, Keep,
    TextSpec, TrainingConfig,
};
use polysift_encoder::Recipe;

/// What a head computes; stored in its file as part of the [`ModelCard`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct HeadSpec {
    /// What computes the score.
    pub kind: HeadKind,
    /// Widths of all layers: input `D`, hidden..., outputs; of a cosine head `[D, K]`, `K` references;
    /// of a fastText head `[dim, labels]`; none of a head of rows.
    pub layer_sizes: Vec<usize>,
    /// What stands between the linear layers of an MLP; where norms do, the tensors and their places tell.
    #[serde(default, skip_serializing_if = "Activation::is_relu")]
    pub activation: Activation,
    /// What these norms add to the variance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm_eps: Option<f64>,
    /// What makes the score of the outputs.
    pub output: HeadOutput,
    /// Which chunks count; decided on logits, `output` is applied to the resulting logit.
    pub chunk: ChunkRule,
    /// Which side of a threshold is kept.
    pub keep: Keep,
}

impl HeadSpec {
    /// What the settings of the head called `name` say.
    pub(crate) fn of_config(config: &HeadConfig, name: &str, layer_sizes: Vec<usize>) -> Self {
        Self {
            kind: config.kind,
            layer_sizes,
            activation: Activation::Relu,
            norm_eps: None,
            output: config.output(name),
            chunk: config.chunk(name),
            keep: config.keep(name),
        }
    }

    /// Its layers for people: their widths, and what stands between them if that is not ReLU.
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

    /// Checks that `output` fits the number of outputs; the text says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let outputs = self.layer_sizes.last().copied().unwrap_or_default();
        match (self.kind, self.output) {
            (HeadKind::Cosine, HeadOutput::Raw) => Ok(()),
            (HeadKind::Cosine, other) => Err(format!(
                "a cosine head's score is the similarity itself (`raw`), not `{other}`"
            )),
            (HeadKind::FastText | HeadKind::Lexical, _) => {
                Err("scores texts, not embeddings".to_owned())
            }
            (HeadKind::Column | HeadKind::Random, _) => Err("has no file".to_owned()),
            (_, output) if output.fits(outputs) => Ok(()),
            (_, output) => Err(format!(
                "`{output}` does not fit {outputs} output(s): `sigmoid` and `raw` need 1, `sigmoid:K` \
                 more than K, `class:K` and `expected` at least 2"
            )),
        }
    }
}

/// Everything known about a head; JSON under the key `polysift.card` of the file's metadata, or beside
/// a fastText model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct ModelCard {
    /// Name of the head.
    pub head: String,
    /// What it computes.
    pub spec: HeadSpec,
    /// Names of the outputs, where the file that it was imported from has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// How texts become the words of a fastText head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextCard>,
    /// Language code of its samples; `None` for a file that polysift did not write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Version of polysift that trained it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polysift_version: Option<String>,
    /// What it was trained from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Where an imported head comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ImportSource>,
    /// The references of a cosine head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<ReferenceCounts>,
    /// How it was trained and how well it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingRecord>,
}

/// What a fastText head does with texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextCard {
    /// How a text becomes words.
    pub spec: TextSpec,
    /// BLAKE3 of the model file, in hex.
    pub model_digest: String,
    /// Longest n-gram of words.
    pub word_ngrams: usize,
    /// Settings of its training; `None` for a file that polysift did not write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<FastTextConfig>,
}

/// The file that a head was imported from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSource {
    /// Name of the file or model, without its folder.
    pub file: String,
    /// BLAKE3 of its bytes, in hex; of a model its digest.
    pub blake3: String,
    /// Encoder and pooling whose embeddings the head is taken to score; only a model says it, and its
    /// pooling is not verified.
    pub assumed_encoder: String,
}

/// What a head was trained from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Provenance {
    /// Digest of the encoder that made the embeddings; empty where none were needed, or it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub encoder_digest: String,
    /// How it made them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Recipe>,
    /// [`Recipe::digest`]; empty where files of the encoder are not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recipe_digest: String,
    /// Name of that encoder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Digests of the files of labelled samples.
    pub data_digests: Vec<String>,
}

/// How a head was trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct TrainingRecord {
    /// Seed of everything random.
    pub seed: u64,
    /// Constants of training, checkpoint rule included; `None` for a cosine head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyperparameters: Option<TrainingConfig>,
    /// scikit-learn's C of a logistic head and 1 / alpha of a ridge head, chosen by the validation loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverse_penalty: Option<f64>,
    /// How the learning rate changed; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Samples by split (`train`, `validation`, `test`).
    pub samples: BTreeMap<String, LabelCounts>,
    /// Digest of the texts of the test split; heads with equal digests were tested on the same texts.
    pub test_digest: Option<String>,
    /// Samples left out because their embedding is not finite.
    pub excluded_samples: usize,
    /// Metrics after each epoch, of many epochs after some; empty for a logistic and a cosine head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochMetrics>,
    /// The epoch whose weights were kept, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_epoch: Option<usize>,
    /// Its loss on the validation split, not rounded; of a published head of classes the one that counts
    /// softmax twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_loss: Option<f64>,
    /// The finished head on the validation split; `None` if that is empty.
    pub validation: Option<Metrics>,
    /// The finished head on the test split; `None` if that is empty.
    pub test: Option<Metrics>,
    /// A logistic head, for grades a ridge head, that was trained on the same split, on the test split: what an
    /// MLP is measured against. `None` in published mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear_test: Option<Metrics>,
    /// The same training with a fourth and a half of the training split, then with all of it; empty in
    /// published mode, without a test split, and for a cosine head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learning_curve: Vec<LearningPoint>,
}

/// The labels of some samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LabelCounts {
    /// Of classes.
    Classes(ClassCounts),
    /// Grades.
    Grades(GradeCounts),
}

impl LabelCounts {
    /// Their number.
    pub fn num_samples(&self) -> usize {
        match self {
            Self::Classes(counts) => counts.positive + counts.negative,
            Self::Grades(counts) => counts.num_samples,
        }
    }
}

/// Samples with grades.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradeCounts {
    /// Their number.
    pub num_samples: usize,
    /// Mean grade.
    pub mean: f64,
    /// Standard deviation of the grades.
    pub deviation: f64,
    /// Lowest grade.
    pub lowest: f64,
    /// Highest grade.
    pub highest: f64,
}

/// Samples by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ClassCounts {
    /// Samples of the positive (toxic...) class.
    pub positive: usize,
    /// Samples of the other class.
    pub negative: usize,
}

/// How the references of a cosine head were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ReferenceCounts {
    /// Number K that was asked for (of a foreign file: the rows of its matrix).
    pub requested: usize,
    /// Positives to sample from, those of zero norm not counted; all are used if K is larger.
    pub available: usize,
    /// Those left out because their norm is zero.
    pub zero_norm: usize,
    /// What is done to embeddings before they are compared, and was to the references.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<Centering>,
    /// Negatives of the training split whose mean, and covariance, that takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center_rows: Option<usize>,
}

/// What a part of the training split would have given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningPoint {
    /// Samples that were learned from.
    pub num_samples: usize,
    /// On the test split.
    pub test: Metrics,
}

/// Metrics after one epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// Counted from 1.
    pub epoch: usize,
    /// On the training split, dropout off.
    pub train: Option<Metrics>,
    /// On the validation split; `None` if that is empty.
    pub validation: Option<Metrics>,
    /// Mean loss of published mode on the validation split (softmax twice); only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_loss: Option<f64>,
}

/// A learning rate that rises linearly from 0, then falls linearly to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Steps in which it rises.
    pub warm_up_steps: usize,
    /// All steps of the training.
    pub steps: usize,
}
