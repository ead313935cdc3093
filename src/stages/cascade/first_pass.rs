//! First passes: which kind is trained or loaded, and how one scores a shard.

use std::collections::BTreeMap;

use super::encoded_pass::EncodedPass;
use super::full_run::FullRun;
use super::lexical_pass::LexicalPass;
use super::pass::{Pass, Predicted, TrainingHalf};
use super::pilot::Pilot;
use polysift_base::error::Result;
use polysift_base::io::{remove, write_atomic};
use polysift_config::FirstPass;
use polysift_corpus::cascaded::LanguageCascade;
use polysift_corpus::context::Context;
use polysift_data::input::{DocumentBuilder, DocumentReader};
use polysift_data::parts::{ScoreRows, write_scores};
use polysift_runs::run::{PartFile, RunDir, Shard, ShardMarker};

/// Number of documents whose texts are in memory together.
const BATCH_ROWS: usize = 1024;

/// Trains `pass` for `language` on `pilot` to predict the heads `names`, and writes its files.
pub(super) fn fit(
    full: &FullRun<'_>,
    pass: FirstPass,
    language: &str,
    pilot: &Pilot,
    names: &[&str],
) -> Result<Vec<PartFile>> {
    let run = full.context.run;
    let half = TrainingHalf::of(full, language, pilot, names);
    let models = match pass {
        FirstPass::Lexical => LexicalPass::fit(full, language, &half)?,
        _ => EncodedPass::fit(full, pass, language, &half)?,
    };
    let mut files = Vec::new();
    for (path, bytes) in models {
        match write_atomic(&path, &bytes) {
            Ok(stamp) => files.push(PartFile { path: run.relative(&path), rows: 1, stamp }),
            Err(error) => return discard(run, &files).and(Err(error)),
        }
    }
    Ok(files)
}

/// Removes the files of a first pass, because another one is better or training failed.
pub(super) fn discard(run: &RunDir, files: &[PartFile]) -> Result<()> {
    files.iter().try_for_each(|file| remove(&run.path(&file.path)))
}

/// Loads the first pass of `language`, which predicts the heads `names`, in ascending order.
pub(super) fn load<'a>(
    full: &'a FullRun<'a>,
    pass: FirstPass,
    language: &str,
    names: Vec<String>,
) -> Result<Box<dyn Pass + 'a>> {
    Ok(match pass {
        FirstPass::Lexical => Box::new(LexicalPass::load(full, language, names)?),
        _ => Box::new(EncodedPass::load(full, pass, language, names)?),
    })
}

/// Scores the documents of `shard` with `pass` and writes their margins over the thresholds of
/// `result`.
pub(super) fn score_shard(
    context: Context<'_>,
    pass: &dyn Pass,
    result: &LanguageCascade,
    shard: &Shard,
) -> Result<ShardMarker> {
    let Context { config, run, stop, progress, .. } = context;
    let mut marker = ShardMarker::default();
    let mut reader = DocumentReader::open(&shard.input()?, &config.input)?;
    let (mut documents, mut margins) = (DocumentBuilder::default(), Vec::new());
    loop {
        stop.check()?;
        let left = config.parts.rows - margins.len();
        let batch = reader.next_batch(BATCH_ROWS.min(left))?;
        if let Some(batch) = &batch {
            let (places, texts): (Vec<usize>, Vec<&str>) = batch.texts().unzip();
            let found = above(&pass.predict(&texts)?, &result.heads);
            let first = margins.len();
            margins.resize(first + batch.len(), None);
            for (place, margin) in places.into_iter().zip(found) {
                margins[first + place] = Some(margin);
            }
            batch.iter().for_each(|document| documents.push(&document));
            progress.advance(batch.len() as u64, 0);
        }
        let is_last = batch.is_none();
        if margins.len() == config.parts.rows || is_last && !margins.is_empty() {
            let rows = margins.len() as u64;
            let margins = std::mem::take(&mut margins);
            let scores = ScoreRows {
                documents: documents.finish(),
                logits: margins.clone(),
                scores: margins,
            };
            let path = run.first_pass_part(shard, marker.files.len());
            let stamp = write_scores(&path, &scores, config.parts.zstd)?;
            marker.files.push(PartFile { path: run.relative(&path), rows, stamp });
            marker.rows += rows;
        }
        if is_last {
            return Ok(marker);
        }
    }
}

/// Returns the margin of each document: the largest difference of its scores to the `thresholds`.
/// It is at least 0 if one head wants the document.
pub(super) fn above(predicted: &Predicted, thresholds: &BTreeMap<String, f32>) -> Vec<f32> {
    let len = predicted.values().next().map_or(0, Vec::len);
    let mut margins = vec![f32::NEG_INFINITY; len];
    for (head, threshold) in thresholds {
        for (margin, score) in margins.iter_mut().zip(predicted.get(head).into_iter().flatten()) {
            *margin = margin.max(score - threshold);
        }
    }
    margins
}
