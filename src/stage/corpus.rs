//! The stored scores of one language as the selection scans them, and the thresholds it makes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::context::{ALL_LANGUAGES, Context};
use super::embedded::Embedded;
use super::heads::Heads;
use super::model::is_precise;
use crate::config::{
    REFINE_MAX_SAMPLE, REFINE_MIN_SAMPLE, REFINE_SAFETY, REFINE_SAMPLE_EVERY, RunConfig, Weight,
};
use crate::error::{Error, Result};
use crate::head::DocumentScore;
use crate::parts::{
    DocumentBatches, DocumentBlock, NUM_TOKENS, ScoreColumns, ScoreRows, ScoreScan, read_scores,
};
use crate::run::{RunDir, Shard, Stage};
use crate::selection::{
    Corpus, HeadColumn, HeadInfo, ScanRequest, ScoreBatch, Selection, Threshold, plan_thresholds,
    select,
};

/// Bits of an ordinal that count rows within a shard.
const ROW_BITS: u32 = 40;

/// Which of a run's scores are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScoreFiles {
    /// Those of the score stage.
    Scored,
    /// Those that the refine stage made of them.
    Refined,
}

impl ScoreFiles {
    /// Those that selections are made of; [`Error::Missing`] if they have to be refined first.
    pub(crate) fn selected(context: Context<'_>) -> Result<Self> {
        let run = context.run;
        if !context.config.selection.refine || is_precise(run)? {
            return Ok(Self::Scored);
        }
        if run.is_done(Stage::Refine, ALL_LANGUAGES)? {
            return Ok(Self::Refined);
        }
        Err(Error::Missing {
            path: run.root().display().to_string(),
            reason: "the scores near the thresholds are not refined yet; run `polysift refine`"
                .into(),
        })
    }

    fn part(self, run: &RunDir, head: &str, shard: &Shard, index: usize) -> PathBuf {
        match self {
            Self::Scored => run.scores_part(head, shard, index),
            Self::Refined => run.refined_part(head, shard, index),
        }
    }
}

/// The scores of a language, all heads side by side.
pub(crate) struct ScoredCorpus<'a> {
    context: Context<'a>,
    files: ScoreFiles,
    language: &'a str,
    heads: Vec<&'a str>,
    /// Shards with documents of the language, with their place in the plan and their parts.
    shards: Vec<(u64, &'a Shard, usize)>,
    /// Scores of some documents of a shard in the place of the stored ones.
    rescored: Option<RescoredOf<'a>>,
}

/// By row of a shard, scores that take the place of the stored ones: one entry per head of the run.
pub(crate) type Rescored = BTreeMap<u64, Vec<Option<DocumentScore>>>;

/// Those of a shard.
type RescoredOf<'a> = &'a (dyn Fn(&Shard) -> Result<Rescored> + Sync);

/// Place of a row in the whole corpus, in plan order.
pub(crate) fn ordinal(shard: u64, row: u64) -> u64 {
    (shard << ROW_BITS) | row
}

fn not_counted() -> Error {
    let reason = "is `tokens`, which were not counted when the corpus was embedded; embed it again \
                  with this setting (`--weight tokens --redo embed`)";
    Error::config("selection.weight", reason)
}

/// The column that `weight` counts, where there is one.
fn weight_column(weight: Weight) -> Option<&'static str> {
    match weight {
        Weight::Documents => None,
        Weight::Bytes => Some("num_bytes"),
        Weight::Tokens => Some(NUM_TOKENS),
    }
}

impl<'a> ScoredCorpus<'a> {
    pub(crate) fn open(
        context: Context<'a>,
        embedded: &'a Embedded,
        language: &'a str,
        files: ScoreFiles,
    ) -> Self {
        let heads = context.config.heads.keys().map(String::as_str).collect();
        let shards = embedded.shards_of(language);
        Self { context, files, language, heads, shards, rescored: None }
    }

    /// The same with what `rescored` gives some of the documents of a shard.
    pub(crate) fn with(self, rescored: RescoredOf<'a>) -> Self {
        Self { rescored: Some(rescored), ..self }
    }
}

/// Part `index` of the scores of `shard`, one entry per head of the run in name order.
pub(crate) fn read_part(
    context: Context<'_>,
    files: ScoreFiles,
    heads: &[&str],
    shard: &Shard,
    index: usize,
) -> Result<Vec<ScoreRows>> {
    let parts: Vec<ScoreRows> = heads
        .iter()
        .map(|head| read_scores(&files.part(context.run, head, shard, index)))
        .collect::<Result<_>>()?;
    if parts.windows(2).all(|pair| pair[0].rows == pair[1].rows) {
        Ok(parts)
    } else {
        let path = files.part(context.run, heads[0], shard, index);
        Err(Error::corrupt(&path, "the scores of two heads do not hold the same rows"))
    }
}

