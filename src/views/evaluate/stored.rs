//! Agreement of a run's heads on its stored scores, without reading or encoding texts.

use rayon::prelude::*;
use twox_hash::XxHash3_64;

use super::agreement::{HeadLogits, Pair, pairs};
use polysift_base::error::Result;
use polysift_base::sample::BottomKSample;
use polysift_config::{Keep, Rate};
use polysift_corpus::context::Context;
use polysift_corpus::embedded::Embedded;
use polysift_corpus::rows::{Row, RunRows};
use polysift_corpus::scan::ScoreFiles;
use polysift_selection::RankKey;

/// Default maximum number of documents of a language that are compared.
pub const DEFAULT_SAMPLE: usize = 250_000;

/// Seed of the hash that draws the sample; the hash for ties has another seed.
const SAMPLE_SEED: u64 = 1;

/// Compares the heads of a run on their stored scores, from the refine stage if it has any. Memory
/// holds at most `sample` documents per language: the ones with the smallest hashes of their ids
/// among those with any score, without those that filters remove before the thresholds or a cascade
/// drops. The order of files and the number of threads do not matter.
///
/// # Errors
/// [`Error::Missing`](polysift_base::Error::Missing) if a head has not scored every document;
/// [`Error::Stopped`](polysift_base::Error::Stopped); errors of reading the scores.
pub fn evaluate_run(context: Context<'_>, top: Rate, sample: usize) -> Result<Vec<Pair>> {
    let heads: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let embedded = Embedded::scored(context.run, &heads)?;
    let files = ScoreFiles::selected(context)?;
    let mut agreement = Vec::new();
    if heads.is_empty() {
        return Ok(agreement);
    }
    let languages = embedded.languages();
    context.progress.begin("evaluate", Some(languages.len() as u64), "languages");
    let outcome = languages.into_iter().try_for_each(|language| -> Result<()> {
        let sampled = BottomKSample::new(sample);
        let rows = RunRows::open(context, Some(files), [language.clone()])?;
        let shards = embedded.shards_of(&language).into_par_iter();
        shards.try_for_each(|(place, shard, _)| {
            rows.shard(place, shard)?.for_each(|row| {
                if row.info.language == language && !row.is_removed {
                    offer(&sampled, row, heads.len());
                }
                Ok(())
            })
        })?;
        let documents = sampled.into_items();
        let ties: Vec<RankKey> = documents.iter().map(|document| document.tie).collect();
        let logits = |(head, name)| -> HeadLogits<'_> {
            (name, documents.iter().map(|document| document.logits[head]).collect())
        };
        let columns: Vec<_> = heads.iter().copied().enumerate().map(logits).collect();
        agreement.extend(pairs(&language, &columns, &ties, top));
        context.progress.advance(1, 0);
        Ok(())
    });
    context.progress.end();
    outcome.map(|()| agreement)
}

#[derive(Debug, Clone, PartialEq, PartialOrd)]
struct SampledDocument {
    tie: RankKey,
    /// Logits by head; NaN where there is none.
    logits: Box<[f32]>,
}

fn offer(sample: &BottomKSample<SampledDocument>, row: &Row<'_>, num_heads: usize) {
    let logit = |head| row.number(head).map_or(f32::NAN, |(logit, _)| logit);
    if (0..num_heads).all(|head| logit(head).is_nan()) {
        return;
    }
    let (id, ordinal) = (row.info.id, row.scored.ordinal);
    let hash = XxHash3_64::oneshot_with_seed(SAMPLE_SEED, id.as_bytes());
    sample.offer(u128::from(hash) << 64 | u128::from(ordinal), || SampledDocument {
        tie: RankKey::of_logit(0.0, Keep::Above).with_id(id, ordinal),
        logits: (0..num_heads).map(logit).collect(),
    });
}
