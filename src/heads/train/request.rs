//! What a head is trained from, and what all kinds of training do with it.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

use super::samples::{Samples, Splits, split};
use crate::head::{HeadSpec, ModelCard, Provenance, ReferenceCounts, Scorer, TrainingRecord};
use polysift_base::error::{Error, Result};
use polysift_base::metrics::{Metrics, log_loss};
use polysift_config::{HeadConfig, HeadKind, LabelKind, Loss};
use polysift_data::input::Split;

/// Fewest samples that a head is trained on.
pub const MIN_SAMPLES: usize = 10;
/// Of fewer texts the figures of a test split say little.
const FEW_TEST_TEXTS: usize = 50;
/// Highest grade of an ordinal head, which has an output for each.
const HIGHEST_GRADE: f32 = 100.0;

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
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        untrainable(self.name, self.language, reason)
    }

    /// The random numbers of `purpose` for this seed, head and language: one stream per purpose, so
    /// that one more draw here changes nothing there.
    pub(super) fn stream(&self, purpose: &str) -> ChaCha8Rng {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        for field in [self.name, self.language, purpose] {
            hasher.update(&(field.len() as u64).to_le_bytes()).update(field.as_bytes());
        }
        ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
    }

    /// The split of the samples whose embedding is finite, and the number of the others.
    ///
    /// # Errors
    /// [`Error::Shape`] if the samples do not fit together, [`Error::Training`] if there are too few.
    pub(super) fn split(&self, with_test: bool) -> Result<(Splits, usize)> {
        let samples = self.samples;
        samples.check(self.config.kind.is_of_texts())?;
        let is_usable = |row: &usize| samples.embedding(*row).iter().all(|x| x.is_finite());
        let usable: Vec<usize> = (0..samples.ids.len()).filter(is_usable).collect();
        let excluded = samples.ids.len() - usable.len();
        let check = |which, rows: &[usize], least| {
            check(self.config, which, &samples.grades(rows), least, excluded)
                .map_err(|reason| self.error(reason))
        };
        check("", &usable, MIN_SAMPLES)?;
        // What an embedding is decides nothing about where the others go.
        let mut splits = split(samples, self.seed, with_test);
        for rows in [&mut splits.train, &mut splits.validation, &mut splits.test] {
            rows.retain(is_usable);
        }
        check("of the training split ", &splits.train, 0)?;
        if samples.total_weight(&splits.train) <= 0.0 {
            return Err(self.error("all weights of the training split are 0"));
        }
        Ok((splits, excluded))
    }

    /// Warns where the figures of the test split are of few texts.
    pub(super) fn warn_of_few(&self, test: Option<Metrics>) {
        let few = test.map(|test| test.num_samples).filter(|texts| *texts < FEW_TEST_TEXTS);
        if let Some(texts) = few {
            let told = "the test figures are of few texts: their intervals say how far they can be trusted";
            tracing::warn!(head = self.name, language = self.language, texts, "{told}");
        }
    }

    /// The card of a head that was trained on `splits`; `record` is what else is known of it.
    pub(super) fn card(
        &self,
        spec: HeadSpec,
        record: TrainingRecord,
        splits: &Splits,
    ) -> ModelCard {
        let mut provenance = self.provenance.clone();
        provenance.data_digests.sort_unstable();
        let samples =
            [("train", &splits.train), ("validation", &splits.validation), ("test", &splits.test)]
                .map(|(name, rows)| {
                    (name.to_owned(), self.samples.counts(rows, self.config.label_kind()))
                });
        ModelCard {
            language: Some(self.language.to_owned()),
            polysift_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            provenance: Some(provenance),
            training: Some(TrainingRecord {
                samples: samples.into(),
                test_digest: (!splits.test.is_empty()).then(|| self.samples.digest(&splits.test)),
                ..record
            }),
            head: self.name.to_owned(),
            spec,
            ..ModelCard::default()
        }
    }

    /// Logits of the samples of `rows`.
    pub(super) fn logits(&self, scorer: &Scorer, rows: &[usize]) -> Vec<f32> {
        scorer.logits(&self.samples.embeddings, rows, self.config.output(self.name))
    }

    /// Metrics of `scorer` on the samples of `rows`; `None` where none of them has a score. The loss is weighted;
    /// for grades it is the squared error, of losses that count outliers less the absolute error.
    pub(super) fn metrics(&self, scorer: &Scorer, rows: &[usize]) -> Option<Metrics> {
        let (samples, logits) = (self.samples, self.logits(scorer, rows));
        let metrics = match (self.config.kind, self.config.label_kind()) {
            (HeadKind::Cosine, _) => {
                return Metrics::of_scores(&logits, &samples.classes(rows));
            }
            (_, LabelKind::Grades) => Metrics::of_grades(&logits, &samples.grades(rows)),
            _ => Metrics::of_logits(&logits, &samples.classes(rows)),
        };
        let loss = |logit: f32, label: f32| {
            let error = f64::from(logit) - f64::from(label);
            match self.config.loss() {
                Loss::CrossEntropy => log_loss(logit, label > 0.5),
                Loss::SquaredError => error * error,
                Loss::Huber | Loss::Ordinal => error.abs(),
            }
        };
        let losses = logits
            .iter()
            .zip(rows)
            .map(|(&logit, &row)| samples.weight(row) * loss(logit, samples.labels[row]));
        let mean = losses.sum::<f64>() / samples.total_weight(rows);
        metrics.map(|metrics| Metrics { loss: mean.is_finite().then_some(mean), ..metrics })
    }
}

