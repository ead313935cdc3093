//! The stored scores of one language as the selection scans them, and its thresholds.

use rayon::prelude::*;
use twox_hash::XxHash3_64;

use crate::embedded::ordinal;
use crate::left_out::LeftOut;
use crate::mixed::MixedScores;
use crate::score_files::{
    ROW, Rescored, RescoredOf, ScoreFiles, batches_of, next_batches, replace_scores, weight_column,
    weights_of,
};
use crate::verdicts::removed_rows;
use crate::{Cascade, Context, Embedded};
use polysift_base::error::Result;
use polysift_data::parts::{PartBatch, PartBatches, PartReader};
use polysift_runs::run::Shard;
use polysift_selection::{Amount, Corpus, HeadColumn, ScanRequest, ScoreBatch};

/// The scores of all heads for one language.
pub struct ScoredCorpus<'a> {
    context: Context<'a>,
    files: ScoreFiles,
    language: &'a str,
    heads: Vec<&'a str>,
    pub(crate) cascade: Cascade,
    /// Shards with documents of the language: index in the plan, shard, number of parts.
    shards: Vec<(u64, &'a Shard, usize)>,
    /// By shard that `mixed` lacks; read once, although a selection scans the scores several times.
    left_out: Vec<LeftOut>,
    rescored: Option<&'a RescoredOf<'a>>,
    mixed: Option<&'a MixedScores>,
}

impl<'a> ScoredCorpus<'a> {
    /// Opens the scores of `language` in `files`; `rescored` replaces some of them. Shards that are
    /// in `mixed` are read only if ids are needed.
    pub fn open(
        context: Context<'a>,
        embedded: &'a Embedded,
        language: &'a str,
        files: ScoreFiles,
        rescored: Option<&'a RescoredOf<'a>>,
        mixed: Option<&'a MixedScores>,
    ) -> Result<Self> {
        let heads = context.config.heads.keys().map(String::as_str).collect();
        let shards = embedded.shards_with(&[language]);
        let cascade = Cascade::of_languages(context, [language.to_owned()])?;
        let left_out = |&(place, shard, _): &(u64, &'a Shard, usize)| {
            context.stop.check()?;
            if mixed.is_some_and(|mixed| mixed.left_out.contains_key(&place)) {
                return Ok(LeftOut::default());
            }
            let cascaded = cascade.left_out_rows(context, place, shard)?;
            Ok(LeftOut { removed: removed_rows(context, shard, Some(language))?, ..cascaded })
        };
        let left_out = shards.par_iter().map(left_out).collect::<Result<_>>()?;
        Ok(Self { context, files, language, heads, cascade, shards, left_out, rescored, mixed })
    }

    /// Opens part `index` of `shard`; `None` if it has no rows of the language.
    fn open_part(
        &self,
        shard: &Shard,
        index: usize,
        left_out: &LeftOut,
        request: &ScanRequest,
    ) -> Result<Option<ScannedPart<'_>>> {
        if self.heads.is_empty() {
            return Ok(None);
        }
        // Without a requested head the rows still count; every head has all of them.
        let heads = if request.heads.is_empty() { &[0][..] } else { &request.heads };
        let names = heads.iter().map(|&head| self.heads[head]);
        let mut parts = self.files.open(self.context.run, names, shard, index)?;
        let only = parts[0].only_language();
        if only.as_ref().is_some_and(|only| only != self.language) {
            return Ok(None);
        }
        let language = only.is_none().then_some(self.language);
        let weight = weight_column(self.context.config).into_iter();
        let mut names: Vec<&str> = weight.chain(language.map(|_| "language")).collect();
        let LeftOut { removed, dropped, audited, .. } = left_out;
        if !removed.is_empty() || !dropped.is_empty() || !audited.is_empty() {
            names.push(ROW);
        }
        let scans = heads.iter().copied().zip(batches_of(&parts, names)?).collect();
        Ok(Some(ScannedPart { scans, first: parts.swap_remove(0), language, corpus: self }))
    }
}

impl Corpus for ScoredCorpus<'_> {
    fn num_shards(&self) -> usize {
        self.shards.len()
    }

    fn file(&self, shard: usize) -> usize {
        let (_, shard, _) = self.shards[shard];
        XxHash3_64::oneshot(shard.file.as_os_str().as_encoded_bytes()) as usize
    }

    fn scan(
        &self,
        shard: usize,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut left_out = &self.left_out[shard];
        let (place, shard, num_parts) = self.shards[shard];
        if let Some(mixed) = self.mixed
            && let Some(mixed_left_out) = mixed.left_out.get(&place)
        {
            if mixed.scan(self.language, place, request, visit)? {
                return Ok(());
            }
            left_out = mixed_left_out;
        }
        let rescored = self.rescored.map_or(Ok(Rescored::new()), |of_shard| of_shard(shard))?;
        for index in 0..num_parts {
            self.context.stop.check()?;
            if let Some(mut part) = self.open_part(shard, index, left_out, request)? {
                part.scan(place, &rescored, left_out, request, visit)?;
            }
        }
        Ok(())
    }
}

