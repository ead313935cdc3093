//! The pilot: a uniform sample of a language with the scores that the full run would give it.

use std::ops::Range;

use rayon::prelude::*;

use super::full_run::FullRun;
use crate::draw::draw_texts;
use crate::samples::embed_samples;
use polysift_base::error::{Error, Result};
use polysift_base::metrics::rank;
use polysift_config::{Chunks, Rate, Weight};
use polysift_corpus::context::Context;
use polysift_data::parts::round_to;
use polysift_encoder::{EmbeddedTexts, Model};
use polysift_heads::head::DocumentScore;
use polysift_runs::run::Shard;
use polysift_selection::{
    Corpus, Decision, HeadColumn, ScanRequest, ScoreBatch, ScoredDocument, Threshold,
    ThresholdKind, select,
};

/// Documents with text of a language, in random order.
pub(super) struct Pilot {
    /// Number of rows of the language.
    pub(super) rows: u64,
    /// Ordinals of the documents in the corpus.
    ordinals: Vec<u64>,
    texts: Vec<String>,
    /// By head of the run, then by document; `None` for heads that do not look at the text.
    scores: Vec<Vec<Option<DocumentScore>>>,
    /// Token counts of the encoded chunks, by document.
    chunks: Vec<Vec<usize>>,
    /// Weights that rates sum; `None` for documents.
    weights: Option<Vec<u64>>,
}

/// Documents of the evaluation half that the full run would keep.
pub(super) struct SelectedPilot {
    pub(super) kept: Vec<Kept>,
}

/// Documents that one threshold keeps, together with all other thresholds.
pub(super) struct Kept {
    pub(super) head: String,
    pub(super) rate: Option<Rate>,
    /// Indices in the evaluation half.
    pub(super) documents: Vec<usize>,
}

impl SelectedPilot {
    /// Returns the heads that keep documents, each once.
    pub(super) fn heads(&self) -> impl Iterator<Item = &str> {
        let mut heads: Vec<&str> = self.kept.iter().map(|kept| kept.head.as_str()).collect();
        heads.sort_unstable();
        heads.dedup();
        heads.into_iter()
    }
}

/// Returns the widened rate: with confidence 1 − `risk`, it keeps a superset of the documents that
/// `rate` of the whole language keeps of a pilot of `n` documents.
fn pilot_rate(n: u64, rate: Rate, risk: f64) -> Result<Rate> {
    let share = (rank(n, rate.as_f64(), risk) as f64 / n.max(1) as f64).clamp(rate.as_f64(), 1.0);
    let text = format!("{share:.12}");
    text.parse().map_err(|reason: String| Error::shape("pilot_rate", reason))
}

impl Pilot {
    /// Draws a uniform sample of `size` documents with text from `shards` with `rows` rows in all;
    /// it is smaller if too many rows have no text.
    pub(super) fn draw(
        context: Context<'_>,
        shards: &[(u64, &Shard)],
        rows: u64,
        size: usize,
    ) -> Result<Self> {
        let mut found = draw_texts(context, "pilot", shards, size)?;
        found.truncate(size);
        let (ordinals, texts) = found.into_iter().unzip();
        Ok(Self { rows, ordinals, texts, scores: Vec::new(), chunks: Vec::new(), weights: None })
    }

