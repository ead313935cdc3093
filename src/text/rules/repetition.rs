//! How much of a document its own sentences repeat.

use std::collections::HashSet;
use std::ops::Range;

use super::folding::fold_into;
use super::sentences::sentences;

/// A document of which a larger share of sentences is repeated is not worth keeping (MixtureVitae,
/// section 2.2.4).
pub const MAX_REPETITION_RATE: f64 = 0.75;

/// Sentences of as many characters or fewer are not looked at, a run of white space being one
/// (MixtureVitae's code).
pub const MIN_SENTENCE_CHARACTERS: usize = 30;

/// What of a document is repeated in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repetition {
    /// Sentences that were looked at.
    pub sentences: usize,
    /// Those of them that stand earlier in the document too.
    pub repeated: usize,
    /// What is left of the text without those, in bytes: ascending, apart from each other.
    pub pieces: Vec<Range<usize>>,
}

impl Repetition {
    /// Compares the sentences (UAX #29) of a text, without regard to case, white space and
    /// compatibility forms.
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
                found.keep(start..range.start);
                start = range.end;
            }
        }
        found.keep(start..text.len());
        found
    }

    /// Share of the sentences that are repeated: 1 less distinct by all; 0 where there are none.
    pub fn rate(&self) -> f64 {
        self.repeated as f64 / self.sentences.max(1) as f64
    }

    /// Whether more is repeated than this share.
    pub fn is_over(&self, max_rate: f64) -> bool {
        self.rate() > max_rate
    }

    fn keep(&mut self, piece: Range<usize>) {
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }
}

/// Whether a sentence has more than [`MIN_SENTENCE_CHARACTERS`].
fn is_long(sentence: &str) -> bool {
    let mut was_space = false;
    let is_counted = |c: &char| {
        let is_space = c.is_whitespace();
        !(std::mem::replace(&mut was_space, is_space) && is_space)
    };
    sentence.chars().filter(is_counted).nth(MIN_SENTENCE_CHARACTERS).is_some()
}
