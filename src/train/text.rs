//! Training of fastText heads from labelled texts.

use std::path::Path;

use super::split::{Keyed, Splits, split_keyed};
use super::{MIN_SAMPLES, check_classes, class_counts, count, metrics, untrainable};
use super::{Provenance, random};
use crate::config::{Activation, ChunkRule, HeadConfig, HeadKind, TextSpec};
use crate::error::{Error, Result};
use crate::fasttext::{FastTextHead, Fit, Model, sample_line};
use crate::head::{Card, HeadSpec, Metrics, TextCard, TrainingRecord};
use crate::input::Split;
use crate::io::{FileStamp, write_atomic};
use crate::progress::Stop;

/// Labelled texts; sample `i` is `ids[i]`, `labels[i]`, `texts[i]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextSamples {
    /// Ids; samples of the same id are taken for duplicates and never separated by the split.
    pub ids: Vec<String>,
    /// True for the positive (toxic...) class.
    pub labels: Vec<bool>,
    /// The texts as they are in the corpus.
    pub texts: Vec<String>,
    /// Split that each sample names for itself; empty where none does.
    pub splits: Vec<Option<Split>>,
}

/// What a fastText head is trained from.
#[derive(Debug, Clone)]
pub struct TextTrainingRequest<'a> {
    /// Name of the head.
    pub name: &'a str,
    /// Language code of the samples.
    pub language: &'a str,
    /// Settings of the head.
    pub config: &'a HeadConfig,
    /// Samples, in any order.
    pub samples: &'a TextSamples,
    /// Seed of everything random.
    pub seed: u64,
    /// Digests of the files that the samples come from; written into the card.
    pub data_digests: Vec<String>,
}

impl TextTrainingRequest<'_> {
    fn error(&self, reason: impl Into<String>) -> Error {
        untrainable(self.name, self.language, reason)
    }
}

/// Trains a fastText head on 80% of the samples (10% each are kept for validation and test), writes
/// its model as `path` and its card beside it, see [`FastTextHead::card_path`]. Returns the head and
/// what became of the two files.
///
/// The same samples in any order give the same files, whatever the number of threads.
///
/// # Errors
/// [`Error::Training`] for fewer than [`MIN_SAMPLES`] samples, for one class only, or if the vectors
/// diverge; [`Error::Shape`] if the samples do not fit together; [`Error::Stopped`]; those of writing.
pub fn train_text_head(
    request: &TextTrainingRequest<'_>,
    path: &Path,
    stop: &Stop,
) -> Result<(FastTextHead, [FileStamp; 2])> {
    let samples = request.samples;
    let num_samples = samples.texts.len();
    let (ids, labels, named) = (samples.ids.len(), samples.labels.len(), samples.splits.len());
    if ids != num_samples || labels != num_samples || named != 0 && named != num_samples {
        let reason =
            format!("{ids} id(s), {labels} label(s), {named} split(s) and {num_samples} text(s)");
        return Err(Error::shape("train", reason));
    }
    let all: Vec<usize> = (0..num_samples).collect();
    let error = |reason: String| request.error(reason);
    check_classes(error, "", count(&samples.labels, &all), num_samples, 0)?;
    let splits = split(samples, request.seed);
    let counts = count(&samples.labels, &splits.train);
    check_classes(error, "of the training split ", counts, MIN_SAMPLES, 0)?;

    let spec = request.config.fasttext.text_spec(request.language);
    let model = fit(request, &spec, &splits, stop)?;
    let model_file = model.write(path)?;
    let card = card(request, spec, &splits, (&model, &model_file));
    let head = FastTextHead::trained(card, model, model_file.blake3.clone())?;
    let head = evaluated(request, head, &splits);
    let mut text = serde_json::to_vec_pretty(head.card())
        .map_err(|e| Error::shape("fastText card", e.to_string()))?;
    text.push(b'\n');
    let card_file = write_atomic(&FastTextHead::card_path(path), &text)?;
    Ok((head, [model_file, card_file]))
}

/// Splits the samples by the digests of their texts.
fn split(samples: &TextSamples, seed: u64) -> Splits {
    let keyed = samples.texts.iter().enumerate().map(|(row, text)| Keyed {
        id: &samples.ids[row],
        digest: *blake3::hash(text.as_bytes()).as_bytes(),
        label: samples.labels[row],
        named: samples.splits.get(row).copied().flatten(),
        row,
    });
    split_keyed(keyed.collect(), seed, true)
}

/// The model of the training split.
fn fit(
    request: &TextTrainingRequest<'_>,
    spec: &TextSpec,
    splits: &Splits,
    stop: &Stop,
) -> Result<Model> {
    let samples = request.samples;
    let config = &request.config.fasttext;
    let line = |&row: &usize| (sample_line(spec, &samples.texts[row]), samples.labels[row]);
    let lines: Vec<(String, bool)> = splits.train.iter().map(line).collect();
    let stream =
        |purpose| random::stream_of(request.seed, [request.name, request.language, purpose]);
    let fit = Fit {
        config,
        word_ngrams: config.word_ngrams(request.language),
        samples: &lines,
        initialisation: stream("initialisation"),
        order: stream("order"),
    };
    fit.run(stop)?.ok_or_else(|| {
        request.error(format!(
            "the vectors are not finite; try a smaller learning_rate than {}",
            config.learning_rate
        ))
    })
}

/// The card of a model that was just written, without its metrics.
fn card(
    request: &TextTrainingRequest<'_>,
    spec: TextSpec,
    splits: &Splits,
    (model, file): (&Model, &FileStamp),
) -> Card {
    let mut data_digests = request.data_digests.clone();
    data_digests.sort_unstable();
    let head = HeadSpec {
        kind: HeadKind::FastText,
        layer_sizes: vec![model.dim(), model.labels().len()],
        activation: Activation::default(), // the class of the label, once that is looked up
        chunk: ChunkRule::First,
        keep: request.config.keep(request.name),
    };
    let text = TextCard {
        spec,
        model_digest: file.blake3.clone(),
        word_ngrams: model.word_ngrams(),
        training: Some(request.config.fasttext.clone()),
    };
    let samples = class_counts(&request.samples.labels, splits);
    Card {
        text: Some(text),
        language: Some(request.language.to_owned()),
        polysift_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        provenance: Some(Provenance { data_digests, ..Provenance::default() }),
        training: Some(TrainingRecord { samples, ..TrainingRecord::new(request.seed) }),
        ..Card::new(request.name, head)
    }
}

/// `head` with its metrics on the samples that it has not seen.
fn evaluated(
    request: &TextTrainingRequest<'_>,
    mut head: FastTextHead,
    splits: &Splits,
) -> FastTextHead {
    let samples = request.samples;
    let metrics = |rows: &[usize]| {
        let texts: Vec<Option<&str>> =
            rows.iter().map(|&row| Some(samples.texts[row].as_str())).collect();
        let scored = head.score(&texts).into_iter().zip(rows);
        // What the model knows no word of has no score, and does not count.
        let (logits, labels): (Vec<f32>, Vec<bool>) = scored
            .filter_map(|(score, &row)| Some((score?.logit, samples.labels[row])))
            .filter(|(logit, _)| !logit.is_nan())
            .unzip();
        metrics::of_logits(&logits, &labels).map(Metrics::rounded)
    };
    let (validation, test) = (metrics(&splits.validation), metrics(&splits.test));
    head.record_metrics(validation, test);
    head
}
