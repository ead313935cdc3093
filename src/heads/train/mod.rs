//! Training of heads from labelled embeddings, and of heads of texts from labelled texts.
//!
//! Owns the split of the samples, the training loop and the sampling of references. Does not read
//! samples and does not embed them. Invariant: the same samples in any order, with any number of
//! threads, give the same head file byte by byte; everything random comes from
//! [`TrainingRequest::seed`].
//!
//! ```
//! use polysift_heads::train::check_labels;
//!
//! let head = polysift_config::HeadConfig::default();
//! let error = check_labels("quality", "deu_Latn", &head, &[(1.0, None); 20]).unwrap_err();
//! assert!(error.to_string().contains("20 positive and 0 negative"));
//! ```

mod center;
mod lexical;
#[cfg(feature = "train")]
mod linear;
#[cfg(feature = "train")]
mod loss;
#[cfg(feature = "train")]
mod mlp;
#[cfg(feature = "train")]
mod network;
#[cfg(not(feature = "train"))]
mod no_training;
mod request;
mod samples;
#[cfg(feature = "train")]
mod standardisation;
mod text;

use rand::seq::SliceRandom;
use rayon::prelude::*;

use crate::head::{
    Head, HeadSpec, LearningPoint, ReferenceCounts, References, Scorer, TrainingRecord, normalised,
};
pub use lexical::train_lexical_head;
#[cfg(not(feature = "train"))]
use no_training as linear;
#[cfg(not(feature = "train"))]
use no_training as mlp;
use polysift_base::error::Result;
use polysift_base::metrics::Metrics;
use polysift_base::progress::Stop;
use polysift_config::{Centering, HeadConfig, HeadKind, LabelKind, Mode, TrainingConfig};
pub use request::{MIN_SAMPLES, TrainingRequest, check_labels};
use request::{Trained, has_several};
pub use samples::{Samples, Splits, split};
pub use samples::{hold_out, tenth};
pub use text::train_text_head;

/// Trains a head on 80% of the samples; 10% each are kept for validation and test, of a head of classes in
/// published mode 10% for validation alone, unless the samples name their splits.
///
/// An MLP starts from PyTorch's default initialisation (weights and biases uniform within
/// ±1/sqrt(inputs)) and is trained by AdamW (betas 0.9 and 0.999, eps 1e-8) on the mean binary
/// cross-entropy of one output or the cross-entropy of several; the label's class is the `softmax`
/// class, the other samples' class is 0 (1 if that is the class itself). Of grades it is the [`Loss`](polysift_config::Loss) of the
/// settings, and grades are standardised too. Weights multiply losses. Inputs are standardised by means
/// and deviations of the training split, which the first layer of the file takes back. What
/// [`TrainingConfig`] leaves open is chosen by the size of the set and the
/// validation loss. In [`Mode::Published`] nothing is standardised or chosen; for a head of classes the
/// cross-entropy is taken of the probabilities and the learning rate follows a
/// [`Schedule`](crate::head::Schedule). A logistic head is the optimum of logistic regression on standardised
/// inputs with a penalty chosen by the validation loss, a ridge head that of least squares. A cosine head takes K positives of the training split.
/// Samples whose embedding is not finite are left out and counted in the card.
///
/// # Errors
/// [`polysift_base::Error::Training`] for fewer than [`MIN_SAMPLES`] samples, for one class or grade only, without
/// weight, or if the weights diverge; [`polysift_base::Error::Shape`] if the samples do not fit together;
/// [`polysift_base::Error::Stopped`].
///
/// # Source
/// Published mode: FineWeb2-HQ `train_mlp.py`, `cs.py`; validation accuracy is compared with PyTorch's in
/// `validation_accuracy_lies_in_the_spread_of_pytorch`.
pub fn train_head(request: &TrainingRequest<'_>, stop: &Stop) -> Result<Head> {
    let (config, name) = (request.config, request.name);
    let is_default = config.training.mode == Mode::Default;
    let (splits, excluded_samples) = request.split(is_default || !config.is_class(name))?;
    let Trained { scorer, record, references } = match config.kind {
        HeadKind::Mlp => mlp::train(request, &splits, stop)?,
        HeadKind::Logistic | HeadKind::Ridge => linear::train(request, &splits, stop)?,
        HeadKind::Cosine => sample_references(request, &splits)?,
        HeadKind::FastText | HeadKind::Lexical => {
            return Err(request.error("it is trained on texts"));
        }
        HeadKind::Column | HeadKind::Random => return Err(request.error("it is not trained")),
    };
    let spec =
        HeadSpec { kind: scorer.kind(), ..HeadSpec::of_config(config, name, scorer.layer_sizes()) };
    let test = request.metrics(&scorer, &splits.test).map(Metrics::rounded);
    request.warn_of_few(test);
    let mut record = TrainingRecord {
        excluded_samples,
        validation: request.metrics(&scorer, &splits.validation).map(Metrics::rounded),
        test,
        ..record
    };
    if let (true, Some(test), false) = (is_default, test, config.kind == HeadKind::Cosine) {
        let is_graded = config.label_kind() == LabelKind::Grades;
        let kind = if is_graded { HeadKind::Ridge } else { HeadKind::Logistic };
        let training = TrainingConfig { loss: None, ..config.training.clone() };
        let linear = HeadConfig { kind, output: None, training, ..config.clone() };
        let baseline = TrainingRequest { config: &linear, ..request.clone() };
        let scorer = linear::train(&baseline, &splits, stop)?.scorer;
        record.linear_test = baseline.metrics(&scorer, &splits.test).map(Metrics::rounded);
        record.learning_curve = learning_curve(request, &splits, &record, stop)?;
        record.learning_curve.push(LearningPoint { num_samples: splits.train.len(), test });
    }
    tracing::info!(
        head = name,
        language = request.language,
        roc_auc = test.and_then(|test| test.roc_auc),
        spearman = test.and_then(|test| test.spearman),
        "trained"
    );
    let mut card = request.card(spec, record, &splits);
    card.references = references;
    Head::new(card, scorer)
}

