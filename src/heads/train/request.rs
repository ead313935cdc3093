//! Training requests, and what all kinds of training share.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::prelude::*;

use super::samples::{Samples, Splits, split};
use crate::head::{
    HeadSpec, ModelCard, Provenance, ReferenceCounts, ScoreScratch, Scorer, TrainingRecord,
};
use crate::vectors::BLOCK_ROWS;
use polysift_base::error::{Error, Result};
use polysift_base::metrics::{Metrics, log_loss};
use polysift_base::progress::Stop;
use polysift_config::{HeadConfig, HeadKind, LabelKind, Loss, Mode};
use polysift_data::input::Split;

/// Minimum number of samples to train a head.
pub const MIN_SAMPLES: usize = 10;
/// Metrics of a test split with fewer texts say little.
const FEW_TEST_TEXTS: usize = 50;
/// Maximum grade of an ordinal head, which has one output per grade.
const HIGHEST_GRADE: f32 = 100.0;

/// Everything that a head is trained from.
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
    /// Seed of all random numbers.
    pub seed: u64,
    /// Sources of the samples, which are written into the card.
    pub provenance: Provenance,
    /// Ends the training.
    pub stop: &'a Stop,
}

impl TrainingRequest<'_> {
    /// Makes the [`Error::Training`] of this head and language.
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        let (head, language) = (self.name.to_owned(), self.language.to_owned());
        Error::Training { head, language, reason: reason.into() }
    }

    /// Returns the random numbers of `purpose` for this seed, head and language. Each purpose has
    /// its own stream, so that one more draw in one changes nothing in others.
    pub(super) fn random_stream(&self, purpose: &str) -> ChaCha8Rng {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        for field in [self.name, self.language, purpose] {
            hasher.update(&(field.len() as u64).to_le_bytes()).update(field.as_bytes());
        }
        ChaCha8Rng::from_seed(*hasher.finalize().as_bytes())
    }

    /// Splits the samples with finite embeddings; also returns the number of the others. A head of
    /// classes that is trained on embeddings in published mode has no test split.
    pub(super) fn split(&self) -> Result<(Splits, usize)> {
        let (samples, config) = (self.samples, self.config);
        let is_of_texts = config.kind.is_of_texts();
        let is_default = config.training.mode == Mode::Default;
        let with_test = is_default || is_of_texts || !config.is_class(self.name);
        let is_usable = |row: &usize| samples.embedding(*row).iter().all(|x| x.is_finite());
        let usable: Vec<usize> = (0..samples.ids.len()).filter(is_usable).collect();
        let excluded = samples.ids.len() - usable.len();
        let check = |which, rows: &[usize], least| {
            check_enough(config, which, &samples.labels_of(rows), least, excluded)
                .map_err(|reason| self.error(reason))
        };
        check("", &usable, MIN_SAMPLES)?;
        // Embeddings do not influence the split of the other samples.
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

    /// Returns the weights of the samples, multiplied so that in each split the samples of each
    /// language have the same total weight. Sample `i` is of the language `languages[i]`; samples
    /// beyond them keep their weights.
    pub fn balanced_weights(&self, languages: &[String]) -> Result<Vec<f32>> {
        let (Splits { train, validation, test }, _) = self.split()?;
        let all = 0..self.samples.ids.len();
        let mut weights: Vec<f32> = all.map(|row| self.samples.weight(row) as f32).collect();
        for mut rows in [train, validation, test] {
            rows.retain(|row| *row < languages.len());
            let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
            for &row in &rows {
                *totals.entry(&languages[row]).or_default() += self.samples.weight(row);
            }
            totals.retain(|_, total| *total > 0.0);
            let mean = totals.values().sum::<f64>() / totals.len().max(1) as f64;
            for row in rows {
                let balance = totals.get(&*languages[row]).map_or(0.0, |total| mean / total);
                weights[row] = (self.samples.weight(row) * balance) as f32;
            }
        }
        Ok(weights)
    }

    /// Logs a warning if the metrics `test` are of fewer than [`FEW_TEST_TEXTS`] texts.
    pub(super) fn warn_of_few_texts(&self, test: Option<Metrics>) {
        let few = test.map(|test| test.num_samples).filter(|texts| *texts < FEW_TEST_TEXTS);
        if let Some(texts) = few {
            let told = "the test figures are of few texts: their intervals say how far they can be trusted";
            tracing::warn!(head = self.name, language = self.language, texts, "{told}");
        }
    }

    /// Makes the card of a head trained on `splits`; `record` holds what else is known of it.
    pub(super) fn make_card(
        &self,
        spec: HeadSpec,
        record: TrainingRecord,
        splits: &Splits,
    ) -> ModelCard {
        let mut provenance = self.provenance.clone();
        provenance.data_digests.sort_unstable();
        let Splits { train, validation, test } = splits;
        let samples = [("train", train), ("validation", validation), ("test", test)];
        let kind = self.config.label_kind();
        let samples =
            samples.map(|(name, rows)| (name.to_owned(), self.samples.count_labels(rows, kind)));
        let (seed, negatives, samples) = (self.seed, self.config.negatives, samples.into());
        let test_digest = (!test.is_empty()).then(|| self.samples.text_digest(test));
        ModelCard {
            language: Some(self.language.to_owned()),
            polysift_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            provenance: Some(provenance),
            training: Some(TrainingRecord { seed, negatives, samples, test_digest, ..record }),
            head: self.name.to_owned(),
            spec,
            ..ModelCard::default()
        }
    }

    /// Computes the logits of the samples `rows`, in their order, in parallel.
    pub(super) fn logits(&self, scorer: &Scorer, rows: &[usize]) -> Vec<f32> {
        let output = self.config.output(self.name);
        let logits = |scratch: &mut ScoreScratch, rows: &[usize]| {
            scorer.logits(&self.samples.embeddings, rows, output, scratch)
        };
        let blocks = rows.par_chunks(BLOCK_ROWS).map_init(ScoreScratch::default, logits);
        blocks.collect::<Vec<_>>().concat()
    }

    /// Computes the metrics of `scorer` on the samples of `rows`; `None` if none has a score. The
    /// loss is weighted; for grades it is the squared error (absolute for Huber and ordinal loss).
    pub(super) fn metrics(&self, scorer: &Scorer, rows: &[usize]) -> Option<Metrics> {
        let (samples, logits) = (self.samples, self.logits(scorer, rows));
        if self.config.kind == HeadKind::Cosine {
            return Metrics::of_scores(&logits, &samples.classes(rows));
        }
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
        let metrics = match self.config.label_kind() {
            LabelKind::Grades => Metrics::of_grades(&logits, &samples.labels_of(rows)),
            _ => Metrics::of_logits(&logits, &samples.classes(rows)),
        };
        metrics.map(|metrics| Metrics { loss: mean.is_finite().then_some(mean), ..metrics })
    }
}

