//! Trains lexical heads from labelled texts.

use std::path::Path;

use rand::RngExt;
use rayon::prelude::*;

use super::request::TrainingRequest;
use crate::head::{HeadSpec, HeadTokenizer, LexicalHead, TrainingRecord};
use crate::lexical::fit;
use polysift_base::error::Result;
use polysift_base::metrics::Metrics;
use polysift_base::progress::Stop;

/// Trains a lexical head on 80% of the samples (10% each are kept for validation and test).
/// `tokenizer` is a `tokenizer.json`, which `origin` names in errors; the request's recipe applies.
/// The same samples in any order give the same head, whatever the number of threads.
///
/// # Errors
/// `Error::Training` for fewer than [`MIN_SAMPLES`](super::MIN_SAMPLES) samples or only one class
/// or grade; `Error::Shape` if the samples do not fit together; `Error::Stopped`; errors of
/// [`Tokenizer`](polysift_tokenizer::Tokenizer).
pub fn train_lexical_head(
    request: &TrainingRequest<'_>,
    (tokenizer, origin): (&[u8], &Path),
    stop: &Stop,
) -> Result<LexicalHead> {
    let (splits, _) = request.split(true)?;
    let samples = request.samples;
    let recipe = request.provenance.recipe.clone().unwrap_or_default();
    let tokenizer = HeadTokenizer::of_json(tokenizer, &recipe, origin)?;
    let sample = |&row: &usize| {
        stop.check()?;
        Ok((tokenizer.first_chunk(&samples.texts[row])?, vec![samples.labels[row]]))
    };
    let train = splits.train.par_iter().map(sample).collect::<Result<Vec<_>>>()?;
    let weights: Vec<f32> = splits.train.iter().map(|&row| samples.weight(row) as f32).collect();
    let network =
        fit(&train, &weights, request.config.loss(), request.stream("lexical").random(), stop)?;
    let (config, name) = (request.config, request.name);
    let metrics = |rows: &[usize]| -> Result<Option<Metrics>> {
        let score =
            |&row: &usize| Ok(network.score(&tokenizer.first_chunk(&samples.texts[row])?)[0]);
        let scores = rows.par_iter().map(score).collect::<Result<Vec<f32>>>()?;
        Ok(request.metrics_of(&scores, rows).map(Metrics::rounded))
    };
    let test = metrics(&splits.test)?;
    request.warn_of_few(test);
    let record = TrainingRecord {
        seed: request.seed,
        validation: metrics(&splits.validation)?,
        test,
        ..TrainingRecord::default()
    };
    let spec =
        HeadSpec { output: config.output(name), keep: config.keep(name), ..HeadSpec::default() };
    LexicalHead::trained(request.card(spec, record, &splits), network, tokenizer)
}
