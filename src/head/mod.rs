//! Heads: what turns the embeddings of a document's chunks into one score.
//!
//! Owns the head file (safetensors with a [`Card`]), the files of others (safetensors, PyTorch) and
//! scoring; what scores the text itself is [`crate::fasttext`], and [`AnyHead`] is either. Does not
//! train (that is
//! [`crate::train`]), does not read embeddings and does not know thresholds.
//!
//! Invariants: a document's score depends on its own chunks alone, bit by bit, whatever the other
//! documents of the call and the number of threads (a card adds in another order than the CPU, so its
//! last bits are its own); selection orders by `logit`, `score` is what
//! is exported; whatever is not finite scores NaN and never panics.
//!
//! ```
//! use polysift::{config::HeadConfig, head::Head};
//!
//! let path = "tests/golden/heads/quality.safetensors".as_ref();
//! let head = Head::load(path, "quality", &HeadConfig::default())?;
//! let chunks = vec![0.5; 2 * head.hidden_size()]; // two documents of a chunk each
//! let scores = head.score(&chunks, &[0, 1, 2])?;
//! assert_eq!(scores[0], scores[1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod any;
mod card;
mod export;
mod file;
mod gpus;
mod import;
mod language;
mod pytorch;
mod scorer;
mod tensors;
mod weights;

use std::sync::Arc;

use polysift_kernels::cuda::Device;
use serde::{Deserialize, Serialize};

pub use any::AnyHead;
pub(crate) use card::rounded;
pub use card::{
    Card, ClassCounts, EpochMetrics, Metrics, Provenance, ReferenceCounts, Schedule, Source,
    TextCard, TrainingRecord,
};
pub use export::{ExportFormat, Keys};
pub use import::{HEAD_EXTENSIONS, ImportRequest, import};
pub use language::language_of;
pub(crate) use scorer::{Linear, References, Scorer, Scratch, normalised};

use self::gpus::OnGpus;
use crate::config::{Activation, ChunkRule, HeadKind, Keep};
use crate::error::{Error, Result};

/// What a head computes; stored in its file as part of the [`Card`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadSpec {
    /// What computes the score.
    pub kind: HeadKind,
    /// Widths of all layers: input `D`, hidden..., outputs; of a cosine head `[D, K]`, `K` references;
    /// of a fastText head `[dim, labels]`.
    pub layer_sizes: Vec<usize>,
    /// What turns the outputs into a score.
    pub activation: Activation,
    /// Which chunks count; decided on logits, the activation is applied to the resulting logit.
    pub chunk: ChunkRule,
    /// Which side of a threshold is kept.
    pub keep: Keep,
}

impl HeadSpec {
    /// Checks that the activation fits the number of outputs; the text says what is wrong.
    fn check(&self) -> Result<(), String> {
        let outputs = self.layer_sizes.last().copied().unwrap_or_default();
        match (self.kind, self.activation) {
            (HeadKind::Cosine, Activation::Raw) => Ok(()),
            (HeadKind::Cosine, other) => Err(format!(
                "a cosine head's score is the similarity itself (`raw`), not `{other}`"
            )),
            (HeadKind::Mlp, Activation::Softmax { class }) if outputs > class.max(1) => Ok(()),
            (HeadKind::Mlp, Activation::Sigmoid | Activation::Raw) if outputs == 1 => Ok(()),
            (HeadKind::FastText, _) => Err("scores texts, not embeddings".to_owned()),
            (HeadKind::Mlp, activation) => Err(format!(
                "the activation `{activation}` does not fit {outputs} output(s): `sigmoid` and `raw` \
                 need 1, `softmax:C` at least 2 and more than C"
            )),
        }
    }
}

/// Result of one document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DocumentScore {
    /// What selection orders by: the output (sigmoid, raw), the log-odds of the class (softmax) or
    /// the cosine similarity. NaN where an embedding or an output is not finite.
    pub logit: f32,
    /// What is exported: a probability in [0, 1], or the logit itself for raw and cosine heads.
    pub score: f32,
}

impl DocumentScore {
    /// The score that `activation` gives to `logit`. A probability is 1 / (1 + exp(-logit)) in
    /// f32, as `torch.sigmoid` computes it: exactly 1 from about 16.7. The probability of a class
    /// is the same function of its log-odds.
    pub(crate) fn new(logit: f32, activation: Activation) -> Self {
        let score = match activation {
            Activation::Sigmoid | Activation::Softmax { .. } => 1.0 / (1.0 + (-logit).exp()),
            Activation::Raw => logit,
        };
        Self { logit, score }
    }

    /// Whether selections and measures leave it out.
    pub(crate) fn is_nan(self) -> bool {
        self.logit.is_nan() || self.score.is_nan()
    }
}

/// Documents that a card is given at once.
const GPU_BLOCK: usize = 8192;

/// A head, ready to score.
#[derive(Debug, Clone)]
pub struct Head {
    card: Card,
    scorer: Scorer,
    digest: String,
    /// Where it scores instead of the CPU.
    gpus: Option<Arc<OnGpus>>,
}

impl Head {
    /// A head of `scorer`, described by `card`; its digest is that of the bytes that
    /// [`Head::to_bytes`] gives. [`Error::Shape`] if `card.spec` does not fit.
    pub(crate) fn new(card: Card, scorer: Scorer) -> Result<Self> {
        card.spec.check().map_err(|reason| Error::shape("head", reason))?;
        let mut head = Self { card, scorer, digest: String::new(), gpus: None };
        head.digest = blake3::hash(&head.to_bytes()?).to_hex().to_string();
        Ok(head)
    }