impl Corpus for ScoredCorpus<'_> {
    fn num_shards(&self) -> usize {
        self.shards.len()
    }

    fn scan(
        &self,
        shard: usize,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let (place, shard, num_parts) = self.shards[shard];
        let rescored = self.rescored.map_or(Ok(Rescored::new()), |of_shard| of_shard(shard))?;
        for index in 0..num_parts {
            self.context.stop.check()?;
            if let Some(mut part) = self.open_part(shard, index, request)? {
                part.scan(place, &rescored, request, visit)?;
            }
        }
        Ok(())
    }
}

impl ScoredCorpus<'_> {
    /// Part `index` of `shard`; `None` where it has no rows of the language.
    fn open_part(
        &self,
        shard: &Shard,
        index: usize,
        request: &ScanRequest,
    ) -> Result<Option<ScannedPart<'_>>> {
        if self.heads.is_empty() {
            return Ok(None);
        }
        // Where no head is asked for the rows still count, and every head has them all.
        let heads = if request.heads.is_empty() { &[0][..] } else { &request.heads };
        let path = |head: usize| self.files.part(self.context.run, self.heads[head], shard, index);
        let scans: Vec<(usize, ScoreScan)> = (heads.iter())
            .map(|&head| Ok((head, ScoreScan::open(&path(head))?)))
            .collect::<Result<_>>()?;
        let first = &scans[0].1;
        if scans.iter().any(|(_, scan)| scan.num_rows() != first.num_rows()) {
            let reason = "the scores of two heads do not hold the same rows";
            return Err(Error::corrupt(&path(heads[0]), reason));
        }
        let only = first.only_language();
        if only.as_ref().is_some_and(|only| only != self.language) {
            return Ok(None);
        }
        let weight = self.context.config.selection.weight;
        let language = only.is_none().then_some(self.language);
        let column = weight_column(weight);
        let names: Vec<&str> = column.into_iter().chain(language.map(|_| "language")).collect();
        let documents = if names.is_empty() { None } else { Some(first.documents(&names, 0)?) };
        let num_heads = self.heads.len();
        Ok(Some(ScannedPart { scans, documents, identities: None, language, weight, num_heads }))
    }
}

/// A part of the scores of all heads asked for.
struct ScannedPart<'a> {
    /// With the index of the head.
    scans: Vec<(usize, ScoreScan)>,
    /// Language and weight of the rows, as far as needed.
    documents: Option<DocumentBatches>,
    /// Row and id, from the first batch on in which they are looked at; with the row that comes next.
    identities: Option<(DocumentBatches, usize)>,
    /// The language of the rows to visit; `None`: all.
    language: Option<&'a str>,
    weight: Weight,
    num_heads: usize,
}

impl ScannedPart<'_> {
    /// Visits all rows, with the scores `rescored`; `place` is that of the shard in the plan.
    fn scan(
        &mut self,
        place: u64,
        rescored: &Rescored,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut columns = vec![ScoreColumns::default(); self.scans.len()];
        let mut next_row = 0;
        loop {
            for ((_, scan), column) in self.scans.iter_mut().zip(&mut columns) {
                scan.next(column)?;
            }
            let rows = next_row..next_row + columns[0].len();
            if rows.is_empty() {
                return Ok(());
            }
            next_row = rows.end;
            let mut identities = None;
            if !rescored.is_empty() {
                let found = self.identities(rows.clone())?;
                self.replace(&mut columns, found.numbers("row")?, rescored);
                identities = Some(found);
            }
            let mut documents = None;
            if let Some(batches) = &mut self.documents {
                documents = Some(batches.next(rows.len())?);
            }
            let mut places = None;
            if let (Some(documents), Some(language)) = (&mut documents, self.language) {
                let kept = documents.keep_language(language)?;
                for column in &mut columns {
                    column.keep(&kept);
                }
                places = Some(kept);
            }
            let mut heads = vec![HeadColumn::default(); self.num_heads];
            for ((head, _), column) in self.scans.iter().zip(&columns) {
                let ScoreColumns { logits, scores, present } = column;
                heads[*head] = HeadColumn { logits, scores, present: Some(present) };
            }
            let wants_ids = request.wants_any_id(&heads);
            if !wants_ids && !request.others {
                continue;
            }
            if wants_ids && identities.is_none() {
                identities = Some(self.identities(rows)?);
            }
            let (ids, ordinals) = match &identities {
                Some(identities) if wants_ids => identified(identities, place, places.as_deref())?,
                _ => (Vec::new(), Vec::new()),
            };
            let weights = documents.as_ref().map(|documents| weights_of(documents, self.weight));
            let weights = weights.transpose()?.flatten();
            let (len, ids, ordinals) = (columns[0].len(), &ids, &ordinals);
            visit(&ScoreBatch { len, ids, ordinals, weights, heads: &heads })?;
        }
    }

    /// Puts the scores of those of `rows` that are `rescored` into `columns`.
    fn replace(&self, columns: &mut [ScoreColumns], rows: &[u64], rescored: &Rescored) {
        for (at, row) in rows.iter().enumerate() {
            let Some(by_head) = rescored.get(row) else { continue };
            for ((head, _), column) in self.scans.iter().zip(columns.iter_mut()) {
                let score = by_head.get(*head).copied().flatten();
                column.present[at] = score.is_some();
                if let Some(DocumentScore { logit, score }) = score {
                    (column.logits[at], column.scores[at]) = (logit, score);
                }
            }
        }
    }

    /// Row and id of `rows`, which ascend from call to call.
    fn identities(&mut self, rows: Range<usize>) -> Result<DocumentBlock> {
        let (mut batches, _) = match self.identities.take() {
            Some(found) if found.1 == rows.start => found,
            _ => (self.scans[0].1.documents(&["row", "id"], rows.start)?, rows.start),
        };
        let found = batches.next(rows.len())?;
        self.identities = Some((batches, rows.end));
        Ok(found)
    }
}

