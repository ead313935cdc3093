//! Trains heads from labelled embeddings, and heads of texts from labelled texts.
//!
//! The bytes of a head file depend neither on the order of the samples nor on the number of threads;
//! all random numbers come from [`TrainingRequest::seed`].

mod fit;
mod request;
mod samples;
mod texts;

use rand::seq::SliceRandom;
use rayon::prelude::*;

use crate::head::{
    Head, HeadSpec, LearningPoint, ReferenceCounts, References, Scorer, TrainingRecord, centred,
};
use crate::vectors::normalised;
use polysift_base::error::Result;
use polysift_base::metrics::Metrics;
use polysift_config::{Centering, HeadConfig, HeadKind, LabelKind, Mode, TrainingConfig};
pub use request::{MIN_SAMPLES, TrainingRequest, check_labels};
use request::{Trained, differ};
pub use samples::{Samples, Splits, hold_out, split, tenth};
pub use texts::train_text_head;

/// Trains a head on 80% of the samples and keeps 10% each for validation and test. A head of
/// classes in published mode has no test split. Samples may also name their splits. Samples with
/// embeddings that are not finite are left out and counted.
///
/// An MLP starts from PyTorch's default initialisation. AdamW minimises the mean binary
/// cross-entropy of one output or the cross-entropy of several: positive samples have the class of
/// the output, others class 0 (1 if 0 is the positive one). Grades use the configured
/// [`Loss`](polysift_config::Loss) and are standardised unless it is ordinal. Weights multiply
/// losses. Inputs are standardised by the training split, which the file's first layer undoes. The
/// number of samples and the validation loss choose what [`TrainingConfig`] leaves open.
/// [`Mode::Published`] takes inputs as they are and chooses nothing; for a head of classes it uses
/// the cross-entropy of probabilities and a [`Schedule`](crate::head::Schedule) of rates.
///
/// A logistic head is the optimum of logistic regression on standardised inputs, a ridge head the
/// optimum of least squares; validation loss picks the penalty. A cosine head takes K positives.
///
/// # Source
/// Published mode follows `train_mlp.py` and `cs.py` of FineWeb2-HQ.
pub fn train_head(request: &TrainingRequest<'_>) -> Result<Head> {
    let (config, name) = (request.config, request.name);
    let is_default = config.training.mode == Mode::Default;
    let (splits, excluded_samples) = request.split()?;
    let (Trained { scorer, record, references }, spec) = train_scorer(request, &splits)?;
    let metrics = |request: &TrainingRequest<'_>, scorer: &Scorer, rows: &[usize]| {
        request.metrics(scorer, rows).map(Metrics::rounded)
    };
    let test = metrics(request, &scorer, &splits.test);
    request.warn_of_few_texts(test);
    let validation = metrics(request, &scorer, &splits.validation);
    let mut record = TrainingRecord { excluded_samples, validation, test, ..record };
    if let (true, Some(test), false) = (is_default, test, config.kind == HeadKind::Cosine) {
        let is_graded = config.label_kind() == LabelKind::Grades;
        let kind = if is_graded { HeadKind::Ridge } else { HeadKind::Logistic };
        let training = TrainingConfig { loss: None, ..config.training.clone() };
        let linear = HeadConfig { kind, output: None, training, ..config.clone() };
        let baseline = TrainingRequest { config: &linear, ..request.clone() };
        record.linear_test = if config.kind == kind {
            Some(test) // it is its own baseline
        } else {
            metrics(&baseline, &fit::train(&baseline, &splits)?.scorer, &splits.test)
        };
        record.learning_curve = learning_curve(request, &splits, &record)?;
        record.learning_curve.push(LearningPoint { num_samples: splits.train.len(), test });
    }
    tracing::info!(
        head = name,
        language = request.language,
        roc_auc = test.and_then(|test| test.roc_auc),
        spearman = test.and_then(|test| test.spearman),
        "trained"
    );
    let mut card = request.make_card(spec, record, &splits);
    card.references = references;
    Head::new(card, scorer)
}

/// Trains a head that only draws the negatives of the next round, without any metrics.
pub fn train_round(request: &TrainingRequest<'_>) -> Result<Head> {
    let (splits, _) = request.split()?;
    let (Trained { scorer, record, .. }, spec) = train_scorer(request, &splits)?;
    Head::new(request.make_card(spec, record, &splits), scorer)
}