    /// Lets the head score on `devices` from now on; where there are none, on the CPU.
    pub(crate) fn score_on(&mut self, devices: &[Device]) -> Result<()> {
        self.gpus = match devices {
            [] => None,
            devices => Some(Arc::new(OnGpus::new(&self.scorer, devices)?)),
        };
        Ok(())
    }

    /// What the head computes.
    pub fn spec(&self) -> &HeadSpec {
        &self.card.spec
    }

    /// Where the head comes from.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// BLAKE3 of the file's bytes, in hex. Settings that override the file's spec are not part of
    /// it; [`Head::spec`] has them.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Width `D` of the embeddings that the head scores.
    pub fn hidden_size(&self) -> usize {
        self.scorer.hidden_size()
    }

    /// Scores documents: `chunks` `[num_chunks, D]` f32, row-major; the chunks of document `i` are
    /// the rows `chunk_offsets[i]..chunk_offsets[i + 1]`, so there is one offset more than
    /// documents. A document without chunks scores `None`.
    ///
    /// [`ChunkRule`] picks or combines the logits of the chunks (the mean is taken in f64), then
    /// the activation turns that logit into the score. A chunk that is not finite, an output that
    /// is not finite, or a zero vector before a cosine head gives NaN, and a NaN chunk that counts
    /// makes the document NaN.
    ///
    /// Blocks of documents are scored in parallel on the current rayon pool, or one after another on
    /// a card.
    ///
    /// # Errors
    /// [`Error::Shape`] where `chunks` and `chunk_offsets` do not describe `[num_chunks, D]`;
    /// [`Error::Device`] if a card fails.
    ///
    /// # Precision
    /// Hidden layers and similarities in f32, the output layer in f64: within 1e-6 of PyTorch
    /// (`scores_agree_with_pytorch`).
    pub fn score(
        &self,
        chunks: &[f32],
        chunk_offsets: &[usize],
    ) -> Result<Vec<Option<DocumentScore>>> {
        self.score_by(chunks, chunk_offsets, |rows, activation| {
            self.scorer.logits(chunks, rows, activation)
        })
    }

    /// As [`Head::score`]; on the CPU in the calling thread alone, for callers that are parallel
    /// themselves. `scratch` is for any head.
    pub(crate) fn score_here(
        &self,
        chunks: &[f32],
        chunk_offsets: &[usize],
        scratch: &mut Scratch,
    ) -> Result<Vec<Option<DocumentScore>>> {
        self.score_by(chunks, chunk_offsets, |rows, activation| {
            self.scorer.logits_here(chunks, rows, activation, scratch)
        })
    }

    /// Documents that are best scored at once.
    pub(crate) fn block_documents(&self) -> usize {
        if self.gpus.is_some() { GPU_BLOCK } else { scorer::BLOCK_ROWS }
    }

    /// Scores documents with the logits that `on_cpu` finds for rows of `chunks`, unless a card does.
    fn score_by(
        &self,
        chunks: &[f32],
        chunk_offsets: &[usize],
        on_cpu: impl FnOnce(&[usize], Activation) -> Vec<f32>,
    ) -> Result<Vec<Option<DocumentScore>>> {
        self.check_shapes(chunks, chunk_offsets)?;
        let HeadSpec { chunk, activation, .. } = self.card.spec;
        let documents = || chunk_offsets.windows(2).map(|pair| pair[0]..pair[1]);
        let rows: Vec<usize> = match chunk {
            ChunkRule::First => documents().filter(|d| !d.is_empty()).map(|d| d.start).collect(),
            ChunkRule::Max | ChunkRule::Mean => documents().flatten().collect(),
        };
        let logits = match &self.gpus {
            None => on_cpu(&rows, activation),
            Some(gpus) => {
                let width = self.hidden_size();
                let row = |&row: &usize| &chunks[row * width..(row + 1) * width];
                let gathered: Vec<f32> = rows.iter().flat_map(row).copied().collect();
                self.scorer.to_logits(&gpus.outputs(&gathered)?, activation)
            }
        };
        let mut rest = logits.as_slice();
        let scores = documents().map(|document| {
            let used =
                if chunk == ChunkRule::First { document.len().min(1) } else { document.len() };
            let (own, others) = rest.split_at(used);
            rest = others;
            (!own.is_empty()).then(|| DocumentScore::new(combine(own, chunk), activation))
        });
        Ok(scores.collect())
    }

    /// The shape check of [`Head::score`].
    fn check_shapes(&self, chunks: &[f32], chunk_offsets: &[usize]) -> Result<()> {
        let hidden_size = self.hidden_size();
        let ascending = chunk_offsets.is_sorted() && chunk_offsets.first() == Some(&0);
        let num_chunks = chunk_offsets.last().copied().unwrap_or_default();
        if ascending && num_chunks.checked_mul(hidden_size) == Some(chunks.len()) {
            return Ok(());
        }
        Err(Error::shape(
            "score",
            format!(
                "the head `{}` expects chunks [{num_chunks}, {hidden_size}] and ascending offsets \
                 from 0 to {num_chunks}; got {} values and {} offset(s)",
                self.card.head,
                chunks.len(),
                chunk_offsets.len()
            ),
        ))
    }
}

/// The logit of a document from those of the chunks that count; NaN where one of them is NaN.
fn combine(logits: &[f32], rule: ChunkRule) -> f32 {
    match rule {
        ChunkRule::First => logits.first().copied().unwrap_or(f32::NAN),
        // f32::max drops NaN, which must not be dropped here.
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
