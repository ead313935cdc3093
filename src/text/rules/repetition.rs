//! Measures how much of a document its own sentences repeat.

use std::collections::HashSet;
use std::ops::Range;

use super::folding::fold_into;
use super::sentences::sentences;

/// Maximum share of repeated sentences in a document worth keeping (MixtureVitae, section 2.2.4).
pub const MAX_REPETITION_RATE: f64 = 0.75;
/// Sentences of at most this many characters are skipped, a run of white space counting as one
/// (MixtureVitae's code).
pub const MIN_SENTENCE_CHARACTERS: usize = 30;

/// Repeated sentences of a document, and the text without them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repetition {
    /// Number of sentences compared.
    pub sentences: usize,
    /// Number of those that also occur earlier in the document.
    pub repeated: usize,
    /// Byte ranges of the text without those: ascending, apart from each other.
    pub pieces: Vec<Range<usize>>,
}

impl Repetition {
    /// Compares a text's sentences (UAX #29) without case, white space and compatibility forms.
    pub fn of(text: &str) -> Self {
        let all = sentences(text);
        let mut folded = String::with_capacity(text.len() + 8);
        let mut compared = Vec::new();
        for range in &all {
            let sentence = text[range.clone()].trim();
            if is_long(sentence) {
                let start = folded.len();
                fold_into(sentence, &mut folded);
                compared.push((range, start..folded.len()));
            }
        }
        let mut seen = HashSet::with_capacity(compared.len());
        let mut found = Self { sentences: compared.len(), ..Self::default() };
        let mut start = 0;
        for (range, key) in compared {
            if !seen.insert(&folded[key]) {
                found.repeated += 1;
                found.pieces.push(start..range.start);
                start = range.end;
            }
        }
        found.pieces.push(start..text.len());
        found.pieces.retain(|piece| !piece.is_empty());
        found
    }

    /// Returns true if more than the share `max_rate` of the sentences is repeated.
    pub fn is_over(&self, max_rate: f64) -> bool {
        self.repeated as f64 / self.sentences.max(1) as f64 > max_rate
    }
}

/// Returns true for more than [`MIN_SENTENCE_CHARACTERS`], a run of white space counting as one.
fn is_long(sentence: &str) -> bool {
    let mut was_space = false;
    let is_counted = |c: &char| {
        let is_space = c.is_whitespace();
        !(std::mem::replace(&mut was_space, is_space) && is_space)
    };
    sentence.chars().filter(is_counted).nth(MIN_SENTENCE_CHARACTERS).is_some()
}