/// The same training with a fourth and a half of each class of the training split, where that is enough.
fn learning_curve(
    request: &TrainingRequest<'_>,
    splits: &Splits,
    record: &TrainingRecord,
    stop: &Stop,
) -> Result<Vec<LearningPoint>> {
    let mut config = request.config.clone();
    if let Some(hyperparameters) = &record.hyperparameters {
        config.training.weight_decay = hyperparameters.weight_decay;
    }
    let mut order = splits.train.clone();
    order.shuffle(&mut request.stream("learning curve"));
    let is_graded = request.config.label_kind() == LabelKind::Grades;
    let (positive, negative): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|&row| !is_graded && request.samples.is_positive(row));
    let mut points = Vec::new();
    for part in [4, 2] {
        let train: Vec<usize> = [&positive, &negative]
            .iter()
            .flat_map(|rows| &rows[..rows.len() / part])
            .copied()
            .collect();
        if train.len() < MIN_SAMPLES || !has_several(&request.samples.grades(&train)) {
            continue;
        }
        let part = Splits { train, ..splits.clone() };
        let request = TrainingRequest { config: &config, ..request.clone() };
        let Trained { scorer, .. } = match config.kind {
            HeadKind::Logistic | HeadKind::Ridge => linear::train(&request, &part, stop)?,
            _ => mlp::train(&request, &part, stop)?,
        };
        if let Some(test) = request.metrics(&scorer, &splits.test) {
            points.push(LearningPoint { num_samples: part.train.len(), test: test.rounded() });
        }
    }
    Ok(points)
}

/// Samples K references of a cosine head from the positives of the training split, without
/// replacement; all positives are taken if there are no more than K. They are centred with statistics of
/// its negatives, the sample of the corpus.
fn sample_references(request: &TrainingRequest<'_>, splits: &Splits) -> Result<Trained> {
    let samples = request.samples;
    let (positives, negatives): (Vec<usize>, Vec<usize>) =
        splits.train.iter().partition(|&&row| samples.is_positive(row));
    let centering = request.config.center.unwrap_or_default();
    let whitens = centering == Centering::Whiten;
    let no_spread = "`center` whitens, but the negatives of the training split are all equal";
    let center = (centering != Centering::None)
        .then(|| {
            center::of_rows(samples, &negatives, whitens).ok_or_else(|| request.error(no_spread))
        })
        .transpose()?;
    let unit = |&row: &usize| match &center {
        Some(center) => normalised(&center.apply(samples.embedding(row))),
        None => normalised(samples.embedding(row)),
    };
    let units: Vec<Vec<f32>> = positives.par_iter().filter_map(unit).collect();
    let requested = request.config.references();
    let counts = ReferenceCounts {
        requested,
        available: units.len(),
        zero_norm: positives.len() - units.len(),
        center: center.is_some().then_some(centering),
        center_rows: center.is_some().then_some(negatives.len()),
    };
    if units.is_empty() {
        let (count, once) = (positives.len(), if center.is_some() { " once centred" } else { "" });
        return Err(request.error(format!(
            "the {count} positive sample(s) of the training split are zero vectors{once}"
        )));
    }
    let mut chosen: Vec<usize> = (0..units.len()).collect();
    chosen.shuffle(&mut request.stream("references"));
    chosen.truncate(requested);
    chosen.sort_unstable();
    let values = chosen.into_iter().flat_map(|at| units[at].iter().copied()).collect();
    let references = References::from_normalised(values, samples.hidden_size, center);
    let record = TrainingRecord { seed: request.seed, ..TrainingRecord::default() };
    Ok(Trained { scorer: Scorer::Cosine(references), record, references: Some(counts) })
}
