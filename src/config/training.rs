//! `[heads.<name>.training]` and `[heads.<name>.negatives]`: how a head is trained, and which
//! negatives it draws from the corpus.

use serde::{Deserialize, Serialize};

use super::{Mode, Wrong, is_default};

/// Training loss of an MLP, which also determines the type of the labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Cross-entropy of two classes.
    #[default]
    CrossEntropy,
    /// Squared error of grades.
    SquaredError,
    /// Squared error, but absolute error beyond one standard deviation; outliers count less.
    Huber,
    /// Ranked probability score of the grades 0 to K, with one output for each grade: the squared
    /// differences of the cumulative probabilities, so that near misses cost less than far ones.
    Ordinal,
}

/// Which epoch's weights become the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Checkpoint {
    /// The last epoch (FineWeb2-HQ's quality head).
    Last,
    /// The epoch with the best validation accuracy, the first on ties (Apertus's toxicity paper).
    /// Only for heads of classes.
    Best,
    /// The epoch with the lowest validation loss, the first on ties (Apertus's toxicity code).
    #[default]
    LowestLoss,
}

/// The table `[heads.NAME.training]` says how an MLP head is trained; the other kinds of heads that
/// take it use none of it. Defaults depend on the number of samples; published mode has its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct TrainingConfig {
    /// Training procedure. `default` standardises the inputs, takes enough steps for the
    /// samples, keeps the epoch with the lowest validation loss, and chooses the weight decay by
    /// that loss. `published` trains a head with one output as FineWeb2-HQ's `train_mlp.py` does,
    /// and a head of classes as Apertus's toxicity head: with the cross-entropy of the softmax of
    /// the probabilities (softmax twice), a learning rate that rises over 200 steps and then falls
    /// to 0, and no test split.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: Mode,
    /// Training loss. Default: `cross-entropy`; `squared-error` for the kind `ridge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Maximum passes over the training split. Training stops early if a quarter of them bring no
    /// better checkpoint, but not in published mode. Default: 6, or as many as make 600 steps; 6 in
    /// published mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<usize>,
    /// Samples per step; the last, partial batch is kept. Default: an eighth of the training split,
    /// between 32 and 256; in published mode 256, or 64 for a head of classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<usize>,
    /// Learning rate of AdamW. It is constant; for a head of classes in published mode it is the
    /// peak of the schedule. Default: 0.001; 0.0003 in published mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Weight decay of AdamW. Default: 0.01, 1 or 10, whichever has the lowest validation loss;
    /// 0.01 in published mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Dropout between the hidden layers. Default: 0.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropout: Option<f64>,
    /// Which epoch's weights become the head. Default: `lowest-loss`; `last` for a head with one
    /// output in published mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

impl TrainingConfig {
    /// Warm-up steps of a head of classes in published mode.
    pub const WARM_UP_STEPS: usize = 200;
    /// Minimum number of training steps.
    pub const MIN_STEPS: usize = 600;
    /// Candidates for the weight decay.
    pub const WEIGHT_DECAYS: [f64; 3] = [0.01, 1.0, 10.0];
    /// Minimum number of epochs, and the number of epochs in published mode.
    pub(super) const MIN_EPOCHS: usize = 6;
}

/// The table `[heads.NAME.negatives]` draws negatives from the documents of the run: a uniform
/// sample that the seed determines, of distinct texts, none of which is a sample. A head that
/// learns from several languages draws equally many of each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negatives {
    /// Number of negatives for each head that is trained.
    pub corpus: usize,
    /// Quantiles of a first head's scores between which the negatives lie, as in `[0.5, 0.75]`. The
    /// first head draws from the whole corpus. For heads on embeddings. Default: the whole corpus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<[f64; 2]>,
    /// Number of heads that are trained one after another; each takes its negatives by the scores
    /// of the one before, and the last one stays. Default: 2 with `quantiles`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<usize>,
}

impl Negatives {
    /// Returns the number of heads that are trained one after another.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quantiles.is_some() { 2 } else { 1 })
    }

    /// Returns how many documents are drawn, of which `wanted` lie between the quantiles.
    pub fn num_drawn(&self, wanted: usize) -> usize {
        self.quantiles.map_or(wanted, |[low, high]| (wanted as f64 / (high - low)).ceil() as usize)
    }

    /// Returns the first key with a value that is not allowed.
    pub(super) fn wrong(&self, is_of_texts: bool) -> Option<Wrong> {
        let is_range = |[low, high]: [f64; 2]| 0.0 <= low && low < high && high <= 1.0;
        let rounds = self.rounds();
        if self.corpus == 0 {
            Some(("negatives.corpus", "is 0; at least 1 is needed"))
        } else if !self.quantiles.is_none_or(is_range) {
            Some(("negatives.quantiles", "are not two numbers from 0 to 1, the smaller one first"))
        } else if self.quantiles.is_some() && is_of_texts {
            Some(("negatives.quantiles", "are for heads on embeddings"))
        } else if rounds == 0 || (rounds > 1) != self.quantiles.is_some() {
            let reason = "are at least 1, and above 1 if and only if there are `quantiles`";
            Some(("negatives.rounds", reason))
        } else {
            None
        }
    }
}
