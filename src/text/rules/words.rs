//! Measures the share of a text that a list of words covers.

use std::ops::Range;

use aho_corasick::Match;

use super::folding::fold;
use super::terms::Terms;
use super::units::Units;

/// Maximum share of listed words in a document worth keeping (MixtureVitae's code).
pub const MAX_LISTED_SHARE: f64 = 0.2;

/// Words and phrases to search for.
///
/// An entry matches between the borders of words (UAX #29); in scripts without spaces (Han,
/// Hiragana, Thai, …) every character has borders. Texts and entries are compared in NFKC without
/// case, with runs of white space as one space.
#[derive(Debug)]
pub struct WordList(Terms);

/// Share of a text that a list covers, in words, or in characters for scripts without spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WordShare<'a> {
    /// Number of words that are part of an entry; words of overlapping entries count once.
    pub hits: usize,
    /// Number of all words.
    pub words: usize,
    /// The entry, as written, that ends first in the text; the longest of several.
    pub first: Option<&'a str>,
}

impl WordShare<'_> {
    /// Returns the hits divided by the words; 0 if there are none.
    pub fn share(self) -> f64 {
        self.hits as f64 / self.words.max(1) as f64
    }
}

impl WordList {
    /// Makes the list of these words and phrases, without empty ones.
    ///
    /// # Errors
    /// Returns a message for a list without words, or one that is too large.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let has_word = |entry: &&str| !fold(entry).trim().is_empty();
        let entries: Vec<String> =
            entries.into_iter().filter(has_word).map(str::to_owned).collect();
        if entries.is_empty() {
            return Err("there is no word in the list".to_owned());
        }
        Terms::new(entries, None).map(Self)
    }

    /// Computes the share of `text` that the list covers.
    pub fn share(&self, text: &str) -> WordShare<'_> {
        let Self(Terms { written, finder }) = self;
        let folded = fold(text);
        let mut units = Units::find(&folded);
        let mut first: Option<Match> = None;
        // Ends ascend, so overlapping ranges are last.
        let mut found: Vec<Range<usize>> = Vec::new();
        for hit in finder.find_overlapping_iter(&folded) {
            if !is_whole(&hit, &folded, &units) {
                continue;
            }
            let place = |hit: &Match| (hit.end(), hit.start(), hit.pattern());
            if first.is_none_or(|first| place(&hit) < place(&first)) {
                first = Some(hit);
            }
            units.add(hit.range());
            let mut start = hit.start();
            while let Some(last) = found.pop_if(|last| last.end > start) {
                start = start.min(last.start);
            }
            found.push(start..hit.end());
        }
        let hits = found.into_iter().map(|range| units.count(range)).sum();
        let first = first.map(|hit| written[hit.pattern()].as_str());
        WordShare { hits, words: units.count(0..folded.len()), first }
    }
}

/// Returns true if a hit in `text` does not split a word.
fn is_whole(hit: &Match, text: &str, units: &Units) -> bool {
    [hit.start(), hit.end()].into_iter().all(|at| units.is_border(at) && !is_in_katakana(text, at))
}

/// Returns true if `at` is within a word in Katakana, which spells words of other languages.
fn is_in_katakana(text: &str, at: usize) -> bool {
    let is_katakana = |c| matches!(c, 'ァ'..='ヺ' | 'ー'..='ヿ' | '\u{31F0}'..='\u{31FF}');
    text[..at].ends_with(is_katakana) && text[at..].starts_with(is_katakana)
}
