//! Scores of shards with several languages, in memory for a group of languages.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::language_groups::LanguageGroups;
use crate::left_out::LeftOut;
use crate::score_files::{
    ROW, Rescored, RescoredOf, ScoreFiles, batches_of, replace_scores, weight_column, weights_of,
};
use crate::verdicts::removed_rows;
use crate::{Context, Embedded};
use polysift_base::error::Result;
use polysift_data::parts::PartBatch;
use polysift_runs::run::Shard;
use polysift_selection::{HeadColumn, ScanRequest, ScoreBatch};

/// Maximum bytes of the scores of a group of languages.
const MAX_BYTES: u64 = 2 << 30;

/// Scores of a group of languages in the shards with several languages, by index in the plan.
pub struct MixedScores {
    pub(crate) shards: BTreeMap<u64, MixedShard>,
}

/// Scores of a group of languages in a shard, and the rows of any language that filters remove.
pub(crate) struct MixedShard {
    pub(crate) left_out: LeftOut,
    pub(crate) languages: BTreeMap<String, MixedRows>,
}

/// Scores of a language in a shard, in the order of its rows.
pub(crate) struct MixedRows {
    len: usize,
    /// By head of the run: logits and scores, and which rows have both.
    heads: Vec<([Vec<f32>; 2], Vec<bool>)>,
    /// `None` if every document weighs 1.
    weights: Option<Vec<u64>>,
}

impl MixedScores {
    /// Groups the languages of `embedded` by the sizes of their scores in `files`, of which
    /// `rescored` replaces some.
    pub fn groups<'a>(
        context: Context<'a>,
        embedded: &'a Embedded,
        files: ScoreFiles,
        rescored: Option<&'a RescoredOf<'a>>,
    ) -> LanguageGroups<'a, Self> {
        let bytes_per_document = 9 * context.config.heads.len() as u64 + 8;
        LanguageGroups::new(embedded, MAX_BYTES / bytes_per_document, move |group| {
            let shards = embedded.mixed_shards_with(group).into_par_iter();
            let read = |(place, shard, num_parts)| {
                let rescored = rescored.map_or(Ok(Rescored::new()), |of_shard| of_shard(shard))?;
                let read = MixedShard::read(context, files, &rescored, group, shard, num_parts)?;
                Ok((place, read))
            };
            Ok(Self { shards: shards.map(read).collect::<Result<_>>()? })
        })
    }
}

impl MixedShard {
    /// Reads the scores of the languages `group` in `shard`.
    fn read(
        context: Context<'_>,
        files: ScoreFiles,
        rescored: &Rescored,
        group: &[&str],
        shard: &Shard,
        num_parts: usize,
    ) -> Result<Self> {
        let heads: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
        let removed = removed_rows(context, shard, None)?;
        let weight = weight_column(context.config);
        let row = (!removed.is_empty() || !rescored.is_empty()).then_some(ROW);
        let names: Vec<&str> = weight.into_iter().chain(row).chain(["language"]).collect();
        let new = || MixedRows {
            len: 0,
            heads: vec![Default::default(); heads.len()],
            weights: weight.map(|_| Vec::new()),
        };
        let mut found: Vec<MixedRows> = group.iter().map(|_| new()).collect();
        for index in 0..num_parts {
            context.stop.check()?;
            let parts = files.open(context.run, heads.iter().copied(), shard, index)?;
            let mut scans = batches_of(&parts, names.clone())?;
            loop {
                let batches = scans.iter_mut().filter_map(Iterator::next);
                let mut batches: Vec<PartBatch> = batches.collect::<Result<_>>()?;
                let Some(first) = batches.first() else { break };
                let rows = row.map_or(Ok(None), |row| first.numbers(row))?.map(<[u64]>::to_vec);
                let rows = rows.unwrap_or_default();
                if !rescored.is_empty() {
                    replace_scores(batches.iter_mut().enumerate(), &rows, rescored)?;
                }
                let is_removed = |at: usize| rows.get(at).is_some_and(|row| removed.contains(*row));
                deal(&batches, weight, is_removed, group, &mut found)?;
            }
        }
        let found = group.iter().zip(found).filter(|(_, rows)| rows.len > 0);
        let languages = found.map(|(language, rows)| ((*language).to_owned(), rows)).collect();
        Ok(Self { left_out: LeftOut { removed, ..LeftOut::default() }, languages })
    }
}

/// Appends each row of `batches`, one per head, to the rows in `found` of its language in `group`.
fn deal(
    batches: &[PartBatch],
    weight: Option<&str>,
    is_removed: impl Fn(usize) -> bool,
    group: &[&str],
    found: &mut [MixedRows],
) -> Result<()> {
    let weights = weight.map(|name| weights_of(&batches[0], name)).transpose()?;
    let columns = batches.iter().map(|batch| Ok((batch.values()?, batch.present()?)));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    for (at, language) in batches[0].languages()?.iter().flatten().enumerate() {
        let Ok(own) = group.binary_search(&language) else { continue };
        if is_removed(at) {
            continue;
        }
        let MixedRows { len, heads, weights: own_weights } = &mut found[own];
        *len += 1;
        for (([logits, scores], has_score), (values, present)) in heads.iter_mut().zip(&columns) {
            logits.push(values[0][at]);
            scores.push(values[1][at]);
            has_score.push(present.as_ref().is_none_or(|present| present[at]));
        }
        if let Some((own, weights)) = own_weights.as_mut().zip(weights) {
            own.push(weights[at]);
        }
    }
    Ok(())
}

impl MixedRows {
    /// Passes the rows to `visit`; returns false without doing so if the `request` needs ids, which
    /// are not in memory.
    pub(crate) fn scan(
        &self,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<bool> {
        let mut heads = vec![HeadColumn::default(); self.heads.len()];
        for &head in &request.heads {
            let ([logits, scores], present) = &self.heads[head];
            let present = present.contains(&false).then_some(&present[..]);
            heads[head] = HeadColumn { logits, scores, present };
        }
        if request.wants_any_id(&heads) {
            return Ok(false);
        }
        if request.others {
            let weights = self.weights.as_deref();
            visit(&ScoreBatch { len: self.len, weights, heads: &heads, ..ScoreBatch::default() })?;
        }
        Ok(true)
    }
}
