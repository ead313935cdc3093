//! What a head is trained from, and what all kinds of training do with it.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

use super::samples::{Samples, Splits, split};
use crate::config::{HeadConfig, HeadKind};
use crate::error::{Error, Result};
use crate::head::{
    ClassCounts, HeadSpec, ModelCard, Provenance, ReferenceCounts, Scorer, TrainingRecord,
};
use crate::input::Split;
use crate::metrics::Metrics;

/// Fewest samples that a head is trained on.
pub const MIN_SAMPLES: usize = 10;

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
        samples.check(self.config.kind == HeadKind::FastText)?;
        let usable: Vec<usize> = (0..samples.ids.len())
            .filter(|&row| samples.embedding(row).iter().all(|x| x.is_finite()))
            .collect();
        let excluded = samples.ids.len() - usable.len();
        let error = |reason: String| self.error(reason);
        check_classes(error, "", samples.count(&usable), usable.len(), excluded)?;
        let splits = split(samples, usable, self.seed, with_test);
        let counts = samples.count(&splits.train);
        check_classes(error, "of the training split ", counts, MIN_SAMPLES, excluded)?;
        Ok((splits, excluded))
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
                .map(|(name, rows)| (name.to_owned(), self.samples.count(rows)));
        ModelCard {
            language: Some(self.language.to_owned()),
            polysift_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            provenance: Some(provenance),
            training: Some(TrainingRecord { samples: samples.into(), ..record }),
            head: self.name.to_owned(),
            spec,
            ..ModelCard::default()
        }
    }

    /// Logits and labels of the samples of `rows`.
    pub(super) fn logits(&self, scorer: &Scorer, rows: &[usize]) -> (Vec<f32>, Vec<bool>) {
        let output = self.config.output(self.name);
        let logits = scorer.logits(&self.samples.embeddings, rows, output);
        (logits, rows.iter().map(|&row| self.samples.labels[row]).collect())
    }

    /// Metrics of `scorer` on the samples of `rows`; `None` where none of them has a score.
    pub(super) fn metrics(&self, scorer: &Scorer, rows: &[usize]) -> Option<Metrics> {
        let (logits, labels) = self.logits(scorer, rows);
        match self.config.kind {
            HeadKind::Mlp | HeadKind::Logistic | HeadKind::FastText => {
                Metrics::of_logits(&logits, &labels)
            }
            HeadKind::Cosine => Metrics::of_scores(&logits, &labels),
        }
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

/// Checks that samples can be learned from, as far as their classes and the splits that they name for
/// themselves say, before anything is embedded.
///
/// # Errors
/// [`Error::Training`] for the head `name` of `language`.
pub fn check_labels(name: &str, language: &str, labels: &[(bool, Option<Split>)]) -> Result<()> {
    let error = |reason: String| untrainable(name, language, reason);
    let count = |includes: &dyn Fn(Option<Split>) -> bool| {
        let of = |class| labels.iter().filter(|(l, split)| *l == class && includes(*split)).count();
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
