//! Reads a run for its report: parts of scores, and each document's fate under the thresholds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use polysift_base::error::Result;
use polysift_config::{KEPT, Keep, Rate, RunConfig};
use polysift_corpus::heads::head_file;
use polysift_corpus::languages::ALL_LANGUAGES;
use polysift_corpus::rows::{Row, RunRows, ShardRows};
use polysift_corpus::select::stored_selections;
use polysift_corpus::verdicts::check_filtered;
use polysift_corpus::{Context, Embedded, ScoreFiles};
use polysift_fasttext::is_model;
use polysift_heads::head::{AnyHead, DocumentScore, FastTextHead};
use polysift_selection::{Bound, RankKey, ScoredDocument, Selection, ThresholdKind};

pub(super) struct StoredRun<'a> {
    pub(super) embedded: Embedded,
    pub(super) rows: RunRows<'a>,
    pub(super) languages: BTreeMap<String, StoredThresholds>,
}

impl<'a> StoredRun<'a> {
    /// Opens the run; [`Error::Missing`](polysift_base::Error::Missing) if it has no thresholds.
    pub(super) fn open(context: Context<'a>) -> Result<Self> {
        let heads: Vec<&str> = context.config.heads.keys().map(String::as_str).collect();
        let embedded = Embedded::scored(context.run, &heads)?;
        check_filtered(context, &embedded)?;
        let files = ScoreFiles::selected(context)?;
        let selections = stored_selections(context.run, embedded.languages())?;
        let thresholds = |(language, selection)| {
            (language, StoredThresholds::new(context.config, &heads, selection))
        };
        let languages = selections.into_iter().map(thresholds).collect();
        let rows = RunRows::open(context, Some(files), embedded.languages())?;
        Ok(Self { embedded, rows, languages })
    }

    /// Calls `visit` for every document of the shard at `place` in the plan, removed ones included;
    /// advances the progress.
    pub(super) fn for_each_document(
        &self,
        place: u64,
        mut visit: impl FnMut(&ShardRows<'_>, &Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut shard = self.rows.shard(place, &self.embedded.plan.shards[place as usize])?;
        while let Some(part) = shard.next_part()? {
            self.rows.context.progress.advance(part.documents.len() as u64, 0);
            shard.for_each_of(&part, |row| visit(&shard, row))?;
        }
        Ok(())
    }

    /// Returns how a head did on held-out samples, by its card, if its file is there and says so.
    pub(super) fn test_metrics(&self, name: &str, language: &str) -> Result<Option<Value>> {
        let Context { config, run, .. } = self.rows.context;
        let config = &config.heads[name];
        let files = [language, ALL_LANGUAGES].map(|of| head_file(Some(run), name, config, of));
        let Some(path) = files.into_iter().flatten().find(|path| path.is_file()) else {
            return Ok(None);
        };
        let card = if is_model(&path)? {
            FastTextHead::read_card(&path)?
        } else {
            Some(AnyHead::load(&path, name, config, language)?.card().clone())
        };
        let training = card.and_then(|card| card.training);
        Ok(training.map(|training| json!(training.test.unwrap_or_default())))
    }
}

/// A document's key in a head's order, with its score.
pub(super) type HeadRank = (RankKey, DocumentScore);

/// A document of a sample or next to a threshold, independent of its part.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub(super) struct KeptDocument {
    pub(super) ordinal: u64,
    pub(super) id: Box<str>,
    pub(super) bytes: u64,
    pub(super) tokens: Option<u64>,
    scores: Box<[Option<DocumentScore>]>,
}

impl KeptDocument {
    pub(super) fn of(row: &Row<'_>) -> Self {
        Self {
            ordinal: row.scored.ordinal,
            id: row.info.id.into(),
            bytes: row.info.num_bytes,
            tokens: row.info.num_tokens,
            scores: row.scored.scores.into(),
        }
    }

    pub(super) fn scored(&self) -> ScoredDocument<'_> {
        ScoredDocument { id: &self.id, ordinal: self.ordinal, scores: &self.scores }
    }
}

/// The selection of a language, with its thresholds in the order of the report.
pub(super) struct StoredThresholds {
    pub(super) selection: Selection,
    /// By head, the end of its order that it keeps.
    pub(super) keeps: Vec<Keep>,
    /// The final selections, smallest first.
    pub(super) names: Vec<SelectionName>,
    /// All thresholds in each of their selections, in order.
    pub(super) placed: Vec<PlacedThreshold>,
}

