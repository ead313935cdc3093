//! Embedding heads: they score documents from the embeddings of their chunks.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use super::DocumentScore;
use super::card::{CARD_KEY, HeadOf, HeadSpec, ModelCard};
use super::scorer::{ScoreScratch, Scorer};
use super::weights;
use polysift_base::error::{Error, Result};
use polysift_config::ChunkRule;

/// A head that scores embeddings of chunks.
pub type Head = HeadOf<Scorer>;

impl Head {
    /// Makes a head whose digest is that of [`Head::to_bytes`]; [`Error::Shape`] for an unfit spec.
    pub(crate) fn new(card: ModelCard, scorer: Scorer) -> Result<Self> {
        card.spec.check().map_err(|reason| Error::shape("head", reason))?;
        let mut head = Self { card, scorer, digest: String::new() };
        head.digest = blake3::hash(&head.to_bytes()?).to_hex().to_string();
        Ok(head)
    }

    /// Returns the width `D` of the embeddings that the head scores.
    pub fn hidden_size(&self) -> usize {
        self.scorer.hidden_size()
    }

    /// Scores documents. `chunks` is `[num_chunks, D]` f32, row-major; the chunks of document `i`
    /// are the rows `chunk_offsets[i]..chunk_offsets[i + 1]`, so there is one offset more than
    /// there are documents. A document without chunks scores `None`.
    ///
    /// [`ChunkRule`] picks or combines the logits of the chunks (the mean is taken in f64), then
    /// the output turns that logit into the score. A chunk or an output that is not finite gives
    /// NaN, as does a zero vector in a cosine head; a NaN chunk that counts makes the document NaN.
    /// Hidden layers and similarities are computed in f32, the output layer in f64. Scores are
    /// within 1e-6 of PyTorch's (`scores_agree_with_pytorch`).
    pub fn score(
        &self,
        chunks: &[f32],
        chunk_offsets: &[usize],
    ) -> Result<Vec<Option<DocumentScore>>> {
        let all: Vec<usize> = (0..chunk_offsets.len().saturating_sub(1)).collect();
        self.score_with(chunks, chunk_offsets, &all, &mut ScoreScratch::default())
    }

    /// As [`Head::score`] for some `wanted` documents, in that order, with memory of earlier calls,
    /// of this or any other head.
    pub fn score_with(
        &self,
        chunks: &[f32],
        chunk_offsets: &[usize],
        wanted: &[usize],
        scratch: &mut ScoreScratch,
    ) -> Result<Vec<Option<DocumentScore>>> {
        let (head, hidden_size) = (&self.card.head, self.hidden_size());
        let (values, offsets) = (chunks.len(), chunk_offsets.len());
        let ascending = chunk_offsets.is_sorted() && chunk_offsets.first() == Some(&0);
        let num_chunks = chunk_offsets.last().copied().unwrap_or_default();
        if !ascending || num_chunks.checked_mul(hidden_size) != Some(values) {
            let reason = format!(
                "the head `{head}` expects chunks [{num_chunks}, {hidden_size}] and ascending \
                 offsets from 0 to {num_chunks}; got {values} values and {offsets} offset(s)"
            );
            return Err(Error::shape("score", reason));
        }
        let HeadSpec { chunk, output, .. } = self.card.spec;
        let documents = || wanted.iter().map(|&at| chunk_offsets[at]..chunk_offsets[at + 1]);
        let rows: Vec<usize> = match chunk {
            ChunkRule::First => documents().filter(|d| !d.is_empty()).map(|d| d.start).collect(),
            ChunkRule::Max | ChunkRule::Mean => documents().flatten().collect(),
        };
        let logits = self.scorer.logits(chunks, &rows, output, scratch);
        let mut rest = logits.as_slice();
        let scores = documents().map(|document| {
            let most = if chunk == ChunkRule::First { 1 } else { usize::MAX };
            let own = rest.split_off(..document.len().min(most)).unwrap_or_default();
            (!own.is_empty()).then(|| DocumentScore::new(combine_chunks(own, chunk), output))
        });
        Ok(scores.collect())
    }

    /// Returns the head as the bytes of a safetensors file; equal heads give equal bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let card = serde_json::to_string(&self.card)
            .map_err(|e| Error::shape("head file", e.to_string()))?;
        // safetensors writes several keys in the order of a hash map.
        let metadata = HashMap::from([(CARD_KEY.to_owned(), card)]);
        let failed = |e: SafeTensorError| Error::shape("safetensors file", e.to_string());
        let tensors = weights::named_tensors(&self.scorer);
        let le_bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        let bytes: Vec<Vec<u8>> = tensors.iter().map(|(.., values)| le_bytes(values)).collect();
        let views = tensors.into_iter().zip(&bytes).map(|((name, shape, _), bytes)| {
            TensorView::new(Dtype::F32, shape, bytes).map(|view| (name, view))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        safetensors::serialize(views, Some(metadata)).map_err(failed)
    }

    /// Fails with [`Error::Model`], naming `path`, unless embeddings of `hidden_size` fit the head.
    pub fn check_hidden_size(&self, path: &Path, hidden_size: usize) -> Result<()> {
        let own = self.hidden_size();
        if own == hidden_size {
            return Ok(());
        }
        let reason = format!("scores embeddings of {own} values, the corpus's have {hidden_size}");
        Err(Error::model(path, reason))
    }
}

/// Combines the logits of a document's chunks by `rule`; the result is NaN if one that counts is.
fn combine_chunks(logits: &[f32], rule: ChunkRule) -> f32 {
    match rule {
        ChunkRule::First => logits.first().copied().unwrap_or(f32::NAN),
        // f32::max would drop NaN.
        ChunkRule::Max => logits.iter().copied().fold(f32::NEG_INFINITY, |a, b| {
            if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }
        }),
        ChunkRule::Mean => {
            let sum: f64 = logits.iter().map(|&logit| f64::from(logit)).sum();
            (sum / logits.len() as f64) as f32
        }
    }
}

#[cfg(test)]
mod tests;