/// Trains the scorer and makes its spec; fails for kinds that do not learn from embeddings.
fn train_scorer(request: &TrainingRequest<'_>, splits: &Splits) -> Result<(Trained, HeadSpec)> {
    let (config, name) = (request.config, request.name);
    let trained = match config.kind {
        HeadKind::Mlp | HeadKind::Logistic | HeadKind::Ridge => fit::train(request, splits)?,
        HeadKind::Cosine => sample_references(request, splits)?,
        HeadKind::FastText => return Err(request.error("it is trained on texts")),
        HeadKind::Column | HeadKind::Random => return Err(request.error("it is not trained")),
    };
    let spec = trained.scorer.spec().configured(config, name);
    Ok((trained, spec))
}

/// Trains with a quarter and with half of each class of the training split, if that is enough.
fn learning_curve(
    request: &TrainingRequest<'_>,
    splits: &Splits,
    record: &TrainingRecord,
) -> Result<Vec<LearningPoint>> {
    let mut config = request.config.clone();
    if let Some(hyperparameters) = &record.hyperparameters {
        config.training.weight_decay = hyperparameters.weight_decay;
    }
    let mut order = splits.train.clone();
    order.shuffle(&mut request.random_stream("learning curve"));
    let is_graded = request.config.label_kind() == LabelKind::Grades;
    let (positive, negative): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|&row| !is_graded && request.samples.is_positive(row));
    let mut points = Vec::new();
    for part in [4, 2] {
        let train = [&positive, &negative].map(|rows| &rows[..rows.len() / part]).concat();
        let samples = request.samples;
        if train.len() < MIN_SAMPLES
            || !differ(&samples.labels_of(&train))
            || samples.total_weight(&train) <= 0.0
        {
            continue;
        }
        let part = Splits { train, ..splits.clone() };
        let request = TrainingRequest { config: &config, ..request.clone() };
        let scorer = fit::train(&request, &part)?.scorer;
        if let Some(test) = request.metrics(&scorer, &splits.test) {
            points.push(LearningPoint { num_samples: part.train.len(), test: test.rounded() });
        }
    }
    Ok(points)
}

/// Samples K references of a cosine head, without replacement, from the positives of the training
/// split, or takes all if there are at most K. Its negatives, a sample of the corpus, centre them.
fn sample_references(request: &TrainingRequest<'_>, splits: &Splits) -> Result<Trained> {
    let samples = request.samples;
    let (positives, negatives): (Vec<usize>, Vec<usize>) =
        splits.train.iter().partition(|&&row| samples.is_positive(row));
    let centering = request.config.center.unwrap_or_default();
    let mean = (centering == Centering::Mean).then(|| {
        let mean = samples.means(&negatives, |_, x| x);
        mean.into_iter().map(|x| x as f32).collect::<Vec<f32>>()
    });
    let unit = |&row: &usize| match &mean {
        Some(mean) => normalised(&centred(samples.embedding(row), mean)),
        None => normalised(samples.embedding(row)),
    };
    let units: Vec<Vec<f32>> = positives.par_iter().filter_map(unit).collect();
    let requested = request.config.references();
    let counts = ReferenceCounts {
        requested,
        available: units.len(),
        zero_norm: positives.len() - units.len(),
        center: mean.is_some().then_some(centering),
        center_rows: mean.is_some().then_some(negatives.len()),
    };
    if units.is_empty() {
        let (count, once) = (positives.len(), if mean.is_some() { " once centred" } else { "" });
        return Err(request.error(format!(
            "the {count} positive sample(s) of the training split are zero vectors{once}"
        )));
    }
    let mut chosen: Vec<usize> = (0..units.len()).collect();
    chosen.shuffle(&mut request.random_stream("references"));
    chosen.truncate(requested);
    chosen.sort_unstable();
    let values = chosen.into_iter().flat_map(|at| units[at].iter().copied()).collect();
    let references = References::from_normalised(values, samples.hidden_size, mean);
    let record = TrainingRecord::default();
    Ok(Trained { scorer: Scorer::Cosine(references), record, references: Some(counts) })
}
