//! The report of the refine stage.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::dir::RunDir;
use crate::error::Result;

/// What the refine stage did to a run, in all its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refinement {
    /// Rounds that scored documents.
    pub rounds: usize,
    /// Documents of the run with text.
    pub documents: u64,
    /// Those scored in f32.
    pub refined: u64,
    /// Tokens that the embed stage encoded, `<s>` and `</s>` included.
    pub tokens: u64,
    /// Tokens that were encoded in f32.
    pub refined_tokens: u64,
    /// By language, those with thresholds.
    pub languages: BTreeMap<String, LanguageRefinement>,
}

/// See [`Refinement::languages`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LanguageRefinement {
    /// Documents scored in f32.
    pub refined: u64,
    /// By head.
    pub heads: BTreeMap<String, HeadRefinement>,
}

/// How far the scores of a head were from those of f32, in logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadRefinement {
    /// Largest difference of a document scored both ways; `None` where the run's scores tell nothing.
    pub largest_difference: Option<f64>,
    /// All documents so near to a threshold were scored in f32; `None`: all documents.
    pub margin: Option<f64>,
    /// [`REFINE_SAFETY`](crate::config::REFINE_SAFETY), the margin by the largest difference.
    pub safety: f64,
}

impl Refinement {
    /// The file, below the run directory.
    pub(crate) const FILE: &str = "refined/report.json";

    /// The report of `run`; `None` before the stage is done.
    pub fn read(run: &RunDir) -> Result<Option<Self>> {
        run.read_json(&run.path(Self::FILE))
    }
}
