//! What a run knows about the rows of a shard, read part by part in row order.

use super::Job;
use crate::config::Rate;
use crate::error::{Error, Result};
use crate::parts::{EmbeddingRows, ScoreRows, read_embeddings};
use crate::run::{PartFile, Shard, Stage};
use crate::selection::{Decision, ScoredDocument, Selection, ThresholdKind};
use crate::stage::corpus::{ordinal, read_part};

/// One row of a shard: its scores, its embeddings and what the selection decided.
pub(super) struct Known<'a> {
    pub(super) scores: Vec<Option<f32>>,
    /// Chunk vectors after one another, `hidden_size` values each; `None` for a document without text.
    pub(super) embeddings: Option<&'a [f32]>,
    pub(super) hidden_size: usize,
    pub(super) fate: Fate,
}

/// What the selection decided about a row.
pub(super) enum Fate {
    /// Kept: per retention column the smallest rate that keeps the row.
    Kept(Vec<Option<f64>>),
    /// Not kept, with the reason.
    Removed(String),
}

/// Reason of rows with null, empty or blank text.
const NO_TEXT: &str = "no_text";

/// Reads the sidecars of a shard forward, one part in memory at a time.
pub(super) struct Sidecars<'a> {
    job: &'a Job<'a>,
    place: u64,
    shard: &'a Shard,
    heads: Vec<&'a str>,
    parts: Vec<PartFile>,
    next_part: usize,
    current: Option<Part>,
    cursor: usize,
}

struct Part {
    /// Read only where it is exported, or where there are no scores to tell the rows from.
    embeddings: Option<EmbeddingRows>,
    scores: Vec<ScoreRows>,
}

impl Part {
    fn rows(&self) -> &[u64] {
        match (self.scores.first(), &self.embeddings) {
            (Some(scores), _) => &scores.rows,
            (None, Some(embeddings)) => &embeddings.rows,
            (None, None) => &[],
        }
    }
}

impl<'a> Sidecars<'a> {
    /// The sidecars of `shard`, whose place in the plan is `place`.
    pub(super) fn open(job: &'a Job<'a>, place: u64, shard: &'a Shard) -> Result<Self> {
        let heads = job.context.config.heads.keys().map(String::as_str).collect();
        let embedded = job.context.run.shard_marker(Stage::Embed, &shard.name)?;
        let parts = embedded.unwrap_or_default().files;
        Ok(Self { job, place, shard, heads, parts, next_part: 0, current: None, cursor: 0 })
    }

    /// What is known of `row`; rows are asked for in ascending order. `None`: the row was set aside.
    pub(super) fn row(&mut self, row: u64) -> Result<Option<Known<'_>>> {
        loop {
            let known = self.current.as_ref().map_or(&[][..], Part::rows);
            match known.get(self.cursor) {
                Some(&at) if at < row => {
                    return Err(Error::corrupt(
                        &self.job.context.run.path("embeddings").join(&self.shard.name),
                        format!("row {at} is not in the input file any more"),
                    ));
                }
                Some(&at) if at > row => return Ok(None),
                Some(_) => break,
                None if self.next_part == self.parts.len() => return Ok(None),
                None => self.load_next_part()?,
            }
        }
        let at = self.cursor;
        self.cursor += 1;
        self.known(at)
    }

    fn load_next_part(&mut self) -> Result<()> {
        let context = self.job.context;
        context.stop.check()?;
        let index = self.next_part;
        let scores = read_part(context, self.job.scores, &self.heads, self.shard, index)?;
        let wanted = self.job.spec.embeddings.is_some() || scores.is_empty();
        let path = context.run.path(&self.parts[index].path);
        let embeddings = if wanted { Some(read_embeddings(&path)?) } else { None };
        if let (Some(e), Some(s)) = (&embeddings, scores.first())
            && e.rows != s.rows
        {
            return Err(Error::corrupt(&path, "embeddings and scores do not hold the same rows"));
        }
        self.current = Some(Part { embeddings, scores });
        (self.next_part, self.cursor) = (index + 1, 0);
        Ok(())
    }

    fn known(&self, at: usize) -> Result<Option<Known<'_>>> {
        let Some(part) = &self.current else { return Ok(None) };
        let embeddings = part.embeddings.as_ref();
        let logits: Vec<Option<f32>> = part.scores.iter().map(|p| p.logits[at]).collect();
        let scores: Vec<Option<f32>> = part.scores.iter().map(|p| p.scores[at]).collect();
        let (id, language, num_bytes) = match (part.scores.first(), embeddings) {
            (Some(s), _) => (&s.ids[at], &s.languages[at], s.num_bytes[at]),
            (None, Some(e)) => (&e.ids[at], &e.languages[at], e.num_bytes[at]),
            (None, None) => return Ok(None),
        };
        let selection = self.job.selections.get(language).ok_or_else(|| {
            Error::corrupt(
                &self.job.context.run.path("selection"),
                format!("no thresholds for the language {language}"),
            )
        })?;
        let fate = if num_bytes == 0 {
            Fate::Removed(NO_TEXT.to_owned())
        } else {
            let document = ScoredDocument {
                id,
                ordinal: ordinal(self.place, part.rows()[at]),
                logits: &logits,
                scores: &scores,
            };
            match selection.decide(&document) {
                Decision::Kept { retentions } => {
                    Fate::Kept(self.retention_values(selection, &retentions))
                }
                removed @ Decision::Removed { .. } => Fate::Removed(removed.to_string()),
            }
        };
        let hidden_size = embeddings.map_or(0, |e| e.hidden_size);
        let embeddings = embeddings.map(|e| e.chunks(at)).filter(|values| !values.is_empty());
        Ok(Some(Known { scores, embeddings, hidden_size, fate }))
    }

    /// The rates of the retentions of a selection, by retention column.
    fn retention_values(&self, selection: &Selection, rates: &[Rate]) -> Vec<Option<f64>> {
        let retentions = selection
            .thresholds
            .iter()
            .filter(|c| matches!(c.threshold.kind, ThresholdKind::Retain(_)));
        let named: Vec<(&str, Rate)> =
            retentions.map(|c| c.threshold.head_name.as_str()).zip(rates.iter().copied()).collect();
        let rate_of = |head: &String| named.iter().find(|(name, _)| name == head);
        self.job.retention_heads.iter().map(|h| rate_of(h).map(|(_, r)| r.as_f64())).collect()
    }
}
