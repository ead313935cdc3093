//! The pilot: a uniform sample of a language with the scores that the full run would give it.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::full_run::{FullRun, encoding_cost, logit, score_by_head};
use crate::draw::draw_texts;
use crate::samples::embed_samples;
use polysift_base::error::{Error, Result};
use polysift_base::metrics::rank_bound;
use polysift_config::{Chunks, Rate};
use polysift_corpus::Context;
use polysift_data::parts::round_to;
use polysift_heads::head::DocumentScore;
use polysift_runs::run::Shard;
use polysift_selection::{
    Corpus, Decision, HeadColumn, ScanRequest, ScoreBatch, ScoredDocument, Threshold,
    ThresholdKind, select,
};

/// Documents with text of a language, in random order.
pub(super) struct Pilot {
    pub(super) rows: u64,
    /// Ordinals of the documents in the corpus.
    ordinals: Vec<u64>,
    ids: Vec<String>,
    texts: Vec<String>,
    /// By head of the run, then by document; `None` for heads that do not look at the text.
    scores: Vec<Vec<Option<DocumentScore>>>,
    /// Tokens of the encoded chunks and FLOPs to encode them, by document.
    pub(super) costs: Vec<(usize, f64)>,
}

/// Documents that one threshold keeps, together with all other thresholds.
pub(super) struct Kept {
    pub(super) head: String,
    pub(super) rate: Option<Rate>,
    /// Indices in the evaluation half.
    pub(super) documents: Vec<usize>,
}

pub(super) fn heads_of(kept: &[Kept]) -> BTreeSet<&str> {
    kept.iter().map(|kept| kept.head.as_str()).collect()
}

/// Returns the widened rate: with confidence 1 − `risk`, it keeps a superset of the documents that
/// `rate` of the whole language keeps of a pilot of `n` documents.
fn pilot_rate(n: u64, rate: Rate, risk: f64) -> Result<Rate> {
    let share =
        (rank_bound(n, rate.as_f64(), risk) as f64 / n.max(1) as f64).clamp(rate.as_f64(), 1.0);
    let text = format!("{share:.12}");
    text.parse().map_err(|reason: String| Error::shape("pilot_rate", reason))
}

impl Pilot {
    /// Draws a uniform sample of `size` documents with text from `shards` of `language`, with
    /// `rows` rows in all; it is smaller if too many rows have no text. The texts are embedded and
    /// rounded like the corpus and scored by the heads of the run.
    pub(super) fn draw(
        full: &FullRun<'_>,
        language: &str,
        shards: &[(u64, &Shard)],
        rows: u64,
        size: usize,
    ) -> Result<Self> {
        let &FullRun { context, heads, model, .. } = full;
        let Context { config, stop, progress, .. } = context;
        let found = draw_texts(context, "pilot", shards, size)?.0.into_iter().take(size);
        let (ordinals, owned): (Vec<u64>, Vec<String>) = found.unzip();
        let texts: Vec<&str> = owned.iter().map(String::as_str).collect();
        let chunks = config.encoder.chunks;
        let cost = |text: &&str| stop.check().and_then(|()| encoding_cost(model, chunks, text));
        let costs = texts.par_iter().map(cost).collect::<Result<_>>()?;
        let embedded = if chunks == Chunks::First {
            embed_samples(context, model, &texts, &mut |_| ())?
        } else {
            let mut advance = |_, tokens: usize| progress.advance(0, tokens as u64);
            let mut embedded =
                model.embed_texts(&texts, chunks, &config.encoder, stop, &mut advance)?;
            round_to(&mut embedded.values, config.parts.embeddings);
            embedded
        };
        let score = |name: &String| match heads.of_rows(name) {
            Some(_) => Ok(vec![None; texts.len()]),
            None => score_by_head(heads, name, language, &texts, &embedded),
        };
        let scores = config.heads.keys().map(score).collect::<Result<_>>()?;
        let ids = ordinals.iter().map(u64::to_string).collect();
        Ok(Self { rows, ordinals, ids, texts: owned, scores, costs })
    }

    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns the documents that first passes are trained on.
    pub(super) fn training(&self) -> Range<usize> {
        0..self.len() / 2
    }

    /// Returns the documents that give the thresholds.
    pub(super) fn evaluation(&self) -> Range<usize> {
        self.len() / 2..self.len()
    }

