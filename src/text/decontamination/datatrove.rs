//! Splits a text into words like datatrove's decontamination, each with its place in the text.
//!
//! Text is put into lower case, numbers become `0`, punctuation and controls become white space,
//! and NFD drops nonspacing marks. The result is split at white space, and English contractions
//! like in spaCy. spaCy's other splits (`€0` and `0km` into two words each) are not made.

use std::ops::Range;

use unicode_normalization::char::decompose_canonical;

use super::character::{digit_value, is_nonspacing_mark};
use super::contractions;

/// Characters that become white space, besides controls and ASCII punctuation.
const PUNCTUATION: &str = "—”％〈、━【「」，】；“《„’∶´．（–？！：～«〉》）。…►»";

/// Characters between the two parts of one number.
const SEPARATORS: &str = ".,،٫⎖⎗⎘";

/// Calls `take` with each word and its place in `text`, in bytes.
pub(super) fn for_each_word(text: &str, language: &str, mut take: impl FnMut(&[u8], Range<usize>)) {
    // datatrove's own default is English.
    let is_english = matches!(language.split(['_', '-']).next(), Some("" | "en" | "eng") | None);
    let mut words = WordMaker::new(|word: &[u8], place: Range<usize>| {
        let Some(lengths) = is_english.then(|| contractions::parts(word)).flatten() else {
            return take(word, place);
        };
        // The word is ASCII, but its place need not be: marks may have been dropped.
        let mut start = 0;
        for length in lengths {
            take(&word[start..start + length], place.clone());
            start += length;
        }
    });
    // The whole text, because the context decides whether a sigma is final.
    let lower = text.to_lowercase();
    let mut lower = lower.chars();
    for (at, c) in text.char_indices() {
        let place = at..at + c.len_utf8();
        for lower in lower.by_ref().take(c.to_lowercase().count()) {
            words.add(lower, place.clone());
        }
    }
    words.finish();
}

enum NumberState {
    /// Outside of a number.
    Outside,
    /// After digits.
    Whole,
    /// After digits and a separator, which belongs to the number if a digit follows.
    Separator(char, Range<usize>),
    /// After digits behind the separator.
    Fraction,
}

struct WordMaker<F> {
    take: F,
    word: Vec<u8>,
    place: Range<usize>,
    number: NumberState,
}

impl<F: FnMut(&[u8], Range<usize>)> WordMaker<F> {
    fn new(take: F) -> Self {
        Self { take, word: Vec::new(), place: 0..0, number: NumberState::Outside }
    }

    /// Adds a lower-case character.
    fn add(&mut self, c: char, place: Range<usize>) {
        let number = std::mem::replace(&mut self.number, NumberState::Outside);
        if digit_value(c).is_some() {
            self.number = match number {
                NumberState::Outside => {
                    self.push('0', &place);
                    NumberState::Whole
                }
                NumberState::Whole => NumberState::Whole,
                NumberState::Separator(..) | NumberState::Fraction => NumberState::Fraction,
            };
            self.place.end = place.end;
            return;
        }
        match number {
            NumberState::Whole if SEPARATORS.contains(c) => {
                self.number = NumberState::Separator(c, place);
                return;
            }
            NumberState::Separator(separator, place) => self.add_other(separator, &place),
            _ => {}
        }
        self.add_other(c, &place);
    }

    /// Adds a character that is not part of a number.
    fn add_other(&mut self, c: char, place: &Range<usize>) {
        let is_kept = c.is_alphanumeric()
            || !(c.is_whitespace()
                || c.is_control()
                || c.is_ascii_punctuation()
                || PUNCTUATION.contains(c));
        if is_kept {
            decompose_canonical(c, |c| {
                if !is_nonspacing_mark(c) {
                    self.push(c, place);
                }
            });
        } else {
            self.end_word();
        }
    }

    fn push(&mut self, c: char, place: &Range<usize>) {
        if self.word.is_empty() {
            self.place.start = place.start;
        }
        self.word.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.place.end = place.end;
    }

    fn end_word(&mut self) {
        if !self.word.is_empty() {
            (self.take)(&self.word, self.place.clone());
            self.word.clear();
        }
    }

    fn finish(&mut self) {
        if let NumberState::Separator(separator, place) =
            std::mem::replace(&mut self.number, NumberState::Outside)
        {
            self.add_other(separator, &place);
        }
        self.end_word();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    /// Output of `tests/golden/decontamination.py` that these tests need.
    #[derive(Deserialize)]
    struct Golden {
        texts: Vec<Case>,
        categories: BTreeMap<String, Vec<(u32, u32)>>,
    }

    #[derive(Deserialize)]
    struct Case {
        text: String,
        normal: String,
        words: Vec<String>,
    }

    fn golden() -> Result<Golden, Box<dyn std::error::Error>> {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let file = std::fs::read(format!("{root}/tests/golden/decontamination/expected.json"))?;
        Ok(serde_json::from_slice(&file)?)
    }

    fn words(text: &str, language: &str) -> Vec<String> {
        let mut words = Vec::new();
        for_each_word(text, language, |word, place| {
            assert!(text.get(place).is_some_and(|place| !place.is_empty()));
            words.push(String::from_utf8_lossy(word).into_owned());
        });
        words
    }

    #[test]
    fn words_are_those_of_datatrove() -> Result<(), Box<dyn std::error::Error>> {
        let texts = golden()?.texts;
        assert_eq!(texts.len(), 300);
        let mut compared = 0;
        for Case { text, normal, words: expected } in texts {
            let split: Vec<&str> = normal.split(' ').filter(|word| !word.is_empty()).collect();
            assert_eq!(words(&text, "deu_Latn"), split, "{text:?}");
            // Symbols and units are words in spaCy but not here.
            let is_plain = |c: char| c == ' ' || c.is_alphanumeric();
            if normal.chars().all(is_plain) && !normal.contains("0km") {
                assert_eq!(words(&text, "eng_Latn"), expected, "{text:?}");
                compared += 1;
            }
        }
        assert!(compared > 150, "{compared}");
        Ok(())
    }

    #[test]
    fn contractions_are_split_in_english_alone() {
        assert_eq!(words("Dónt, cannot", "en"), ["do", "nt", "can", "not"]);
        assert_eq!(words("Dónt, cannot", "fra_Latn"), ["dont", "cannot"]);
    }

    #[test]
    fn categories_are_those_of_unicode() -> Result<(), Box<dyn std::error::Error>> {
        let categories = golden()?.categories;
        let is_in = |category: &str, c: char| {
            let mut ranges = categories[category].iter();
            ranges.any(|(first, last)| (*first..=*last).contains(&(c as u32)))
        };
        for c in '\0'..=char::MAX {
            assert_eq!(is_nonspacing_mark(c), is_in("Mn", c), "{c:?}");
            assert_eq!(digit_value(c).is_some(), is_in("Nd", c), "{c:?}");
        }
        Ok(())
    }
}
