//! Filter for documents that repeat their own sentences or that hold encoded data.

use super::document::{Filter, FilteredDocument, Finding, Verdict};
use polysift_config::{FilterAction, RepetitionConfig};
use polysift_text::rules::{MAX_REPETITION_RATE, Repetition, base64_ranges};

/// Finds documents with too large a share of repeated sentences; with action `cut`, with any.
#[derive(Debug)]
pub(super) struct RepetitionFilter {
    max_rate: f64,
    base64: bool,
    cuts: bool,
}

impl RepetitionFilter {
    pub(super) fn open(config: &RepetitionConfig, action: FilterAction) -> Self {
        let RepetitionConfig { max_rate, base64 } = *config;
        let max_rate = max_rate.unwrap_or(MAX_REPETITION_RATE);
        Self { max_rate, base64, cuts: action == FilterAction::Cut }
    }
}

impl Filter for RepetitionFilter {
    fn verdict(&self, document: &FilteredDocument<'_>) -> Verdict {
        let Some(text) = document.text else { return Verdict::default() };
        if self.base64 && !base64_ranges(text).is_empty() {
            return Verdict::of(Finding::of("base64"));
        }
        let repetition = Repetition::of(text);
        if repetition.is_over(self.max_rate) {
            return Verdict::of(Finding::of("repetition"));
        }
        if !self.cuts || repetition.repeated == 0 {
            return Verdict::default();
        }
        let pieces = Some(repetition.pieces);
        Verdict::of(Finding { pieces, ..Finding::of("repetition") })
    }
}
