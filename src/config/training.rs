//! `[heads.<name>.training]`: how a head is trained.

use serde::{Deserialize, Serialize};

use super::Mode;

/// Which epoch's weights become the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Checkpoint {
    /// The last (the quality head of FineWeb2-HQ).
    #[default]
    Last,
    /// The one with the best validation accuracy, the earliest of equals (the toxicity head of
    /// Apertus as its paper tells it).
    Best,
    /// The one with the lowest validation loss, the earliest of equals (the toxicity head of Apertus
    /// as its code does it).
    LowestLoss,
}

/// `[heads.<name>.training]`; the defaults are those of FineWeb2-HQ `train_mlp.py`, in published
/// mode those of Apertus's toxicity head.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingConfig {
    /// Cross-entropy of the outputs, constant learning rate, a test split that nothing is chosen by; or
    /// as the published code trains the toxicity head: cross-entropy of the softmax of the
    /// probabilities (softmax twice), learning rate rising over [`TrainingConfig::WARM_UP_STEPS`]
    /// steps and falling to 0, the epoch of the lowest such loss, no test split.
    #[serde(skip_serializing_if = "Mode::is_default")]
    pub mode: Mode,
    /// Passes over the training split.
    pub epochs: usize,
    /// Samples per step, the last partial batch is kept; 256 when unset, 64 in published mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// AdamW learning rate: constant, in published mode the highest.
    pub learning_rate: f64,
    /// AdamW weight decay.
    pub weight_decay: f64,
    /// Dropout between hidden layers.
    pub dropout: f64,
    /// Which epoch's weights are kept; the preset and the mode decide when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

impl Default for TrainingConfig {
    fn default() -> Self {
        Self {
            mode: Mode::Default,
            epochs: 6,
            batch_size: None,
            learning_rate: 3e-4,
            weight_decay: 0.01,
            dropout: 0.2,
            checkpoint: None,
        }
    }
}

impl TrainingConfig {
    /// Steps in which published mode raises the learning rate from 0.
    pub const WARM_UP_STEPS: usize = 200;

    /// Samples per step, from the mode when unset.
    pub fn batch_size(&self) -> usize {
        self.batch_size.unwrap_or(match self.mode {
            Mode::Default => 256,
            Mode::Published => 64,
        })
    }
}
