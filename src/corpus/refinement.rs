//! The report of the refine stage.

use serde::{Deserialize, Serialize};

use crate::languages::ALL_LANGUAGES;
use polysift_base::error::Result;
use polysift_config::EncoderPrecision;
use polysift_runs::run::{RunDir, Stage};

/// What all calls of the refine stage did to a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Refinement {
    /// Precision of the encoder that refined.
    pub precision: EncoderPrecision,
    /// Number of rounds that scored documents.
    pub rounds: usize,
    /// Number of documents of the run with text.
    pub documents: u64,
    /// Number of documents scored again.
    pub refined: u64,
    /// Number of tokens that the embed stage encoded, including `<s>` and `</s>`.
    pub tokens: u64,
    /// Number of tokens encoded again.
    pub refined_tokens: u64,
    /// Heads with thresholds, by language.
    pub heads: Vec<HeadRefinement>,
    /// Languages with thresholds that depend on the encoder.
    pub languages: Vec<LanguageRefinement>,
}

/// Differences of a head's scores to those in f32, in logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadRefinement {
    /// Language of the documents.
    pub language: String,
    /// Name of the head.
    pub head: String,
    /// Number of documents scored again.
    pub refined: u64,
    /// Largest difference of a document scored both ways; `None` if every score was NaN.
    pub largest_difference: Option<f64>,
    /// Documents nearer to a threshold were scored again; `None`: all, or there is no threshold.
    pub margin: Option<f64>,
}

/// Documents of a language that the refinement moved across a threshold, and expected misses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LanguageRefinement {
    /// Language of the documents.
    pub language: String,
    /// Number of documents that their new scores move across a threshold.
    pub changed: u64,
    /// Largest distance of such a document, in margins; near 1, others probably lie beyond.
    pub farthest_change: Option<f64>,
    /// Expected number of wrong documents beyond the margins; `None` if the risk is 0.
    pub expected_wrong: Option<f64>,
}

impl Refinement {
    /// Path below the run directory.
    pub const FILE: &str = "refined/report.json";

    /// Reads the report of `run`; `None` before the stage is done.
    pub fn read(run: &RunDir) -> Result<Option<Self>> {
        run.read_output(Stage::Refine, ALL_LANGUAGES, &run.path(Self::FILE))
    }
}
