//! Documents as the selection sees them: one by one, and as columns of some consecutive rows.

use super::counts::Amount;
use polysift_base::error::Result;

/// One document.
#[derive(Debug, Clone, Copy)]
pub struct ScoredDocument<'a> {
    /// Id.
    pub id: &'a str,
    /// Position in plan order, unique in the corpus: the last tie-break.
    pub ordinal: u64,
    /// By head: `None` without a score (no text, or no such head), NaN for a reject. Heads
    /// beyond the slice have no score.
    pub logits: &'a [Option<f32>],
    /// By head, beside `logits`: the score, a non-decreasing function of the logit.
    pub scores: &'a [Option<f32>],
}

/// The scores of one head for the rows of a [`ScoreBatch`]; a head that is not asked for has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadColumn<'a> {
    /// See [`ScoredDocument::logits`]; any value where there is no score.
    pub logits: &'a [f32],
    /// See [`ScoredDocument::scores`]; likewise.
    pub scores: &'a [f32],
    /// Whether a row has a logit and a score; `None`: all have.
    pub present: Option<&'a [bool]>,
}

/// Some consecutive rows of a shard, as columns; all that are there have [`ScoreBatch::len`] values.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScoreBatch<'a> {
    /// Number of rows.
    pub len: usize,
    /// See [`ScoredDocument::id`](field@ScoredDocument::id), of the rows of [`ScanRequest::ids`]; empty where there are none of them.
    pub ids: &'a [&'a str],
    /// See [`ScoredDocument::ordinal`](field@ScoredDocument::ordinal); likewise.
    pub ordinals: &'a [u64],
    /// What rates and budgets count: 1, bytes or tokens; `None`: every row weighs 1.
    pub weights: Option<&'a [u64]>,
    /// By head. Heads beyond the slice have no score.
    pub heads: &'a [HeadColumn<'a>],
    /// What removals count, where that is not [`ScoreBatch::weights`]: a row of a sample stands for the documents that
    /// it was drawn from.
    pub removal_weights: Option<&'a [u64]>,
    /// Documents near these rows that were dropped before they were scored.
    pub dropped: Amount,
}

/// What a scan looks at.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanRequest {
    /// Indices of the heads, ascending.
    pub heads: Vec<usize>,
    /// Id and ordinal are looked at only of rows to which one of these heads gave this logit.
    pub ids: Vec<(usize, f32)>,
    /// Whether other rows are looked at too; if not, they may be left out.
    pub others: bool,
}

impl ScanRequest {
    /// Whether id and ordinal of one of the rows of `heads` (by head) are looked at.
    #[expect(clippy::float_cmp, reason = "the very logit is looked for")]
    pub fn wants_any_id(&self, heads: &[HeadColumn<'_>]) -> bool {
        let is_there = |&(head, logit): &(usize, f32)| {
            let logits = heads.get(head).map_or(&[][..], |column| column.logits);
            // Equal as numbers: zeros of both signs are one place in the order. Counted to the end,
            // which compilers vectorise.
            logits.iter().filter(|&&found| found == logit).count() > 0
        };
        self.ids.iter().any(is_there)
    }
}

/// The documents of one language, which can be scanned any number of times.
pub trait Corpus: Sync {
    /// Number of shards (input files, or some consecutive rows of one).
    fn num_shards(&self) -> usize;

    /// A number of the input file of `shard` and no other; shards of a file are in the order of its rows.
    fn file(&self, shard: usize) -> usize {
        shard
    }

    /// Calls `visit` for all rows of a shard, some at a time in row order, and passes on its error.
    /// Shards are scanned from several threads. Only what the `request` names is looked at.
    fn scan(
        &self,
        shard: usize,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// What a decision needs to know of one document.
pub(super) trait RankedDocument {
    fn id(&self) -> &str;
    fn ordinal(&self) -> u64;
    /// Logit and score by `head`, `None` without them.
    fn scored(&self, head: usize) -> Option<(f32, f32)>;
}

impl RankedDocument for ScoredDocument<'_> {
    fn id(&self) -> &str {
        self.id
    }

    fn ordinal(&self) -> u64 {
        self.ordinal
    }

    fn scored(&self, head: usize) -> Option<(f32, f32)> {
        Some(((*self.logits.get(head)?)?, (*self.scores.get(head)?)?))
    }
}

/// A row of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchRow<'a> {
    pub(super) batch: &'a ScoreBatch<'a>,
    pub(super) at: usize,
}

impl RankedDocument for BatchRow<'_> {
    fn id(&self) -> &str {
        self.batch.ids.get(self.at).copied().unwrap_or_default()
    }

    fn ordinal(&self) -> u64 {
        self.batch.ordinals.get(self.at).copied().unwrap_or_default()
    }

    fn scored(&self, head: usize) -> Option<(f32, f32)> {
        let column = self.batch.heads.get(head)?;
        let is_present = column.present.is_none_or(|present| present[self.at]);
        is_present.then_some((*column.logits.get(self.at)?, *column.scores.get(self.at)?))
    }
}
