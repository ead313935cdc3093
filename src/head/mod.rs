//! Heads: what turns the embeddings of a document's chunks, or its text, into one score.
//!
//! Owns the head file (safetensors with a [`ModelCard`]), the files of others (safetensors, PyTorch)
//! and scoring; [`Head`] scores embeddings, [`FastTextHead`] texts by a model of [`crate::fasttext`],
//! [`RowHead`] rows by a column or at random, and [`AnyHead`] is any of them. Does not train (that is
//! `crate::train`), does not read embeddings and does not know thresholds.
//!
//! Invariants: a document's score depends on its own chunks alone, bit by bit, whatever the other
//! documents of the call and the number of threads (a GPU adds in another order than the CPU, so its
//! last bits are its own); selection orders by `logit`, `score` is what is exported; whatever is not
//! finite scores NaN and never panics.
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

mod card;
mod embedding;
mod file;
mod published;
#[cfg(feature = "train")]
mod pytorch;
#[cfg(not(feature = "train"))]
#[path = "no_pytorch.rs"]
mod pytorch;
mod row;
mod scorer;
mod text;
mod weights;

use std::path::Path;

pub use card::{
    ClassCounts, EpochMetrics, GradeCounts, HeadSpec, ImportSource, LabelCounts, LearningPoint,
    ModelCard, Provenance, ReferenceCounts, Schedule, TextCard, TrainingRecord,
};
pub use embedding::Head;
pub use file::{HEAD_EXTENSIONS, ImportRequest, import, is_classifier, language_of};
pub use published::PublishedRecipe;
pub use row::{RowHead, ScoreSource};
pub use scorer::DocumentScore;
#[cfg(feature = "train")]
pub(crate) use scorer::LinearLayer;
pub(crate) use scorer::{Center, References, ScoreScratch, Scorer, normalised};
pub use text::FastTextHead;
pub use weights::Keys;

use crate::config::{HeadConfig, HeadKind};
use crate::error::{Error, Result};
use crate::fasttext::is_model;

/// A head, whatever it scores.
#[derive(Debug, Clone)]
pub enum AnyHead {
    /// Scores embeddings of chunks.
    Embedding(Box<Head>),
    /// Scores texts.
    Text(Box<FastTextHead>),
    /// Scores rows, whatever their texts are.
    Row(Box<RowHead>),
}

impl AnyHead {
    /// Reads the head called `name` from `path`: a fastText model where the file begins as one,
    /// else as [`Head::load`]. `language` matters to foreign fastText models alone, see
    /// [`FastTextHead::load`].
    ///
    /// # Errors
    /// Those of the two; [`Error::Model`] where `config` asks for a fastText head and the file is
    /// none, or for a cosine head and it is one.
    pub fn load(path: &Path, name: &str, config: &HeadConfig, language: &str) -> Result<Self> {
        let is_text = path.is_file() && is_model(path)?;
        match (config.kind, is_text) {
            (HeadKind::FastText, false) if path.is_file() => {
                Err(Error::model(path, "is not a fastText model of version 11 or 12"))
            }
            (HeadKind::Cosine, true) => {
                Err(Error::model(path, "is a fastText model; a cosine head was asked for"))
            }
            (_, true) | (HeadKind::FastText, false) => {
                FastTextHead::load(path, name, config, language).map(|h| Self::Text(Box::new(h)))
            }
            (_, false) => {
                Head::load(path, name, config).map(|head| Self::Embedding(Box::new(head)))
            }
        }
    }

    /// What the head computes.
    pub fn spec(&self) -> &HeadSpec {
        &self.card().spec
    }

    /// Where the head comes from.
    pub fn card(&self) -> &ModelCard {
        match self {
            Self::Embedding(head) => head.card(),
            Self::Text(head) => head.card(),
            Self::Row(head) => head.card(),
        }
    }

    /// BLAKE3 of the file's bytes, in hex.
    pub fn digest(&self) -> &str {
        match self {
            Self::Embedding(head) => head.digest(),
            Self::Text(head) => head.digest(),
            Self::Row(head) => head.digest(),
        }
    }

    /// The head, if it scores embeddings.
    pub fn as_embedding(&self) -> Option<&Head> {
        match self {
            Self::Embedding(head) => Some(head),
            Self::Text(_) | Self::Row(_) => None,
        }
    }

    /// The head, if it scores texts.
    pub fn as_text(&self) -> Option<&FastTextHead> {
        match self {
            Self::Text(head) => Some(head),
            Self::Embedding(_) | Self::Row(_) => None,
        }
    }

    /// The head, if it scores rows.
    pub fn as_row(&self) -> Option<&RowHead> {
        match self {
            Self::Row(head) => Some(head),
            Self::Embedding(_) | Self::Text(_) => None,
        }
    }
}
