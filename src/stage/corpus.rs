//! The stored scores of one language as the selection scans them.

use std::path::PathBuf;

use super::{ALL_LANGUAGES, Context, refine};
use crate::config::Weight;
use crate::error::{Error, Result};
use crate::run::{Plan, RunDir, Shard, Stage};
use crate::select::{Corpus, Row};
use crate::store::{ScoreRows, read_scores, scan_scores};

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
        if !context.config.selection.refine || refine::is_exact(run)? {
            return Ok(Self::Scored);
        }
        if run.is_done(Stage::Refine, ALL_LANGUAGES)? {
            return Ok(Self::Refined);
        }
        Err(Error::Missing {
            path: run.root().display().to_string(),
            reason: "the scores near the cuts are not refined yet; run `polysift refine`".into(),
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
}

/// Place of a row in the whole corpus, in plan order.
pub(crate) fn ordinal(shard: u64, row: u64) -> u64 {
    (shard << ROW_BITS) | row
}

/// What a document counts for; [`Error::Config`] where that is tokens and they were not counted.
pub(crate) fn weight_of(weight: Weight, num_bytes: u64, num_tokens: Option<u64>) -> Result<u64> {
    match weight {
        Weight::Documents => Ok(1),
        Weight::Bytes => Ok(num_bytes),
        Weight::Tokens => num_tokens.ok_or_else(|| {
            let reason = "is `tokens`, which were not counted when the corpus was embedded; embed \
                          it again with this setting (`--weight tokens --redo embed`)";
            Error::config("selection.weight", reason)
        }),
    }
}

impl<'a> ScoredCorpus<'a> {
    pub(crate) fn open(
        context: Context<'a>,
        plan: &'a Plan,
        language: &'a str,
        files: ScoreFiles,
    ) -> Result<Self> {
        let mut shards = Vec::new();
        for (place, shard) in plan.shards.iter().enumerate() {
            let embedded = context.run.shard_marker(Stage::Embed, &shard.name)?.unwrap_or_default();
            if embedded.counts.contains_key(language) {
                shards.push((place as u64, shard, embedded.files.len()));
            }
        }
        let heads = context.config.heads.keys().map(String::as_str).collect();
        Ok(Self { context, files, language, heads, shards })
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
        Err(Error::verify(&path, "the scores of two heads do not hold the same rows"))
    }
}

impl Corpus for ScoredCorpus<'_> {
    fn num_shards(&self) -> usize {
        self.shards.len()
    }

    fn scan(
        &self,
        shard: usize,
        want_ids: bool,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let (place, shard, num_parts) = self.shards[shard];
        for index in 0..num_parts {
            self.context.stop.check()?;
            self.scan_part(place, shard, index, want_ids, visit)?;
        }
        Ok(())
    }
}

/// The scores of a part by one head.
#[derive(Default)]
struct Column {
    logits: Vec<Option<f32>>,
    scores: Vec<Option<f32>>,
}

impl ScoredCorpus<'_> {
    /// Streams the first head's part with the columns of the other heads beside it.
    fn scan_part(
        &self,
        place: u64,
        shard: &Shard,
        index: usize,
        want_ids: bool,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<()>,
    ) -> Result<()> {
        let path = |head: &str| self.files.part(self.context.run, head, shard, index);
        let Some((first, others)) = self.heads.split_first() else { return Ok(()) };
        let mut columns = Vec::new();
        for head in others {
            let mut column = Column::default();
            scan_scores(&path(head), false, &mut |block| {
                column.logits.extend_from_slice(block.logits);
                column.scores.extend_from_slice(block.scores);
                Ok(())
            })?;
            columns.push(column);
        }
        let weight = self.context.config.selection.weight;
        let (mut logits, mut scores) = (Vec::new(), Vec::new());
        let mut before = 0;
        scan_scores(&path(first), want_ids, &mut |block| {
            for (i, &row) in block.rows.iter().enumerate() {
                if block.languages[i] != self.language {
                    continue;
                }
                logits.clear();
                scores.clear();
                logits.push(block.logits[i]);
                scores.push(block.scores[i]);
                for column in &columns {
                    logits.push(column.logits.get(before + i).copied().flatten());
                    scores.push(column.scores.get(before + i).copied().flatten());
                }
                visit(&Row {
                    id: block.ids.map_or("", |ids| ids[i]),
                    ordinal: ordinal(place, row),
                    weight: weight_of(weight, block.num_bytes[i], block.num_tokens.map(|n| n[i]))?,
                    logits: &logits,
                    scores: &scores,
                })?;
            }
            before += block.rows.len();
            Ok(())
        })
    }
}