    /// Adds the scores of the run's heads on the texts, embedded and rounded like the corpus.
    pub(super) fn score(mut self, full: &FullRun<'_>, language: &str) -> Result<Self> {
        let &FullRun { context, heads, model, .. } = full;
        let Context { config, stop, progress, .. } = context;
        let texts: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        let tokenize = |text: &&str| {
            stop.check()?;
            let tokenized = model.tokenizer.tokenize(text)?;
            let mut chunks: Vec<usize> = tokenized.chunks.iter().map(Vec::len).collect();
            if config.encoder.chunks == Chunks::First {
                chunks.truncate(1);
            }
            Ok((chunks, tokenized.num_tokens))
        };
        let tokenized: Vec<(Vec<usize>, u64)> =
            texts.par_iter().map(tokenize).collect::<Result<_>>()?;
        let (chunks, num_tokens): (Vec<_>, Vec<_>) = tokenized.into_iter().unzip();
        let embedded = if config.encoder.chunks == Chunks::First {
            let values = embed_samples(context, model, &texts, &mut |_| ())?;
            EmbeddedTexts { values, chunk_offsets: (0..=texts.len()).collect() }
        } else {
            let mut advance = |_, tokens: usize| progress.advance(0, tokens as u64);
            let mut embedded =
                model.embed_texts(&texts, Chunks::All, &config.encoder, stop, &mut advance)?;
            round_to(&mut embedded.values, config.parts.embeddings);
            embedded
        };
        let width = model.encoder.info().embedding_size;
        let languages = vec![language; texts.len()];
        let some: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
        for name in config.heads.keys() {
            let scores = if heads.of_rows(name).is_some() {
                vec![None; texts.len()]
            } else {
                heads.score_embedded(name, &languages, &some, (width, &embedded))?
            };
            self.scores.push(scores);
        }
        self.weights = match config.selection.weight {
            Weight::Documents => None,
            Weight::Bytes => Some(texts.iter().map(|text| text.len() as u64).collect()),
            Weight::Tokens => Some(num_tokens),
        };
        self.chunks = chunks;
        Ok(self)
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

    pub(super) fn training_texts(&self) -> Vec<&str> {
        self.texts[self.training()].iter().map(String::as_str).collect()
    }

    pub(super) fn evaluation_texts(&self) -> Vec<&str> {
        self.texts[self.evaluation()].iter().map(String::as_str).collect()
    }

    /// Returns what a first pass learns to predict for `head`: its logits on the training half,
    /// negated if low ones are kept.
    pub(super) fn targets(&self, full: &FullRun<'_>, head: &str, language: &str) -> Vec<f32> {
        let at = full.context.config.heads.keys().position(|name| name == head);
        let sign = full.heads.sign(head, language);
        let logit = |document: usize| {
            let score = at.and_then(|at| self.scores[at][document]);
            score.map_or(f32::NAN, |score| sign * score.logit)
        };
        self.training().map(logit).collect()
    }

    /// Returns the mean number of encoded tokens per document.
    pub(super) fn tokens_per_document(&self) -> f64 {
        let tokens: usize = self.chunks.iter().flatten().sum();
        tokens as f64 / self.len().max(1) as f64
    }

    /// Returns the mean tokens and FLOPs of `model` for a document of the evaluation half that is
    /// not encoded.
    pub(super) fn dropped_document(&self, model: &Model, is_encoded: &[bool]) -> (f64, f64) {
        let documents = self.chunks[self.evaluation()].iter().zip(self.evaluation_flops(model));
        let dropped = documents.zip(is_encoded).filter(|(_, is_encoded)| !**is_encoded);
        let (mut documents, mut tokens, mut flops) = (0, 0, 0.0);
        for ((chunks, of_document), _) in dropped {
            documents += 1;
            tokens += chunks.iter().sum::<usize>();
            flops += of_document;
        }
        let documents = f64::from(documents.max(1));
        (tokens as f64 / documents, flops / documents)
    }

    /// Returns the FLOPs of `model` for each document of the evaluation half.
    pub(super) fn evaluation_flops(&self, model: &Model) -> Vec<f64> {
        let of_chunk =
            |&tokens: &usize| tokens as f64 * model.encoder.info().flops_per_token(tokens as f64);
        self.chunks[self.evaluation()]
            .iter()
            .map(|chunks| chunks.iter().map(of_chunk).sum())
            .collect()
    }

    /// Selects from the evaluation half with widened rates: with confidence 1 − `risk` the
    /// selection includes every document that the rates of the whole language would keep.
    pub(super) fn select(
        &self,
        context: Context<'_>,
        thresholds: &[Threshold],
        risk: f64,
    ) -> Result<SelectedPilot> {
        let evaluation = self.evaluation();
        let n = evaluation.len() as u64;
        let mut wider = thresholds.to_vec();
        for threshold in &mut wider {
            // A removal by unknown scores removes nothing.
            let is_unknown =
                threshold.head.is_some_and(|head| self.scores[head].iter().all(Option::is_none));
            if is_unknown {
                threshold.head = None;
            }
            if let ThresholdKind::Retain(rates) = &mut threshold.kind {
                let wide = rates.iter().map(|rate| pilot_rate(n, *rate, risk));
                *rates = wide.collect::<Result<_>>()?;
                rates.dedup();
            }
        }
        let corpus = PilotCorpus::of(self);
        let selection = select(&corpus, &wider, context.config.selection.mode)?;
        let mut kept = Vec::new();
        let keeping = thresholds.iter().filter(|t| !matches!(t.kind, ThresholdKind::Remove(_)));
        let mut retention = 0;
        let decisions: Vec<Option<Vec<Rate>>> = (0..evaluation.len())
            .map(|at| match selection.decide(&corpus.document(at)) {
                Decision::Kept { retentions } => Some(retentions),
                Decision::Removed { .. } => None,
            })
            .collect();
        for threshold in keeping {
            let head = threshold.head_name.clone();
            let ThresholdKind::Retain(rates) = &threshold.kind else {
                let documents =
                    (0..decisions.len()).filter(|&at| decisions[at].is_some()).collect();
                kept.push(Kept { head, rate: None, documents });
                continue;
            };
            for &rate in rates {
                let wide = pilot_rate(n, rate, risk)?;
                let is_kept = |at: &usize| {
                    decisions[*at].as_ref().is_some_and(|rates| rates[retention] <= wide)
                };
                let documents = (0..decisions.len()).filter(is_kept).collect();
                kept.push(Kept { head: head.clone(), rate: Some(rate), documents });
            }
            retention += 1;
        }
        Ok(SelectedPilot { kept })
    }
}

struct PilotCorpus {
    ids: Vec<String>,
    ordinals: Vec<u64>,
    weights: Option<Vec<u64>>,
    heads: Vec<PilotColumn>,
    logits: Vec<Vec<Option<f32>>>,
    scores: Vec<Vec<Option<f32>>>,
}

struct PilotColumn {
    logits: Vec<f32>,
    scores: Vec<f32>,
    present: Vec<bool>,
}

impl PilotCorpus {
    fn of(pilot: &Pilot) -> Self {
        let range = pilot.evaluation();
        let column = |scores: &Vec<Option<DocumentScore>>| {
            let scores = &scores[range.clone()];
            PilotColumn {
                logits: scores.iter().map(|s| s.map_or(0.0, |s| s.logit)).collect(),
                scores: scores.iter().map(|s| s.map_or(0.0, |s| s.score)).collect(),
                present: scores.iter().map(Option::is_some).collect(),
            }
        };
        let by_document = |value: fn(DocumentScore) -> f32| {
            range
                .clone()
                .map(|at| pilot.scores.iter().map(|s| s[at].map(value)).collect())
                .collect()
        };
        let ordinals = pilot.ordinals[range.clone()].to_vec();
        Self {
            ids: ordinals.iter().map(u64::to_string).collect(),
            ordinals,
            weights: pilot.weights.as_ref().map(|weights| weights[range.clone()].to_vec()),
            heads: pilot.scores.iter().map(column).collect(),
            logits: by_document(|score| score.logit),
            scores: by_document(|score| score.score),
        }
    }

    fn document(&self, at: usize) -> ScoredDocument<'_> {
        let (logits, scores) = (&self.logits[at], &self.scores[at]);
        ScoredDocument { id: &self.ids[at], ordinal: self.ordinals[at], logits, scores }
    }
}

impl Corpus for PilotCorpus {
    fn num_shards(&self) -> usize {
        1
    }

    fn scan(
        &self,
        _shard: usize,
        _request: &ScanRequest,
        visit: &mut dyn FnMut(&ScoreBatch<'_>) -> Result<()>,
    ) -> Result<()> {
        let ids: Vec<&str> = self.ids.iter().map(String::as_str).collect();
        let heads: Vec<HeadColumn<'_>> = (self.heads.iter())
            .map(|PilotColumn { logits, scores, present }| HeadColumn {
                logits,
                scores,
                present: Some(present),
            })
            .collect();
        visit(&ScoreBatch {
            len: ids.len(),
            ids: &ids,
            ordinals: &self.ordinals,
            weights: self.weights.as_deref(),
            heads: &heads,
            ..ScoreBatch::default()
        })
    }
}