/// [`Error::Training`] for the head `name` of `language`.
fn untrainable(name: &str, language: &str, reason: impl Into<String>) -> Error {
    Error::Training { head: name.to_owned(), language: language.to_owned(), reason: reason.into() }
}

/// What training gives besides the weights.
pub(super) struct Trained {
    pub(super) scorer: Scorer,
    /// The parts of the record that the kind of head decides; samples and metrics are filled in later.
    pub(super) record: TrainingRecord,
    pub(super) references: Option<ReferenceCounts>,
}

/// Checks that samples can be learned from, as far as their labels and the splits that they name for
/// themselves say, before anything is embedded.
///
/// # Errors
/// [`Error::Training`] for the head `name` of `language`.
pub fn check_labels(
    name: &str,
    language: &str,
    config: &HeadConfig,
    labels: &[(f32, Option<Split>)],
) -> Result<()> {
    let check = |which, least, includes: &dyn Fn(Option<Split>) -> bool| {
        let included = labels.iter().filter(|(_, split)| includes(*split));
        let included: Vec<f32> = included.map(|(label, _)| *label).collect();
        let checked = check(config, which, &included, least, 0);
        checked.map_err(|reason| untrainable(name, language, reason))
    };
    check("", MIN_SAMPLES, &|_| true)?;
    let is_learned = |split: Option<Split>| split.is_none_or(|split| split == Split::Train);
    check("of the training split ", 0, &is_learned)
}

/// Whether `labels` are of two classes or grades at least.
pub(super) fn has_several(labels: &[f32]) -> bool {
    labels.iter().any(|label| label.total_cmp(&labels[0]).is_ne())
}

/// Why a head of these settings cannot be trained on samples of these `labels`: there have to be at least
/// `least`, of two classes or grades; `excluded` more are not finite.
fn check(
    config: &HeadConfig,
    which: &str,
    labels: &[f32],
    least: usize,
    excluded: usize,
) -> Result<(), String> {
    let excluded = match excluded {
        0 => String::new(),
        more => format!(" ({more} more are not finite)"),
    };
    let has_several = has_several(labels);
    let is_enough = labels.len() >= least && has_several;
    if config.label_kind() != LabelKind::Grades {
        let positive = labels.iter().filter(|label| **label > 0.5).count();
        let negative = labels.len() - positive;
        return if is_enough {
            Ok(())
        } else {
            Err(format!(
                "{positive} positive and {negative} negative sample(s) {which}can be used{excluded}; \
                 needed are samples of both classes, at least {MIN_SAMPLES} in all"
            ))
        };
    }
    if !is_enough {
        return Err(format!(
            "{} sample(s) {which}can be used{excluded}{}; needed are at least {MIN_SAMPLES} in all, not \
             all of one grade",
            labels.len(),
            if has_several || labels.is_empty() { "" } else { ", all of one grade" },
        ));
    }
    let is_possible = |grade: &f32| (0.0..=HIGHEST_GRADE).contains(grade);
    match labels.iter().find(|grade| !is_possible(grade)) {
        Some(grade) if config.loss() == Loss::Ordinal => Err(format!(
            "a grade is {grade}; `training.loss = \"ordinal\"` needs grades from 0 to {HIGHEST_GRADE}, the \
             other losses take any"
        )),
        _ => Ok(()),
    }
}