/// Returns the removal weights of the rows left in `batch`; `None` without audited rows.
fn removal_weights(batch: &PartBatch, left_out: &LeftOut) -> Result<Option<Vec<u64>>> {
    if left_out.audited.is_empty() {
        return Ok(None);
    }
    let weight = |&row: &u64| left_out.audited_margin(row).map_or(1, |_| left_out.audit_every);
    let rows = batch.numbers(ROW)?.unwrap_or_default();
    Ok(Some(rows.iter().map(weight).collect()))
}

/// Counts the documents of `batch` that the cascade dropped and that no filter removed. With a
/// cascade, a shard has one language, and every document weighs 1.
fn count_dropped(batch: &PartBatch, left_out: &LeftOut) -> Result<Amount> {
    let LeftOut { removed, dropped, .. } = left_out;
    let is_dropped = |row: &&u64| dropped.contains(**row) && !removed.contains(**row);
    let rows = if dropped.is_empty() { None } else { batch.numbers(ROW)? };
    let number = rows.unwrap_or_default().iter().filter(is_dropped).count() as u64;
    Ok(Amount { num_documents: number, weight: number })
}

/// A part that is scanned: rows of one language, with the scores of some heads.
struct ScannedPart<'a> {
    /// Head index and batches; the first also has the language and weight columns, if needed.
    scans: Vec<(usize, PartBatches)>,
    first: PartReader,
    /// Language of the rows to visit; `None` for all.
    language: Option<&'a str>,
    corpus: &'a ScoredCorpus<'a>,
}

impl ScannedPart<'_> {
    /// Visits all rows except `left_out`; `place` is the index of the shard in the plan.
    fn scan(
        &mut self,
        place: u64,
        rescored: &Rescored,
        left_out: &LeftOut,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut next_row = 0;
        loop {
            let mut batches = next_batches(self.scans.iter_mut().map(|(_, scan)| scan))?;
            let Some(first) = batches.first() else { return Ok(()) };
            let rows = next_row..next_row + first.len();
            next_row = rows.end;
            let counts = |row| left_out.counts(row);
            let is_whole = left_out.removed.is_empty() && left_out.dropped.is_empty();
            let mask = first.mask(self.language, (!is_whole).then_some(&counts))?;
            let dropped = count_dropped(first, left_out)?;
            let mut identities = None;
            if !rescored.is_empty() {
                let found = self.first.identities(rows.clone())?;
                let heads = self.scans.iter().map(|(head, _)| *head);
                let rows = found.numbers(ROW)?.unwrap_or_default();
                replace_scores(heads.zip(&mut batches), rows, rescored)?;
                identities = Some(found);
            }
            if let Some(mask) = &mask {
                batches.iter_mut().try_for_each(|batch| batch.keep(mask))?;
            }
            let present: Vec<Option<Vec<bool>>> =
                batches.iter().map(PartBatch::present).collect::<Result<_>>()?;
            let mut heads = vec![HeadColumn::default(); self.corpus.heads.len()];
            for (((head, _), batch), present) in self.scans.iter().zip(&batches).zip(&present) {
                let [logits, scores] = batch.values()?;
                heads[*head] = HeadColumn { logits, scores, present: present.as_deref() };
            }
            let wants_ids = request.wants_any_id(&heads);
            if !wants_ids && !request.others {
                continue;
            }
            if wants_ids && identities.is_none() {
                identities = Some(self.first.identities(rows)?);
            }
            let (mut ids, mut ordinals) = (Vec::new(), Vec::new());
            if let Some(identities) = identities.as_mut().filter(|_| wants_ids) {
                mask.as_ref().map_or(Ok(()), |mask| identities.keep(mask))?;
                let rows = identities.numbers(ROW)?.unwrap_or_default();
                ordinals.extend(rows.iter().map(|&row| ordinal(place, row)));
                ids = identities.ids()?;
            }
            let removal_weights = removal_weights(&batches[0], left_out)?;
            let weight = weight_column(self.corpus.context.config);
            visit(&ScoreBatch {
                len: batches[0].len(),
                ids: &ids,
                ordinals: &ordinals,
                weights: weight.map(|name| weights_of(&batches[0], name)).transpose()?,
                heads: &heads,
                removal_weights: removal_weights.as_deref(),
                dropped,
            })?;
        }
    }
}
