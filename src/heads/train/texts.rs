//! Trains fastText heads from labelled texts.

use std::path::Path;

use super::request::TrainingRequest;
use crate::head::{FastTextHead, HeadSpec, TextCard, TrainingRecord};
use polysift_base::error::{Error, Result};
use polysift_base::io::{FileStamp, write_json};
use polysift_base::metrics::Metrics;
use polysift_fasttext::{fit, sample_line};

/// Trains a fastText head on 80% of the samples (10% each are kept for validation and test). Writes
/// its model to `path` and its card beside it, see [`FastTextHead::card_path`]. Returns the head
/// and the stamps of the two files.
pub fn train_text_head(
    request: &TrainingRequest<'_>,
    path: &Path,
) -> Result<(FastTextHead, [FileStamp; 2])> {
    let (splits, _) = request.split()?;
    let (samples, config) = (request.samples, &request.config.fasttext);
    let text_spec = config.text_spec(request.language);
    let line =
        |&row: &usize| (sample_line(&text_spec, &samples.texts[row]), samples.is_positive(row));
    let lines: Vec<(String, bool)> = splits.train.iter().map(line).collect();
    let streams = ["initialisation", "order"].map(|purpose| request.random_stream(purpose));
    let word_ngrams = config.word_ngrams(request.language);
    let model = fit(config, word_ngrams, &lines, streams, request.stop)?.ok_or_else(|| {
        let rate = config.learning_rate;
        request
            .error(format!("the vectors are not finite; try a smaller learning_rate than {rate}"))
    })?;
    if model.dictionary.num_words + model.settings.buckets == 0 {
        return Err(request.error("no word occurs `min_count` times in the training split"));
    }
    let model_file = model.write(path)?;
    let keep = request.config.keep(request.name);
    let spec = HeadSpec { keep, ..HeadSpec::default() };
    let mut card = request.make_card(spec, TrainingRecord::default(), &splits);
    card.text = Some(TextCard {
        spec: text_spec,
        model_digest: model_file.blake3.clone(),
        word_ngrams: model.settings.word_ngrams,
        training: Some(config.clone()),
    });
    let mut head = FastTextHead::new(card, model, model_file.blake3.clone())
        .map_err(|reason| Error::shape("fastText head", reason))?;
    let [validation, test] =
        [&splits.validation, &splits.test].map(|rows| metrics(request, &head, rows));
    request.warn_of_few_texts(test);
    if let Some(training) = &mut head.card.training {
        (training.validation, training.test) = (validation, test);
    }
    let card_file = write_json(&FastTextHead::card_path(path), &head.card)?;
    Ok((head, [model_file, card_file]))
}

/// Computes the metrics of `head` on the samples of `rows`. A text without a word that the model
/// knows has no score and does not count.
fn metrics(request: &TrainingRequest<'_>, head: &FastTextHead, rows: &[usize]) -> Option<Metrics> {
    let samples = request.samples;
    let texts: Vec<Option<&str>> = rows.iter().map(|&row| Some(&*samples.texts[row])).collect();
    let (logits, labels): (Vec<f32>, Vec<bool>) = (head.score(&texts).into_iter().zip(rows))
        .filter_map(|(score, &row)| Some((score?.logit, samples.is_positive(row))))
        .filter(|(logit, _)| !logit.is_nan())
        .unzip();
    Metrics::of_logits(&logits, &labels).map(Metrics::rounded)
}
