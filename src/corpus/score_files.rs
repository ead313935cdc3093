//! The files of stored scores: which are read, and how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Context;
use crate::languages::ALL_LANGUAGES;
use crate::model::is_precise;
use crate::work::score_keys;
use polysift_base::error::{Error, Result};
use polysift_config::{RunConfig, Weight};
use polysift_data::input::NUM_TOKENS;
use polysift_data::parts::{PartBatch, PartBatches, PartReader, ScoreRows, read_scores};
use polysift_heads::head::DocumentScore;
use polysift_runs::run::{RunDir, Shard, Stage};

/// Name of the column with the row of the shard.
pub(crate) const ROW: &str = "row";

/// Which scores of a run are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreFiles {
    /// Scores of the score stage.
    Scored,
    /// Scores of the refine stage.
    Refined,
}

impl ScoreFiles {
    /// Returns the scores that selections use; [`Error::Missing`] if they must be refined first.
    pub fn selected(context: Context<'_>) -> Result<Self> {
        let run = context.run;
        if !context.config.selection.refine || is_precise(run)? {
            return Ok(Self::Scored);
        }
        let mut keys = score_keys(&run.plan()?, context.config.heads.keys());
        keys.push(ALL_LANGUAGES.to_owned());
        let marked = run.marked(Stage::Refine, &keys)?;
        let Some(at) = marked.iter().position(Option::is_none) else { return Ok(Self::Refined) };
        let reason = format!("{} is not refined yet; run `polysift refine`", keys[at]);
        Err(Error::missing(run.root(), reason))
    }

    /// Returns the path of part `index` of the scores of `shard` by `head`.
    pub fn part(self, run: &RunDir, head: &str, shard: &Shard, index: usize) -> PathBuf {
        let folder = if self == Self::Refined { "refined" } else { "scores" };
        run.path(format!("{folder}/{head}/{}/part-{index:05}.parquet", shard.name))
    }

    /// Opens part `index` of the scores of `shard` by each of `heads`, which have the same rows.
    pub(crate) fn open<'h>(
        self,
        run: &RunDir,
        heads: impl IntoIterator<Item = &'h str>,
        shard: &Shard,
        index: usize,
    ) -> Result<Vec<PartReader>> {
        let parts =
            heads.into_iter().map(|head| PartReader::open(&self.part(run, head, shard, index)));
        let parts: Vec<PartReader> = parts.collect::<Result<_>>()?;
        match parts.iter().find(|part| part.num_rows() != parts[0].num_rows()) {
            Some(other) => Err(other_rows(&other.path)),
            None => Ok(parts),
        }
    }
}

/// New scores by row of a shard, with one entry per head of the run.
pub type Rescored = BTreeMap<u64, Vec<Option<DocumentScore>>>;

/// Returns the new scores for a shard.
pub type RescoredOf<'a> = dyn Fn(&Shard) -> Result<Rescored> + Sync + 'a;

/// Reads part `index` of the scores of `shard`, one entry per head of the run in name order.
pub fn read_part(
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
    if parts.windows(2).all(|pair| pair[0].documents.rows() == pair[1].documents.rows()) {
        return Ok(parts);
    }
    Err(other_rows(&files.part(context.run, heads[0], shard, index)))
}

/// Makes the error for the part `path`, which does not have the rows of another head's part.
fn other_rows(path: &Path) -> Error {
    Error::corrupt(path, "the scores of two heads do not hold the same rows")
}

/// Returns the column with the weights; `None` if every document weighs 1.
pub(crate) fn weight_column(config: &RunConfig) -> Option<&'static str> {
    match config.selection.weight {
        Weight::Documents => None,
        Weight::Bytes => Some("num_bytes"),
        Weight::Tokens => Some(NUM_TOKENS),
    }
}

/// Returns the [`weight_column`] `name` of `batch`; [`Error::Config`] if tokens were not counted.
pub(crate) fn weights_of<'b>(batch: &'b PartBatch, name: &str) -> Result<&'b [u64]> {
    let reason = "is `tokens`, which were not counted when the corpus was embedded; embed it again \
                  with this setting (`--weight tokens --redo embed`)";
    batch.numbers(name)?.ok_or_else(|| Error::config("selection.weight", reason))
}

/// Reads the scores of `parts`; batches of the first part also have the document columns `names`.
pub(crate) fn batches_of(parts: &[PartReader], mut names: Vec<&str>) -> Result<Vec<PartBatches>> {
    let scans = parts.iter().map(|part| part.scores(&std::mem::take(&mut names)));
    scans.collect()
}

/// Reads the next batch of each of `scans`, one per head; none at the end.
pub(crate) fn next_batches<'s>(
    scans: impl Iterator<Item = &'s mut PartBatches>,
) -> Result<Vec<PartBatch>> {
    scans.filter_map(Iterator::next).collect()
}

/// Replaces the scores of those `rows` in the batches of some heads that were scored again.
pub(crate) fn replace_scores<'b>(
    batches: impl Iterator<Item = (usize, &'b mut PartBatch)>,
    rows: &[u64],
    rescored: &Rescored,
) -> Result<()> {
    for (head, batch) in batches {
        let of_row = |(at, row)| Some((at, rescored.get(row)?.get(head).copied().flatten()));
        batch.replace(rows.iter().enumerate().filter_map(of_row))?;
    }
    Ok(())
}
