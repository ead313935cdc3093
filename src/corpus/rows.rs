//! The rows of a run: documents with their scores, filters, cascade, and fate under thresholds.

use std::fmt;
use std::ops::Range;

use crate::embedded::ordinal;
use crate::left_out::LeftOut;
use crate::score_files::{ScoreFiles, read_part};
use crate::verdicts::{check_filtered, removed_by_filters, verdicts_of};
use crate::{Cascade, Context, Embedded};
use polysift_base::error::Result;
use polysift_config::{
    CASCADE, FilterAction, FilterConfig, FilterWhen, KEPT, NO_TEXT, Rate, RunConfig,
};
use polysift_data::input::{DocumentBatch, DocumentInfo};
use polysift_data::parts::{DocumentScore, FoundRow, ScoreRows, VerdictRows, read_documents};
use polysift_runs::run::{Shard, Stage};
use polysift_selection::{Decision, ScoredDocument, Selection};

/// Checks, if a filter removes documents before the thresholds, that all filters have run.
pub fn check_removed(context: Context<'_>, embedded: &Embedded) -> Result<()> {
    if context.config.filters.values().any(FilterConfig::removes_before) {
        check_filtered(context, embedded)?;
    }
    Ok(())
}

/// Reader of the rows of a run.
pub struct RunRows<'a> {
    /// The run.
    pub context: Context<'a>,
    /// Names of the run's heads, in the order in which scores are read.
    pub heads: Vec<&'a str>,
    files: Option<ScoreFiles>,
    cascade: Cascade,
}

impl<'a> RunRows<'a> {
    /// Opens the rows of `languages`, with the scores in `files`, if there are any.
    pub fn open(
        context: Context<'a>,
        files: Option<ScoreFiles>,
        languages: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let heads = context.config.heads.keys().map(String::as_str).collect();
        let cascade = Cascade::of_languages(context, languages)?;
        Ok(Self { context, heads, files, cascade })
    }

    /// Opens the rows of `shard`, at index `place` of the plan.
    pub fn shard<'r>(&'r self, place: u64, shard: &'r Shard) -> Result<ShardRows<'r>> {
        let Context { config, run, .. } = self.context;
        let verdicts = verdicts_of(self.context, shard, None)?;
        let mut left_out = self.cascade.left_out_rows(self.context, place, shard)?;
        left_out.removed = removed_by_filters(config, &verdicts);
        let parts = 0..run.done(Stage::Embed, &shard.name)?.files.len();
        Ok(ShardRows { rows: self, place, shard, verdicts, left_out, parts })
    }
}

/// The rows of a shard, part by part.
pub struct ShardRows<'r> {
    rows: &'r RunRows<'r>,
    place: u64,
    shard: &'r Shard,
    /// Verdicts of the filters on the shard.
    pub verdicts: VerdictRows,
    /// Rows of the shard that filters remove or the cascade drops or audits.
    pub left_out: LeftOut,
    parts: Range<usize>,
}

/// The rows of a part.
#[derive(Default)]
pub struct PartRows {
    /// Index of the part in its shard.
    pub index: usize,
    /// The documents of the part.
    pub documents: DocumentBatch,
    /// Scores by head; empty if none are read.
    pub scores: Vec<ScoreRows>,
}

/// A document of a run.
#[derive(Clone, Copy)]
pub struct Row<'r> {
    /// Id, language and sizes of the document.
    pub info: DocumentInfo<'r>,
    /// Scores of all heads; a document that the cascade drops has none, whatever a head needs.
    pub scored: ScoredDocument<'r>,
    /// Whether a filter removes the document before the thresholds.
    pub is_removed: bool,
    /// Whether the cascade dropped the document before it was encoded.
    pub is_dropped: bool,
    /// Margin of a document that the cascade would drop, and that is encoded for the audit.
    pub audited_margin: Option<f32>,
}

impl Row<'_> {
    /// Returns the score by `head`; `None` without a score or for NaN.
    pub fn score(&self, head: usize) -> Option<DocumentScore> {
        self.scored.scores.get(head)?.filter(|score| !score.is_nan())
    }
}

