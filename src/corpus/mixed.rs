//! Scores of shards with several languages, in memory for a group of languages.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::language_groups::LanguageGroups;
use crate::left_out::LeftOut;
use crate::score_files::{
    ROW, Rescored, RescoredOf, ScoreFiles, batches_of, next_batches, replace_scores, weight_column,
    weights_of,
};
use crate::verdicts::removed_rows;
use crate::{Context, Embedded};
use polysift_base::error::Result;
use polysift_data::parts::PartBatch;
use polysift_runs::run::Shard;
use polysift_selection::{HeadColumn, ScanRequest, ScoreBatch};

/// Maximum bytes of the scores of a group of languages.
const MAX_BYTES: u64 = 2 << 30;
/// Shards whose scores are in memory before they are dealt to the languages.
const SHARDS_AT_ONCE: usize = 64;

/// Scores of a group of languages in the shards with several languages.
pub struct MixedScores {
    /// By index of the shard in the plan: the rows of any language that filters remove.
    pub(crate) left_out: BTreeMap<u64, LeftOut>,
    languages: BTreeMap<String, MixedRows>,
}

/// Scores of a language, in the order of shards and rows.
#[derive(Clone)]
struct MixedRows {
    /// Index in the plan of each shard with rows, ascending, and its first row here.
    shards: Vec<(u64, usize)>,
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
        let heads = context.config.heads.len();
        // A shard may have one document of each language.
        let bytes_per_document = 9 * heads + 8 + size_of::<(u64, usize)>();
        LanguageGroups::new(embedded, MAX_BYTES / bytes_per_document as u64, move |group| {
            let new = MixedRows {
                shards: Vec::new(),
                len: 0,
                heads: vec![Default::default(); heads],
                weights: weight_column(context.config).map(|_| Vec::new()),
            };
            let (mut left_out, mut all) = (BTreeMap::new(), vec![new.clone(); group.len()]);
            for shards in embedded.mixed_shards_with(group).chunks(SHARDS_AT_ONCE) {
                let read = |&(_, shard, num_parts): &(u64, &Shard, usize)| {
                    let rescored = rescored.map_or(Ok(Rescored::new()), |of| of(shard))?;
                    let found = vec![new.clone(); group.len()];
                    read_shard(context, files, &rescored, group, (shard, num_parts), found)
                };
                let read: Vec<_> = shards.par_iter().map(read).collect::<Result<_>>()?;
                for (&(place, ..), (own_left_out, found)) in shards.iter().zip(read) {
                    left_out.insert(place, own_left_out);
                    all.iter_mut().zip(found).for_each(|(all, own)| all.append(place, own));
                }
            }
            let languages = group.iter().map(|language| (*language).to_owned()).zip(all).collect();
            Ok(Self { left_out, languages })
        })
    }

    /// Passes the rows of `language` in the shard `place` to `visit`; returns false without doing
    /// so if the `request` needs ids, which are not in memory.
    pub(crate) fn scan(
        &self,
        language: &str,
        place: u64,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Some(rows) = self.languages.get(language) else { return Ok(false) };
        let Ok(at) = rows.shards.binary_search_by_key(&place, |(place, _)| *place) else {
            return Ok(true); // filters remove all rows
        };
        let end = rows.shards.get(at + 1).map_or(rows.len, |(_, start)| *start);
        let range = rows.shards[at].1..end;
        let mut heads = vec![HeadColumn::default(); rows.heads.len()];
        for &head in &request.heads {
            let ([logits, scores], present) = &rows.heads[head];
            let [logits, scores] = [logits, scores].map(|values| &values[range.clone()]);
            let present = &present[range.clone()];
            let present = present.contains(&false).then_some(present);
            heads[head] = HeadColumn { logits, scores, present };
        }
        if request.wants_any_id(&heads) {
            return Ok(false);
        }
        if request.others {
            let weights = rows.weights.as_ref().map(|weights| &weights[range.clone()]);
            let batch = ScoreBatch { len: range.len(), weights, ..ScoreBatch::default() };
            visit(&ScoreBatch { heads: &heads, ..batch })?;
        }
        Ok(true)
    }
}

impl MixedRows {
    /// Appends the rows of the shard `place`.
    fn append(&mut self, place: u64, mut own: Self) {
        if own.len == 0 {
            return;
        }
        self.shards.push((place, self.len));
        self.len += own.len;
        for ((all, all_present), (own, own_present)) in self.heads.iter_mut().zip(&mut own.heads) {
            all.iter_mut().zip(own).for_each(|(all, own)| all.append(own));
            all_present.append(own_present);
        }
        if let Some((all, own)) = self.weights.as_mut().zip(own.weights.as_mut()) {
            all.append(own);
        }
    }
}

/// Reads the scores of the languages `group` in a shard with a number of parts into `found`, by
/// language; also returns the rows that filters remove.
fn read_shard(
    context: Context<'_>,
    files: ScoreFiles,
    rescored: &Rescored,
    group: &[&str],
    (shard, num_parts): (&Shard, usize),
    mut found: Vec<MixedRows>,
) -> Result<(LeftOut, Vec<MixedRows>)> {
    let heads: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
    let removed = removed_rows(context, shard, None)?;
    let weight = weight_column(context.config);
    let row = (!removed.is_empty() || !rescored.is_empty()).then_some(ROW);
    let names: Vec<&str> = weight.into_iter().chain(row).chain(["language"]).collect();
    for index in 0..num_parts {
        context.stop.check()?;
        let parts = files.open(context.run, heads.iter().copied(), shard, index)?;
        let mut scans = batches_of(&parts, names.clone())?;
        loop {
            let mut batches = next_batches(scans.iter_mut())?;
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
    Ok((LeftOut { removed, ..LeftOut::default() }, found))
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
        let MixedRows { len, heads, weights: own_weights, .. } = &mut found[own];
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
