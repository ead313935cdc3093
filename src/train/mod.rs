//! Training of heads from labelled embeddings, and of fastText heads from labelled texts.
//!
//! Owns the split of the samples, the training loop, the sampling of references and the metrics.
//! Does not read samples and does not embed them. Invariant: the same samples in any order, with
//! any number of threads, give the same head file byte by byte; everything random comes from
//! [`TrainingRequest::seed`].
//!
//! ```
//! use polysift::train::check_labels;
//!
//! let error = check_labels("quality", "deu_Latn", &[(true, None); 20]).unwrap_err();
//! assert!(error.to_string().contains("20 positive and 0 negative"));
//! ```

mod cosine;
mod loss;
mod metrics;
mod mlp;
mod random;
mod schedule;
pub mod split;
mod text;

use std::collections::BTreeMap;

use crate::config::{HeadConfig, HeadKind, TrainingMode};
use crate::error::{Error, Result};
pub use crate::head::Provenance;
use crate::head::{
    Card, ClassCounts, Head, HeadSpec, Metrics, ReferenceCounts, Scorer, TrainingRecord,
};
use crate::input::Split;
use crate::progress::Stop;
use split::Splits;
pub use text::{TextSamples, TextTrainingRequest, train_text_head};

/// Fewest samples that a head is trained on.
pub const MIN_SAMPLES: usize = 10;

/// Labelled samples; sample `i` is `ids[i]`, `labels[i]` and row `i` of `embeddings`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Samples {
    /// Ids; samples of the same id are taken for duplicates and never separated by the split.
    pub ids: Vec<String>,
    /// True for the positive (toxic...) class.
    pub labels: Vec<bool>,
    /// `[num_samples, D]` f32, row-major: one vector per sample.
    pub embeddings: Vec<f32>,
    /// Width `D`.
    pub hidden_size: usize,
    /// Split that each sample names for itself; empty where none does.
    pub splits: Vec<Option<Split>>,
}

impl Samples {
    /// Embedding of sample `row`.
    fn embedding(&self, row: usize) -> &[f32] {
        &self.embeddings[row * self.hidden_size..(row + 1) * self.hidden_size]
    }

    /// The samples of `rows` by label.
    fn count(&self, rows: &[usize]) -> ClassCounts {
        count(&self.labels, rows)
    }

    /// [`Error::Shape`] unless the lists describe the same samples.
    fn check(&self) -> Result<()> {
        let expected = self.ids.len().checked_mul(self.hidden_size);
        if self.hidden_size > 0
            && self.labels.len() == self.ids.len()
            && (self.splits.is_empty() || self.splits.len() == self.ids.len())
            && expected == Some(self.embeddings.len())
        {
            return Ok(());
        }
        Err(Error::shape(
            "train",
            format!(
                "{} id(s), {} label(s), {} split(s) and {} values of embeddings [_, {}] do not fit \
                 together",
                self.ids.len(),
                self.labels.len(),
                self.splits.len(),
                self.embeddings.len(),
                self.hidden_size
            ),
        ))
    }
}

/// What a head is trained from.
#[derive(Debug, Clone)]
pub struct TrainingRequest<'a> {
    /// Name of the head.
    pub name: &'a str,
    /// Language code of the samples.
    pub language: &'a str,
    /// Settings of the head.
    pub config: &'a HeadConfig,
    /// Samples, in any order.
    pub samples: &'a Samples,
    /// Seed of everything random.
    pub seed: u64,
    /// What the samples come from; written into the card.
    pub provenance: Provenance,
}

impl TrainingRequest<'_> {
    /// [`Error::Training`] for this head.
    fn error(&self, reason: impl Into<String>) -> Error {
        untrainable(self.name, self.language, reason)
    }
}

/// [`Error::Training`] for the head `name` of `language`.
fn untrainable(name: &str, language: &str, reason: impl Into<String>) -> Error {
    Error::Training { head: name.to_owned(), language: language.to_owned(), reason: reason.into() }
}

/// What training gives besides the weights.
struct Trained {
    scorer: Scorer,
    /// The parts of the record that the kind of head decides; samples and metrics are filled in later.
    record: TrainingRecord,
    references: Option<ReferenceCounts>,
}