impl ShardRows<'_> {
    /// Reads the next part; `None` after the last one.
    pub fn next_part(&mut self) -> Result<Option<PartRows>> {
        let RunRows { context, ref heads, files, .. } = *self.rows;
        let Some(index) = self.parts.next() else { return Ok(None) };
        context.stop.check()?;
        let read = |files| read_part(context, files, heads, self.shard, index);
        let scores = files.map_or(Ok(Vec::new()), read)?;
        let documents = match scores.first() {
            Some(first) => first.documents.clone(),
            None => read_documents(&context.run.embeddings_part(self.shard, index))?,
        };
        Ok(Some(PartRows { index, documents, scores }))
    }

    /// Returns row `at` of `part`, a part of this shard, with its scores in `memory`.
    pub fn row<'p>(
        &self,
        part: &'p PartRows,
        at: usize,
        memory: &'p mut Vec<Option<DocumentScore>>,
    ) -> Row<'p> {
        let info = part.documents.get(at);
        let is_dropped = self.left_out.dropped.contains(info.row);
        memory.clear();
        memory.extend(part.scores.iter().map(|head| head.scores[at].filter(|_| !is_dropped)));
        let ordinal = ordinal(self.place, info.row);
        Row {
            info,
            scored: ScoredDocument { id: info.id, ordinal, scores: memory },
            is_removed: self.left_out.removed.contains(info.row),
            is_dropped,
            audited_margin: self.left_out.audited_margin(info.row),
        }
    }

    /// Calls `visit` for every row of `part`, a part of this shard.
    pub fn for_each_of(
        &self,
        part: &PartRows,
        mut visit: impl FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut memory = Vec::new();
        (0..part.documents.len()).try_for_each(|at| visit(&self.row(part, at, &mut memory)))
    }

    /// Calls `visit` for every row of the parts that are not read yet.
    pub fn for_each(&mut self, mut visit: impl FnMut(&Row<'_>) -> Result<()>) -> Result<()> {
        while let Some(part) = self.next_part()? {
            self.for_each_of(&part, &mut visit)?;
        }
        Ok(())
    }

    /// Returns the name of the filter that removes `row` before or after the thresholds.
    pub fn removed_by(&self, row: &Row<'_>, when: FilterWhen) -> Option<&str> {
        first_remover(self.rows.context.config, self.verdicts.of_row(row.info.row), when)
    }

    /// Returns the fate of `row` under the `selection` of its language.
    pub fn fate<'f>(&'f self, row: &Row<'_>, selection: &'f Selection) -> Fate<'f> {
        let (config, found) = (self.rows.context.config, self.verdicts.of_row(row.info.row));
        Fate::of(row.info.num_bytes > 0, config, found, row.is_dropped, selection, &row.scored)
    }
}

/// Returns the first of the filters that `found` a document to remove it; only those of `when`.
fn first_remover<'f>(
    config: &RunConfig,
    found: &'f [FoundRow],
    when: FilterWhen,
) -> Option<&'f str> {
    let removes = |found: &&FoundRow| {
        let filter = config.filters.get(&found.filter);
        found.action == FilterAction::Remove && filter.is_some_and(|f| f.when() == when)
    };
    found.iter().find(removes).map(|found| found.filter.as_str())
}

/// What becomes of a document; displays as the folder of the export that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate<'a> {
    /// The document has no text.
    NoText,
    /// The filter of this name removes the document, before or after the thresholds.
    Filtered(&'a str),
    /// The cascade dropped the document before it was encoded.
    Dropped,
    /// A threshold removes the document.
    Removed(Decision<'a>),
    /// The document is exported, with the smallest rate that keeps it for each retention.
    Kept(Vec<Rate>),
}

impl<'a> Fate<'a> {
    /// Decides the fate of a document that these filters `found`. A filter before the thresholds
    /// comes first, then the cascade, the thresholds, and a filter after them.
    pub fn of(
        has_text: bool,
        config: &RunConfig,
        found: &'a [FoundRow],
        is_dropped: bool,
        selection: &'a Selection,
        scored: &ScoredDocument<'_>,
    ) -> Self {
        if !has_text {
            return Self::NoText;
        }
        if let Some(filter) = first_remover(config, found, FilterWhen::Before) {
            return Self::Filtered(filter);
        }
        if is_dropped {
            return Self::Dropped;
        }
        match (selection.decide(scored), first_remover(config, found, FilterWhen::After)) {
            (Decision::Kept { .. }, Some(filter)) => Self::Filtered(filter),
            (Decision::Kept { retentions }, None) => Self::Kept(retentions),
            (removed @ Decision::Removed { .. }, _) => Self::Removed(removed),
        }
    }
}

impl fmt::Display for Fate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoText => f.write_str(NO_TEXT),
            Self::Filtered(filter) => f.write_str(filter),
            Self::Dropped => f.write_str(CASCADE),
            Self::Removed(decision) => decision.fmt(f),
            Self::Kept(_) => f.write_str(KEPT),
        }
    }
}