/// Name of a selection; names sort by heads, then by rates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SelectionName {
    heads: Vec<String>,
    sizes: Vec<Rate>,
    pub(super) name: String,
}

#[derive(Debug, Clone)]
pub(super) struct PlacedThreshold {
    /// Place of the head among the run's heads.
    pub(super) head: usize,
    pub(super) bound: Bound,
    /// Names of the final selections that contain it.
    pub(super) selections: Vec<String>,
}

impl StoredThresholds {
    /// Lists the thresholds of `selection` with the final selections that each is part of, and
    /// which end each of `heads` keeps: by its last threshold, else by the settings.
    fn new(config: &RunConfig, heads: &[&str], selection: Selection) -> Self {
        let keep = |name: &&str| {
            let mut own = selection.thresholds.iter().map(|report| &report.threshold);
            let own = own.rfind(|threshold| threshold.head_name == **name);
            own.map_or_else(|| config.heads[*name].keep(name), |threshold| threshold.keep)
        };
        let keeps = heads.iter().map(keep).collect();
        let names = name_selections(&selection);
        let mut placed = Vec::new();
        for report in &selection.thresholds {
            for (i, outcome) in report.outcomes.iter().enumerate() {
                // The only outcome of a threshold is part of every selection, else one of each.
                let is_part = |of: usize| report.outcomes.len() == 1 || of == i;
                let selections = names.iter().enumerate().filter(|(of, _)| is_part(*of));
                placed.push(PlacedThreshold {
                    head: report.threshold.head.unwrap_or(usize::MAX), // no head has this place
                    bound: outcome.bound,
                    selections: selections.map(|(_, name)| name.name.clone()).collect(),
                });
            }
        }
        Self { selection, keeps, names, placed }
    }

    /// Returns the key and score of `document` for each head; `None` without a score or for NaN.
    pub(super) fn head_ranks(&self, document: &ScoredDocument<'_>) -> Vec<Option<HeadRank>> {
        let tie = RankKey::of_logit(0.0, Keep::Above).with_id(document.id, document.ordinal);
        let ranked = |(head, keep): (usize, &Keep)| {
            let score = document.scores[head].filter(|score| !score.is_nan())?;
            Some((RankKey { logit: RankKey::of_logit(score.logit, *keep).logit, ..tie }, score))
        };
        self.keeps.iter().enumerate().map(ranked).collect()
    }

    /// Returns the final selections that keep a document as a bit set. Calls `at_cut` with every
    /// threshold (its place in `placed`) that the document reaches, and true if it passes.
    pub(super) fn selections_of(
        &self,
        document: &ScoredDocument<'_>,
        mut at_cut: impl FnMut(usize, bool),
    ) -> u64 {
        self.selection.kept(document, |at, i, passes| {
            let before = self.selection.thresholds[..at].iter().map(|t| t.outcomes.len());
            at_cut(before.sum::<usize>() + i, passes);
        })
    }
}

/// Names the final selections by the heads and rates or budgets that keep documents, if any do.
fn name_selections(selection: &Selection) -> Vec<SelectionName> {
    let thresholds = || selection.thresholds.iter().map(|report| &report.threshold);
    let selects =
        |kind: &ThresholdKind| matches!(kind, ThresholdKind::Retain(_) | ThresholdKind::Budget(_));
    let by_rate = thresholds().any(|threshold| selects(&threshold.kind));
    let number = selection.outcomes().len().max(1);
    let name = |i: usize| {
        let (mut heads, mut sizes, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for threshold in thresholds() {
            let size = match &threshold.kind {
                ThresholdKind::Retain(_) => threshold.rate(i).map(|rate| {
                    sizes.push(rate);
                    rate.to_string()
                }),
                ThresholdKind::Budget(budget) => Some(budget.to_string()),
                ThresholdKind::Fixed(fixed) if !by_rate => Some(fixed.score().to_string()),
                ThresholdKind::Fixed(_) | ThresholdKind::Remove(_) => None,
            };
            if let Some(size) = size {
                parts.push(format!("{}={size}", threshold.head_name));
                heads.push(threshold.head_name.clone());
            }
        }
        let name = if parts.is_empty() { KEPT.to_owned() } else { parts.join(",") };
        SelectionName { heads, sizes, name }
    };
    (0..number).map(name).collect()
}
