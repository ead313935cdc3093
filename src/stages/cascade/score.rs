//! Scores the documents of a shard with a first pass.

use std::collections::BTreeMap;

use super::first_pass::{Predicted, TrainedPass};
use polysift_base::error::Result;
use polysift_corpus::Context;
use polysift_corpus::cascaded::LanguageCascade;
use polysift_data::input::{DocumentBuilder, DocumentReader};
use polysift_data::parts::{DocumentScore, ScoreRows, write_scores};
use polysift_runs::run::{Shard, ShardMarker};

/// Number of documents whose texts are in memory together.
const BATCH_ROWS: usize = 1024;

/// Scores the documents of `shard` with `pass` and writes their margins over the thresholds of
/// `result`.
pub(super) fn score_shard(
    context: Context<'_>,
    pass: &TrainedPass<'_>,
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
                margins[first + place] = Some(DocumentScore { logit: margin, score: margin });
            }
            batch.iter().for_each(|document| documents.push(&document));
            progress.advance(batch.len() as u64, 0);
        }
        let is_last = batch.is_none();
        if margins.len() == config.parts.rows || is_last && !margins.is_empty() {
            let rows = margins.len() as u64;
            let margins = std::mem::take(&mut margins);
            let scores = ScoreRows { documents: documents.finish(), scores: margins };
            let (name, index) = (&shard.name, marker.files.len());
            let path = run.path(format!("cascade/scores/{name}/part-{index:05}.parquet"));
            context.check_held()?;
            let stamp = write_scores(&path, &scores, config.parts.zstd)?;
            marker.files.push(run.file(&path, rows, stamp));
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
