//! Agreement of two heads in the order of documents and in the documents that they put on top.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;
use twox_hash::XxHash3_64;

use polysift_base::error::Result;
use polysift_base::metrics::{ratio, spearman};
use polysift_base::sample::BottomKSample;
use polysift_config::{HeadConfig, Keep, Rate};
use polysift_corpus::heads::frozen_keep;
use polysift_corpus::rows::{RunRows, check_removed};
use polysift_corpus::{Context, Embedded, ScoreFiles};
use polysift_runs::run::Stage;
use polysift_selection::RankKey;

/// Default maximum number of documents of a language that are compared.
pub const DEFAULT_SAMPLE: usize = 250_000;

/// Seed of the hash that draws the sample; the hash for ties has another seed.
const SAMPLE_SEED: u64 = 1;

/// Agreement of two heads on the documents of a language that both scored.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    pub(crate) language: String,
    /// Name of one head; `b` is the other.
    pub(crate) a: String,
    pub(crate) b: String,
    /// Number of documents that both heads scored (not NaN).
    pub(crate) documents: usize,
    /// Spearman rank correlation of the scores.
    pub(crate) spearman: Option<f64>,
    /// Documents in each head's top, those that it keeps first: ceil(rate · documents), with ties
    /// broken as in a selection.
    pub(crate) top: usize,
    /// Number of documents in both tops.
    pub(crate) shared: usize,
    /// `shared` / `top`.
    pub(crate) overlap: Option<f64>,
}

/// Name of a head, what it keeps, and its logits on some documents; NaN where there is none.
pub(super) type HeadLogits<'a> = (&'a str, Keep, Vec<f32>);

