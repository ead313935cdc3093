//! Defines documents as the selection reads them: one by one, or as columns of consecutive rows.

use super::counts::Amount;
use super::rank::RankKey;
use polysift_base::error::Result;
use polysift_heads::head::DocumentScore;

/// A scored document.
#[derive(Debug, Clone, Copy)]
pub struct ScoredDocument<'a> {
    /// The document's id.
    pub id: &'a str,
    /// Position in plan order, unique in the corpus: the last tie-break.
    pub ordinal: u64,
    /// The score by each head, a non-decreasing function of the logit: `None` without text or such
    /// a head, NaN for a reject. Heads beyond the slice have no score.
    pub scores: &'a [Option<DocumentScore>],
}

/// The scores of one head for the rows of a [`ScoreBatch`]; empty for a head that is not requested.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadColumn<'a> {
    /// See [`DocumentScore::logit`]; arbitrary where there is no score.
    pub logits: &'a [f32],
    /// See [`DocumentScore::score`]; arbitrary where there is no score.
    pub scores: &'a [f32],
    /// Whether each row has a logit and a score; `None` if all have.
    pub present: Option<&'a [bool]>,
}

/// Consecutive rows of a shard as columns of [`ScoreBatch::len`] values; some columns may be empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScoreBatch<'a> {
    /// Number of rows.
    pub len: usize,
    /// See [`ScoredDocument::id`](field@ScoredDocument::id); set only for the rows of
    /// [`ScanRequest::ids`].
    pub ids: &'a [&'a str],
    /// See [`ScoredDocument::ordinal`](field@ScoredDocument::ordinal); set like `ids`.
    pub ordinals: &'a [u64],
    /// What rates and budgets count: bytes, tokens or 1; `None` if every row weighs 1.
    pub weights: Option<&'a [u64]>,
    /// One column per head. Heads beyond the slice have no score.
    pub heads: &'a [HeadColumn<'a>],
    /// What removals count if not [`ScoreBatch::weights`]: an audited row stands for all documents
    /// from which it was sampled.
    pub removal_weights: Option<&'a [u64]>,
    /// Documents near these rows that a cascade dropped before they were scored.
    pub dropped: Amount,
}

/// The data that a scan needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanRequest {
    /// Indices of the heads, ascending.
    pub heads: Vec<usize>,
    /// A row's id and ordinal are needed only if one of these heads gave it this logit.
    pub ids: Vec<(usize, f32)>,
    /// Whether other rows are needed; if not, the corpus may leave them out.
    pub others: bool,
}

impl ScanRequest {
    /// Returns true if the id and ordinal of any row of `heads`, the columns by head, are needed.
    #[expect(clippy::float_cmp, reason = "the very logit is looked for")]
    pub fn wants_any_id(&self, heads: &[HeadColumn<'_>]) -> bool {
        self.ids.iter().any(|&(head, logit)| {
            let logits = heads.get(head).map_or(&[][..], |column| column.logits);
            // Zeros of both signs are equal. The compiler vectorises a full count.
            logits.iter().filter(|&&found| found == logit).count() > 0
        })
    }
}

/// The documents of one language, which can be scanned any number of times.
pub trait Corpus: Sync {
    /// Returns the number of shards (input files, or consecutive rows of one).
    fn num_shards(&self) -> usize;

    /// Returns a number that tells the input file of `shard` from others; the shards of a
    /// file are in row order.
    fn file(&self, shard: usize) -> usize {
        shard
    }

    /// Passes all rows of a shard to `visit`, in batches in row order, and returns the error of
    /// `visit`. Several threads scan shards. Only data in the `request` is used.
    fn scan(
        &self,
        shard: usize,
        request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()>;
}

/// What a decision needs to know about a document.
pub(super) trait RankedDocument {
    /// Returns `key` with the tie-breaks of the document.
    fn tied(&self, key: RankKey) -> RankKey;
    /// Returns the score by `head`, if there is one.
    fn scored(&self, head: usize) -> Option<DocumentScore>;
}

impl RankedDocument for ScoredDocument<'_> {
    fn tied(&self, key: RankKey) -> RankKey {
        key.with_id(self.id, self.ordinal)
    }

    fn scored(&self, head: usize) -> Option<DocumentScore> {
        *self.scores.get(head)?
    }
}

/// The row `at` of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchRow<'a> {
    pub(super) batch: &'a ScoreBatch<'a>,
    pub(super) at: usize,
}

impl RankedDocument for BatchRow<'_> {
    fn tied(&self, key: RankKey) -> RankKey {
        let id = self.batch.ids.get(self.at).copied().unwrap_or_default();
        key.with_id(id, self.batch.ordinals.get(self.at).copied().unwrap_or_default())
    }

    fn scored(&self, head: usize) -> Option<DocumentScore> {
        let column = self.batch.heads.get(head)?;
        let (&logit, &score) = (column.logits.get(self.at)?, column.scores.get(self.at)?);
        let is_present = column.present.is_none_or(|present| present[self.at]);
        is_present.then_some(DocumentScore { logit, score })
    }
}
