//! The card: what a head file says about itself. No clock and no host, so the same training gives
//! the same bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::HeadSpec;
use crate::config::{FastTextConfig, TextSpec, TrainingConfig};

/// Everything known about a head; JSON under the key `polysift.card` of the file's metadata, or beside
/// a fastText model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// Name of the head.
    pub head: String,
    /// What it computes.
    pub spec: HeadSpec,
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
    pub source: Option<Source>,
    /// The references of a cosine head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub references: Option<ReferenceCounts>,
    /// How it was trained and how well it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingRecord>,
}

impl Card {
    /// The card of a head of which nothing else is known.
    pub(crate) fn new(head: &str, spec: HeadSpec) -> Self {
        Self {
            head: head.to_owned(),
            spec,
            text: None,
            language: None,
            polysift_version: None,
            provenance: None,
            source: None,
            references: None,
            training: None,
        }
    }
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
pub struct Source {
    /// Name of the file, without its folder.
    pub file: String,
    /// BLAKE3 of its bytes, in hex.
    pub blake3: String,
    /// Encoder whose embeddings the head is taken to score; nothing in the file tells it, so it is
    /// not verified.
    pub assumed_encoder: String,
}

/// What a head was trained from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Provenance {
    /// Digest of the encoder that made the embeddings; empty where none were needed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub encoder_digest: String,
    /// Name of that encoder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Digests of the files of labelled samples.
    pub data_digests: Vec<String>,
}

/// How a head was trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingRecord {
    /// Seed of everything random.
    pub seed: u64,
    /// Constants of training, checkpoint rule included; `None` for a cosine head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyperparameters: Option<TrainingConfig>,
    /// How the learning rate changed; `None` where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Samples by split (`train`, `validation`, `test`).
    pub samples: BTreeMap<String, ClassCounts>,
    /// Samples left out because their embedding is not finite.
    pub excluded_samples: usize,
    /// Metrics after each epoch; empty for a cosine head.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochMetrics>,
    /// The epoch whose weights were kept, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_epoch: Option<usize>,
    /// Its loss on the validation split, not rounded, where that is what it was chosen by: in reference
    /// mode the one that counts softmax twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_loss: Option<f64>,
    /// The finished head on the validation split; `None` if that is empty.
    pub validation: Option<Metrics>,
    /// The finished head on the test split; `None` if that is empty.
    pub test: Option<Metrics>,
}

impl TrainingRecord {
    /// The record of a training with `seed`, of which nothing is counted or measured yet.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            hyperparameters: None,
            schedule: None,
            samples: BTreeMap::new(),
            excluded_samples: 0,
            epochs: Vec::new(),
            kept_epoch: None,
            kept_loss: None,
            validation: None,
            test: None,
        }
    }
}

/// Samples by label.
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
    /// Mean loss of reference mode on the validation split (softmax twice); only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_loss: Option<f64>,
}

/// A learning rate that rises linearly from 0, then falls linearly to 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Steps in which it rises.
    pub warm_up_steps: usize,
    /// All steps of the training.
    pub steps: usize,
}

/// How well scores separate the labels. A document is called positive if its score is above 0.5;
/// what is undefined (no such document) is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct Metrics {
    /// Documents with a score.
    pub num_samples: usize,
    /// Mean binary cross-entropy of the logits; `None` for a cosine head.
    pub loss: Option<f64>,
    /// Share of documents called right.
    pub accuracy: Option<f64>,
    /// Share of positives among those called positive.
    pub precision: Option<f64>,
    /// Share of those called positive among the positives.
    pub recall: Option<f64>,
    /// Harmonic mean of precision and recall.
    pub f1: Option<f64>,
    /// Probability that a positive scores above a negative, a tie counting one half.
    pub roc_auc: Option<f64>,
}

/// `value` with six decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl Metrics {
    /// Rounded to six decimals, for a card that people read; no split is so large that more would mean anything.
    pub(crate) fn rounded(self) -> Self {
        let round = |value: Option<f64>| value.map(rounded);
        Self {
            num_samples: self.num_samples,
            loss: round(self.loss),
            accuracy: round(self.accuracy),
            precision: round(self.precision),
            recall: round(self.recall),
            f1: round(self.f1),
            roc_auc: round(self.roc_auc),
        }
    }
}