/// Compares the heads of a run on their stored scores, from the refine stage if it has any. Of
/// each language at most `sample` documents are compared: those with the smallest hashes of their
/// ids, of all that have a score and that neither a filter removes before the thresholds nor a
/// cascade drops. Memory holds about four million documents (a group of languages), each with its
/// logits. The order of files and the number of threads do not matter.
pub fn evaluate_run<'a>(context: Context<'a>, top: Rate, sample: usize) -> Result<Vec<Pair>> {
    let embedded = Embedded::scored(context.run, context.config.heads.keys())?;
    check_removed(context, &embedded)?;
    let settings = context.run.frozen_settings(Stage::Score)?.unwrap_or_default();
    let files = ScoreFiles::selected(context)?;
    let mut agreement = Vec::new();
    let heads = 0..context.config.heads.len();
    if heads.is_empty() {
        return Ok(agreement);
    }
    let groups = embedded.language_groups(&embedded.languages(), sample as u64);
    let languages = groups.iter().map(Vec::len).sum::<usize>() as u64;
    context.progress.begin("evaluate", Some(languages), "languages");
    for group in &groups {
        let samples: BTreeMap<&str, _> =
            group.iter().map(|language| (*language, BottomKSample::new(sample))).collect();
        let rows = RunRows::open(context, Some(files), group.iter().map(ToString::to_string))?;
        let shards = embedded.shards_with(group).into_par_iter();
        shards.try_for_each(|(place, shard, _)| {
            rows.shard(place, shard)?.for_each(|row| {
                let sampled = samples.get(row.info.language).filter(|_| !row.is_removed);
                let Some(sampled) = sampled else { return Ok(()) };
                let logit = |head| row.score(head).map_or(f32::NAN, |score| score.logit);
                if heads.clone().any(|head| !logit(head).is_nan()) {
                    let (id, ordinal) = (row.info.id, row.scored.ordinal);
                    let hash = XxHash3_64::oneshot_with_seed(SAMPLE_SEED, id.as_bytes());
                    let rank = u128::from(hash) << 64 | u128::from(ordinal);
                    sampled.offer(rank, || {
                        let tie = RankKey::of_logit(0.0, Keep::Above).with_id(id, ordinal);
                        (tie, heads.clone().map(logit).collect::<Box<[f32]>>())
                    });
                }
                Ok(())
            })
        })?;
        for (language, sampled) in samples {
            let documents = sampled.into_items();
            let ties: Vec<RankKey> = documents.iter().map(|(tie, _)| *tie).collect();
            let column =
                |(at, (head, config)): (usize, (&'a String, &HeadConfig))| -> HeadLogits<'a> {
                    let keep = frozen_keep(&settings, head, language);
                    let logits = documents.iter().map(|(_, logits)| logits[at]).collect();
                    (head, keep.unwrap_or_else(|| config.keep(head)), logits)
                };
            let columns: Vec<_> = context.config.heads.iter().enumerate().map(column).collect();
            agreement.extend(compare_pairs(language, &columns, &ties, top));
            context.progress.advance(1, 0);
        }
    }
    context.progress.end();
    Ok(agreement)
}

/// Compares all pairs of `columns` of a language. `ties` are the documents' keys without a logit.
pub(super) fn compare_pairs(
    language: &str,
    columns: &[HeadLogits<'_>],
    ties: &[RankKey],
    top_rate: Rate,
) -> Vec<Pair> {
    let pair = |(a, b): (&HeadLogits<'_>, &HeadLogits<'_>)| {
        let scored = a.2.iter().zip(&b.2).zip(ties);
        let scored = scored.filter(|((a, b), _)| !a.is_nan() && !b.is_nan());
        let ((logits_a, logits_b), ties): ((Vec<f32>, Vec<f32>), Vec<RankKey>) = scored.unzip();
        let top = top_rate.ceil_of(ties.len() as u64) as usize;
        let top_a = mark_top(&logits_a, a.1, &ties, top);
        let top_b = mark_top(&logits_b, b.1, &ties, top);
        let shared = top_a.iter().zip(top_b).filter(|&(&in_a, in_b)| in_a && in_b).count();
        Pair {
            language: language.to_owned(),
            a: a.0.to_owned(),
            b: b.0.to_owned(),
            documents: ties.len(),
            spearman: spearman(&logits_a, &logits_b),
            top,
            shared,
            overlap: ratio(shared, top),
        }
    };
    let others = columns.iter().enumerate().map(|(i, a)| (a, &columns[i + 1..]));
    others.flat_map(|(a, others)| others.iter().map(move |b| (a, b))).map(pair).collect()
}

/// Returns whether each document is among the `top` that a head keeps first.
fn mark_top(logits: &[f32], keep: Keep, ties: &[RankKey], top: usize) -> Vec<bool> {
    let key =
        |row: usize| RankKey { logit: RankKey::of_logit(logits[row], keep).logit, ..ties[row] };
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let mut is_top = vec![false; logits.len()];
    if top > 0 && top < order.len() {
        order.select_nth_unstable_by_key(top, |&row| key(row));
    }
    order.iter().take(top).for_each(|&row| is_top[row] = true);
    is_top
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ties(n: usize) -> Vec<RankKey> {
        let key = |i| RankKey::of_logit(0.0, Keep::Above).with_id(&format!("d{i}"), i as u64);
        (0..n).map(key).collect()
    }

    fn column(head: &str, logits: Vec<f32>) -> HeadLogits<'_> {
        (head, Keep::Above, logits)
    }

    fn rate(text: &str) -> Result<Rate, Box<dyn std::error::Error>> {
        Ok(text.parse::<Rate>()?)
    }

    #[test]
    fn only_documents_with_both_scores_count() -> Result<(), Box<dyn std::error::Error>> {
        let columns = [
            column("a", vec![1.0, 2.0, f32::NAN, 3.0]),
            column("b", vec![5.0, f32::NAN, 6.0, 7.0]),
        ];
        let pairs = compare_pairs("und", &columns, &ties(4), rate("0.5")?);
        assert_eq!(pairs.len(), 1);
        let pair = &pairs[0];
        assert_eq!((pair.documents, pair.spearman, pair.top, pair.shared), (2, Some(1.0), 1, 1));
        Ok(())
    }

    #[test]
    fn reversed_orders_share_no_top() -> Result<(), Box<dyn std::error::Error>> {
        let up: Vec<f32> = (0..40u8).map(f32::from).collect();
        let down: Vec<f32> = up.iter().map(|x| -x).collect();
        let columns = [column("up", up.clone()), column("down", down)];
        let found = compare_pairs("und", &columns, &ties(40), rate("0.1")?);
        assert_eq!((found[0].spearman, found[0].top, found[0].shared), (Some(-1.0), 4, 0));
        // A head that keeps low scores puts the documents with the lowest on top.
        let [_, (down, _, logits)] = columns;
        let columns = [column("up", up), (down, Keep::Below, logits)];
        let found = compare_pairs("und", &columns, &ties(40), rate("0.1")?);
        assert_eq!((found[0].spearman, found[0].top, found[0].shared), (Some(-1.0), 4, 4));
        Ok(())
    }

    #[test]
    fn heads_that_know_nothing_still_pick_the_same_by_the_tie_rule()
    -> Result<(), Box<dyn std::error::Error>> {
        let columns = [column("a", vec![0.0; 30]), column("b", vec![7.0; 30])];
        let pairs = compare_pairs("und", &columns, &ties(30), rate("0.1")?);
        assert_eq!((pairs[0].spearman, pairs[0].top, pairs[0].overlap), (None, 3, Some(1.0)));
        Ok(())
    }

    #[test]
    fn no_documents_have_no_agreement() -> Result<(), Box<dyn std::error::Error>> {
        let nan = vec![f32::NAN; 3];
        let columns = [column("a", nan.clone()), column("b", nan)];
        let pairs = compare_pairs("und", &columns, &ties(3), rate("0.1")?);
        assert_eq!((pairs[0].documents, pairs[0].spearman, pairs[0].overlap), (0, None, None));
        Ok(())
    }

    proptest! {
        #[test]
        fn tops_are_the_first_of_the_whole_order(
            logits in prop::collection::vec(-3i8..3, 0..50), top in 0usize..60,
        ) {
            let logits: Vec<f32> = logits.into_iter().map(f32::from).collect();
            let top = top.min(logits.len());
            let ties = ties(logits.len());
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by_key(|&row| {
                (RankKey::of_logit(logits[row], Keep::Above), ties[row].id_hash, row)
            });
            let mut expected = vec![false; logits.len()];
            order[..top].iter().for_each(|&row| expected[row] = true);
            prop_assert_eq!(mark_top(&logits, Keep::Above, &ties, top), expected);
        }
    }
}
