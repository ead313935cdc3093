//! Agreement of a run's heads on its stored scores, without reading or encoding texts.

use rayon::prelude::*;
use twox_hash::XxHash3_64;

use super::agreement::{HeadLogits, Pair, pairs};
use crate::stage::context::Context;
use crate::stage::corpus::{ScoreFiles, read_part};
use crate::stage::embedded::{Embedded, ordinal};
use polysift_base::error::Result;
use polysift_base::sample::BottomKSample;
use polysift_config::{Keep, Rate};
use polysift_data::parts::ScoreRows;
use polysift_selection::RankKey;

/// Default maximum number of documents of a language that are compared.
pub const DEFAULT_SAMPLE: usize = 250_000;

/// Seed of the hash that draws the sample; the hash for ties has another seed.
const SAMPLE_SEED: u64 = 1;

/// Compares the heads of a run on their stored scores, from the refine stage if it has any. Memory
/// holds at most `sample` documents per language: the ones with the smallest hashes of their ids
/// among those with any score. The order of files and the number of threads do not matter.
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
        let shards = embedded.shards_of(&language).into_par_iter();
        shards.try_for_each(|(place, shard, num_parts)| -> Result<()> {
            (0..num_parts).try_for_each(|index| {
                context.stop.check()?;
                let part = read_part(context, files, &heads, shard, index)?;
                offer_part(&sampled, &part, place, &language);
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

/// Offers the documents of one part of the scores of the shard at `place`.
fn offer_part(
    sample: &BottomKSample<SampledDocument>,
    heads: &[ScoreRows],
    place: u64,
    language: &str,
) {
    let logit = |head: &ScoreRows, row: usize| match (head.logits[row], head.scores[row]) {
        (Some(logit), Some(score)) if !score.is_nan() => logit,
        _ => f32::NAN,
    };
    for (row, document) in heads[0].documents.iter().enumerate() {
        let has_score = heads.iter().any(|head| !logit(head, row).is_nan());
        if document.language == language && has_score {
            let ordinal = ordinal(place, document.row);
            let hash = XxHash3_64::oneshot_with_seed(SAMPLE_SEED, document.id.as_bytes());
            sample.offer(u128::from(hash) << 64 | u128::from(ordinal), || SampledDocument {
                tie: RankKey::of_logit(0.0, Keep::Above).with_id(document.id, ordinal),
                logits: heads.iter().map(|head| logit(head, row)).collect(),
            });
        }
    }
}