/// What each of `documents` counts for; `None`: 1.
fn weights_of(documents: &DocumentBlock, weight: Weight) -> Result<Option<&[u64]>> {
    match weight {
        Weight::Documents => Ok(None),
        Weight::Bytes => documents.numbers("num_bytes").map(Some),
        Weight::Tokens => documents.token_counts()?.ok_or_else(not_counted).map(Some),
    }
}

/// Ids and ordinals of the rows of `identities`, or of those at `kept` alone; `place` is that of the shard.
fn identified<'a>(
    identities: &'a DocumentBlock,
    place: u64,
    kept: Option<&[usize]>,
) -> Result<(Vec<&'a str>, Vec<u64>)> {
    let (ids, rows) = (identities.ids()?, identities.numbers("row")?);
    let ordinals = rows.iter().map(|&row| ordinal(place, row));
    Ok(match kept {
        None => (ids, ordinals.collect()),
        Some(kept) => {
            let of = |&at: &usize| (ids[at], ordinal(place, rows[at]));
            kept.iter().map(of).unzip()
        }
    })
}

/// Settings that the thresholds depend on: for every language of the run what applies to it.
pub(crate) fn threshold_settings(config: &RunConfig, languages: &BTreeSet<String>) -> Value {
    let thresholds: BTreeMap<&String, Value> =
        languages.iter().map(|l| (l, json!(config.thresholds(l)))).collect();
    json!({"thresholds": thresholds, "selection": config.selection})
}

/// Settings that the refined scores depend on besides the scores.
pub(crate) fn refine_settings(context: Context<'_>, heads: &Heads) -> Value {
    json!({
        "thresholds": threshold_settings(context.config, heads.languages()),
        "safety": REFINE_SAFETY,
        "sample": {"every": REFINE_SAMPLE_EVERY, "least": REFINE_MIN_SAMPLE, "most": REFINE_MAX_SAMPLE},
        "seed": context.config.seed,
    })
}

/// The thresholds of `language`; [`Threshold::head`] counts all heads of the run in name order, as scores are read.
pub(crate) fn thresholds_of(
    context: Context<'_>,
    language: &str,
    heads: &Heads,
) -> Result<Vec<Threshold>> {
    let config = context.config;
    let available: Vec<HeadInfo> = config
        .heads
        .keys()
        .filter_map(|name| Some((name, heads.get(name, language)?.spec())))
        .map(|(name, spec)| HeadInfo {
            name: name.clone(),
            keep: spec.keep,
            activation: spec.activation,
        })
        .collect();
    let mut thresholds =
        plan_thresholds(&config.thresholds(language), &available, &config.selection.order)?;
    for threshold in thresholds.iter_mut().filter(|threshold| threshold.head.is_some()) {
        threshold.head = config.heads.keys().position(|name| *name == threshold.head_name);
    }
    Ok(thresholds)
}

/// Computes the thresholds of one language from the stored scores in `files`.
pub(crate) fn select_language(
    context: Context<'_>,
    embedded: &Embedded,
    heads: &Heads,
    language: &str,
    files: ScoreFiles,
) -> Result<Selection> {
    let thresholds = thresholds_of(context, language, heads)?;
    let corpus = ScoredCorpus::open(context, embedded, language, files);
    select(&corpus, &thresholds, context.config.selection.mode)
}

/// The thresholds of `language` as they were written.
pub(crate) fn stored_selection(run: &RunDir, language: &str) -> Result<Selection> {
    run.read_json(&run.selection_file(language))?.ok_or_else(|| Error::Missing {
        path: run.root().display().to_string(),
        reason: "the thresholds are not computed yet; run `polysift threshold`".into(),
    })
}

/// The thresholds of `languages`, as the threshold stage left them.
pub(crate) fn stored_selections(
    run: &RunDir,
    languages: BTreeSet<String>,
) -> Result<BTreeMap<String, Selection>> {
    if !run.is_done(Stage::Threshold, ALL_LANGUAGES)? {
        return Err(Error::Missing {
            path: run.root().display().to_string(),
            reason: "the thresholds are not computed yet; run `polysift threshold`".into(),
        });
    }
    let stored = |language: String| Ok((stored_selection(run, &language)?, language));
    let stored = languages.into_iter().map(stored);
    stored.map(|found| found.map(|(selection, language)| (language, selection))).collect()
}