/// What a kind of training returns.
pub(super) struct Trained {
    pub(super) scorer: Scorer,
    /// Parts of the record that the kind of head decides; samples and metrics are added later.
    pub(super) record: TrainingRecord,
    pub(super) references: Option<ReferenceCounts>,
}

/// Checks before anything is embedded that samples can be trained on, as far as labels show it.
pub fn check_labels(
    name: &str,
    language: &str,
    config: &HeadConfig,
    labels: &[(f32, Option<Split>)],
) -> Result<()> {
    let all: Vec<f32> = labels.iter().map(|(label, _)| *label).collect();
    let learned = labels.iter().filter(|(_, split)| split.is_none_or(|s| s == Split::Train));
    let learned: Vec<f32> = learned.map(|(label, _)| *label).collect();
    let (head, language) = (name.to_owned(), language.to_owned());
    check_enough(config, "", &all, MIN_SAMPLES, 0)
        .and_then(|()| check_enough(config, "of the training split ", &learned, 0, 0))
        .map_err(|reason| Error::Training { head, language, reason })
}

/// Returns true if not all `labels` are equal.
pub(super) fn differ(labels: &[f32]) -> bool {
    labels.iter().any(|label| label.total_cmp(&labels[0]).is_ne())
}

/// Checks that a head can be trained on samples with these `labels`: at least `least`, of two
/// classes or grades. Error texts say what is missing; `which` names the split and `excluded` is
/// the number of other samples, which are not finite.
fn check_enough(
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
    let has_several = differ(labels);
    let is_enough = labels.len() >= least && has_several;
    let is_impossible = |grade: &&f32| !(0.0..=HIGHEST_GRADE).contains(*grade);
    match (config.label_kind(), labels.iter().find(is_impossible)) {
        (LabelKind::Grades, _) if !is_enough => Err(format!(
            "{} sample(s) {which}can be used{excluded}{}; needed are at least {MIN_SAMPLES} in all, not \
             all of one grade",
            labels.len(),
            if has_several || labels.is_empty() { "" } else { ", all of one grade" },
        )),
        (LabelKind::Grades, Some(grade)) if config.loss() == Loss::Ordinal => Err(format!(
            "a grade is {grade}; `training.loss = \"ordinal\"` needs grades from 0 to {HIGHEST_GRADE}, the \
             other losses take any"
        )),
        _ if is_enough => Ok(()),
        _ => {
            let positive = labels.iter().filter(|label| **label > 0.5).count();
            let negative = labels.len() - positive;
            Err(format!(
                "{positive} positive and {negative} negative sample(s) {which}can be used{excluded}; \
                 needed are samples of both classes, at least {MIN_SAMPLES} in all"
            ))
        }
    }
}