    pub(super) fn texts_of(&self, documents: Range<usize>) -> Vec<&str> {
        self.texts[documents].iter().map(String::as_str).collect()
    }

    /// Returns what a first pass learns to predict for `head`: its logits on the training half,
    /// negated if low ones are kept.
    pub(super) fn targets(&self, full: &FullRun<'_>, head: &str, language: &str) -> Vec<f32> {
        let at = full.context.config.heads.keys().position(|name| name == head);
        let sign = full.heads.sign(head, language);
        let score = |document: usize| at.and_then(|at| self.scores[at][document]);
        self.training().map(|document| sign * logit(score(document))).collect()
    }

    /// Returns tokens and FLOPs of each document of the evaluation half.
    pub(super) fn evaluation_costs(&self) -> &[(usize, f64)] {
        &self.costs[self.evaluation()]
    }

    /// Selects from the evaluation half with widened rates: with confidence 1 − `risk` the
    /// selection includes every document that the rates of the whole language would keep.
    pub(super) fn select(
        &self,
        context: Context<'_>,
        thresholds: &[Threshold],
        risk: f64,
    ) -> Result<Vec<Kept>> {
        let n = self.evaluation().len() as u64;
        let mut wider = thresholds.to_vec();
        for threshold in &mut wider {
            // A removal by unknown scores removes nothing.
            let is_known = |head: &usize| self.scores[*head].iter().any(Option::is_some);
            threshold.head = threshold.head.filter(is_known);
            if let ThresholdKind::Retain(rates) = &mut threshold.kind {
                let wide = rates.iter().map(|rate| pilot_rate(n, *rate, risk));
                *rates = wide.collect::<Result<_>>()?;
                rates.dedup();
            }
        }
        let selection = select(self, &wider, context.config.selection.mode)?;
        let decide = |at: usize| {
            let scores = &self.scores.iter().map(|scores| scores[at]).collect::<Vec<_>>();
            let (id, ordinal) = (&self.ids[at], self.ordinals[at]);
            let document = ScoredDocument { id, ordinal, scores };
            match selection.decide(&document) {
                Decision::Kept { retentions } => Some(retentions),
                Decision::Removed { .. } => None,
            }
        };
        let decisions: Vec<Option<Vec<Rate>>> = self.evaluation().map(decide).collect();
        let (mut kept, mut retention) = (Vec::new(), 0);
        let keeping = thresholds.iter().filter(|t| !matches!(t.kind, ThresholdKind::Remove(_)));
        for threshold in keeping {
            let rates = match &threshold.kind {
                ThresholdKind::Retain(rates) => rates.iter().copied().map(Some).collect(),
                _ => vec![None],
            };
            for &rate in &rates {
                let wide = rate.map(|rate| pilot_rate(n, rate, risk)).transpose()?;
                let passes = |rates: &Vec<Rate>| wide.is_none_or(|wide| rates[retention] <= wide);
                let is_kept = |at: &usize| decisions[*at].as_ref().is_some_and(passes);
                let documents = (0..decisions.len()).filter(is_kept).collect();
                kept.push(Kept { head: threshold.head_name.clone(), rate, documents });
            }
            retention += usize::from(rates != [None]);
        }
        Ok(kept)
    }
}

/// The corpus of a pilot has the documents of its evaluation half alone, which give the thresholds.
impl Corpus for Pilot {
    fn num_shards(&self) -> usize {
        1
    }

    fn scan(
        &self,
        _shard: usize,
        _request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let range = self.evaluation();
        let columns = |scores: &Vec<Option<DocumentScore>>| {
            let scores = &scores[range.clone()];
            let column = |value: fn(DocumentScore) -> f32| -> Vec<f32> {
                scores.iter().map(|score| score.map_or(0.0, value)).collect()
            };
            let present: Vec<bool> = scores.iter().map(Option::is_some).collect();
            (column(|score| score.logit), column(|score| score.score), present)
        };
        let columns: Vec<_> = self.scores.iter().map(columns).collect();
        let heads = columns.iter().map(|(logits, scores, present)| HeadColumn {
            logits,
            scores,
            present: Some(present),
        });
        let ids: Vec<&str> = self.ids[range.clone()].iter().map(String::as_str).collect();
        let (len, ids, heads) = (ids.len(), &ids, &heads.collect::<Vec<_>>());
        let ordinals = &self.ordinals[range];
        visit(&ScoreBatch { len, ids, ordinals, heads, ..ScoreBatch::default() })
    }
}