/// Trains a head on 80% of the samples; 10% each are kept for validation and test, in reference mode
/// 10% for validation alone, unless the samples name their splits.
///
/// An MLP starts from PyTorch's default initialisation (weights and biases uniform within
/// ±1/sqrt(inputs)) and is trained by AdamW (betas 0.9 and 0.999, eps 1e-8) on the mean binary
/// cross-entropy of one output or the cross-entropy of several; the label's class is the `softmax`
/// class, the other samples' class is 0 (1 if that is the class itself). In
/// [`TrainingMode::Reference`] the cross-entropy is taken of the probabilities and the learning rate
/// follows a [`Schedule`](crate::head::Schedule). A cosine head takes K
/// positives of the training split. Samples whose embedding is not finite are left out and counted
/// in the card.
///
/// # Errors
/// [`Error::Training`] for fewer than [`MIN_SAMPLES`] samples, for one class only, or if the
/// weights diverge; [`Error::Shape`] if the samples do not fit together; [`Error::Stopped`].
///
/// # Source
/// FineWeb2-HQ `train_mlp.py`, `cs.py`; validation accuracy is compared with PyTorch's in
/// `validation_accuracy_lies_in_the_spread_of_pytorch`.
pub fn train_head(request: &TrainingRequest<'_>, stop: &Stop) -> Result<Head> {
    let samples = request.samples;
    samples.check()?;
    let usable: Vec<usize> = (0..samples.ids.len())
        .filter(|&row| samples.embedding(row).iter().all(|x| x.is_finite()))
        .collect();
    let excluded_samples = samples.ids.len() - usable.len();
    let error = |reason: String| request.error(reason);
    check_classes(error, "", samples.count(&usable), usable.len(), excluded_samples)?;
    let with_test = request.config.training.mode != TrainingMode::Reference;
    let splits = split::split(samples, usable, request.seed, with_test);
    let counts = samples.count(&splits.train);
    check_classes(error, "of the training split ", counts, MIN_SAMPLES, excluded_samples)?;

    let Trained { scorer, mut record, references } = match request.config.kind {
        HeadKind::Mlp => mlp::train(request, &splits, stop)?,
        HeadKind::Cosine => cosine::train(request, &splits)?,
        HeadKind::FastText => return Err(request.error("a fastText head is trained on texts")),
    };
    let spec = HeadSpec {
        kind: request.config.kind,
        layer_sizes: scorer.layer_sizes(),
        activation: request.config.activation(request.name),
        chunk: request.config.chunk(request.name),
        keep: request.config.keep(request.name),
    };
    record.excluded_samples = excluded_samples;
    record.samples = class_counts(&samples.labels, &splits);
    record.validation = evaluate(request, &scorer, &splits.validation).map(Metrics::rounded);
    record.test = evaluate(request, &scorer, &splits.test).map(Metrics::rounded);
    let mut provenance = request.provenance.clone();
    provenance.data_digests.sort_unstable();
    let card = Card {
        language: Some(request.language.to_owned()),
        polysift_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        provenance: Some(provenance),
        references,
        training: Some(record),
        ..Card::new(request.name, spec)
    };
    Head::new(card, scorer)
}

/// The `rows` by label.
fn count(labels: &[bool], rows: &[usize]) -> ClassCounts {
    let positive = rows.iter().filter(|&&row| labels[row]).count();
    ClassCounts { positive, negative: rows.len() - positive }
}

/// Checks that samples can be learned from, as far as their classes and the splits that they name for
/// themselves tell, before anything is embedded.
///
/// # Errors
/// [`Error::Training`] for the head `name` of `language`.
pub fn check_labels(name: &str, language: &str, labels: &[(bool, Option<Split>)]) -> Result<()> {
    let error = |reason: String| untrainable(name, language, reason);
    let count = |wanted: &dyn Fn(Option<Split>) -> bool| {
        let of = |class| labels.iter().filter(|(l, split)| *l == class && wanted(*split)).count();
        ClassCounts { positive: of(true), negative: of(false) }
    };
    check_classes(error, "", count(&|_| true), labels.len(), 0)?;
    let learned = count(&|split| split.is_none_or(|split| split == Split::Train));
    check_classes(error, "of the training split ", learned, MIN_SAMPLES, 0)
}

/// [`Error::Training`] with the counts unless there are enough samples of both classes.
fn check_classes(
    error: impl Fn(String) -> Error,
    which: &str,
    counts: ClassCounts,
    num_samples: usize,
    excluded: usize,
) -> Result<()> {
    let ClassCounts { positive, negative } = counts;
    if num_samples >= MIN_SAMPLES && positive > 0 && negative > 0 {
        return Ok(());
    }
    let excluded = match excluded {
        0 => String::new(),
        more => format!(" ({more} more are not finite)"),
    };
    Err(error(format!(
        "{positive} positive and {negative} negative sample(s) {which}can be used{excluded}; needed \
         are samples of both classes, at least {MIN_SAMPLES} in all"
    )))
}

/// Samples by split and label.
fn class_counts(labels: &[bool], splits: &Splits) -> BTreeMap<String, ClassCounts> {
    let splits =
        [("train", &splits.train), ("validation", &splits.validation), ("test", &splits.test)];
    splits.into_iter().map(|(name, rows)| (name.to_owned(), count(labels, rows))).collect()
}

/// Metrics of `scorer` on the samples of `rows`; `None` where none of them has a score.
fn evaluate(request: &TrainingRequest<'_>, scorer: &Scorer, rows: &[usize]) -> Option<Metrics> {
    let (logits, labels) = logits(request, scorer, rows);
    match request.config.kind {
        HeadKind::Mlp | HeadKind::FastText => metrics::of_logits(&logits, &labels),
        HeadKind::Cosine => metrics::of_similarities(&logits, &labels),
    }
}

/// Logits and labels of the samples of `rows`.
fn logits(request: &TrainingRequest<'_>, scorer: &Scorer, rows: &[usize]) -> (Vec<f32>, Vec<bool>) {
    let samples = request.samples;
    let activation = request.config.activation(request.name);
    let logits = scorer.logits(&samples.embeddings, rows, activation);
    (logits, rows.iter().map(|&row| samples.labels[row]).collect())
}
