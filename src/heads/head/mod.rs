//! Heads turn the embeddings of a document's chunks, or its text, into one score.
//!
//! This module reads and writes head files (safetensors with a [`ModelCard`]), imports other files
//! (safetensors, PyTorch) and scores. [`Head`] scores embeddings, [`FastTextHead`] scores texts,
//! [`RowHead`] scores rows by a column or at random, [`AnyHead`] is any of them.
//!
//! A document's score depends on its own chunks alone, bit by bit, not on the other documents of
//! the call or the number of threads. All heads compute on the CPU. Selection orders by `logit`;
//! `score` is exported. Values that are not finite score NaN.
//!
//! ```
//! use polysift_config::HeadConfig;
//! use polysift_heads::head::Head;
//!
//! let path = "../../tests/golden/heads/quality.safetensors".as_ref();
//! let head = Head::load(path, "quality", &HeadConfig::default())?;
//! let chunks = vec![0.5; 2 * head.hidden_size()]; // two documents of a chunk each
//! let scores = head.score(&chunks, &[0, 1, 2])?;
//! assert_eq!(scores[0], scores[1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod card;
mod embedding;
mod file;
mod pytorch;
mod row;
mod scorer;
mod text;
mod weights;

use std::path::Path;

pub use card::{
    EpochMetrics, HeadOf, HeadSpec, ImportSource, LabelCounts, LearningPoint, ModelCard,
    Provenance, ReferenceCounts, Schedule, TextCard, TrainingRecord,
};
pub use embedding::Head;
pub use file::{
    HEAD_EXTENSIONS, ImportRequest, PublishedRecipe, import, is_classifier, language_of,
};
pub use polysift_data::parts::DocumentScore;
pub use row::{RowHead, ScoreSource};
pub(crate) use scorer::{LinearLayer, References, centred};
pub use scorer::{ScoreScratch, Scorer};
pub use text::FastTextHead;

use polysift_base::error::{Error, Result};
use polysift_config::{HeadConfig, HeadKind};
use polysift_fasttext::is_model;

/// A head of any kind.
#[derive(Debug, Clone)]
pub enum AnyHead {
    /// Scores embeddings of chunks.
    Embedding(Box<Head>),
    /// Scores texts by their words.
    FastText(Box<FastTextHead>),
    /// Scores rows without their texts.
    Row(Box<RowHead>),
}

impl AnyHead {
    /// Reads the head called `name` from `path`: a fastText model if the file begins as one,
    /// else an embedding head (see [`Head::load`]). Only foreign fastText models use `language`.
    pub fn load(path: &Path, name: &str, config: &HeadConfig, language: &str) -> Result<Self> {
        let is_text = path.is_file() && is_model(path)?;
        if is_text && config.kind == HeadKind::Cosine {
            return Err(Error::model(path, "is a fastText model; a cosine head was asked for"));
        }
        if is_text || config.kind == HeadKind::FastText {
            let head = FastTextHead::load(path, name, config, language)?;
            return Ok(Self::FastText(Box::new(head)));
        }
        Head::load(path, name, config).map(|head| Self::Embedding(Box::new(head)))
    }

    /// Returns the spec: what the head computes.
    pub fn spec(&self) -> &HeadSpec {
        &self.card().spec
    }

    /// Returns the model card, which says where the head comes from.
    pub fn card(&self) -> &ModelCard {
        self.described().0
    }

    /// Returns the BLAKE3 of the file's bytes, in hex.
    pub fn digest(&self) -> &str {
        self.described().1
    }

    /// Returns the card and the digest, which every kind of head has.
    fn described(&self) -> (&ModelCard, &str) {
        match self {
            Self::Embedding(head) => (&head.card, &head.digest),
            Self::FastText(head) => (&head.card, &head.digest),
            Self::Row(head) => (&head.card, &head.digest),
        }
    }

    /// Returns the head if it scores embeddings.
    pub fn as_embedding(&self) -> Option<&Head> {
        if let Self::Embedding(head) = self { Some(head) } else { None }
    }
}
