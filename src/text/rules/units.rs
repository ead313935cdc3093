//! Splits a folded text into units: the words of UAX #29, and characters of scripts without spaces.

use std::ops::Range;

use super::characters::{Character, look_up};
use crate::characters::WordClass;

/// What a byte of a text is to the unit that it may be part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitByte {
    Outside,
    First,
    Other,
}

/// Places of the units of a text, byte by byte.
#[derive(Debug)]
pub(super) struct Units(Vec<UnitByte>);

impl Units {
    /// Finds the units of a folded text.
    pub(super) fn find(text: &str) -> Self {
        let mut bytes = vec![UnitByte::Outside; text.len()];
        for_each_unit(text, |unit| {
            bytes[unit.start] = UnitByte::First;
            bytes[unit.start + 1..unit.end].fill(UnitByte::Other);
        });
        Self(bytes)
    }

    /// Returns true if no unit extends across `at`.
    pub(super) fn is_border(&self, at: usize) -> bool {
        self.0.get(at) != Some(&UnitByte::Other)
    }

    /// Counts the units that start in `part`.
    pub(super) fn count(&self, part: Range<usize>) -> usize {
        self.0[part].iter().filter(|byte| **byte == UnitByte::First).count()
    }

    /// Adds a unit for a part without one, such as an emoji.
    pub(super) fn add(&mut self, part: Range<usize>) {
        if !part.is_empty() && self.count(part.clone()) == 0 {
            self.0[part.start] = UnitByte::First;
        }
    }
}

/// A word that is being read.
#[derive(Debug, Clone, Copy)]
struct Open {
    start: usize,
    end: usize,
    /// Class of its last character that is not a mark.
    last: WordClass,
    /// End, class and value of a character that joins the word if the next one has the class of the
    /// one before it.
    middle: Option<(usize, WordClass, char)>,
    has_alphanumeric: bool,
}

/// Calls `take` with the byte range of each unit that has a letter or digit, in order.
fn for_each_unit(text: &str, mut take: impl FnMut(Range<usize>)) {
    use WordClass::{Digit, Hebrew, Joiner, Letter, Single};
    let mut open: Option<Open> = None;
    for (at, c) in text.char_indices() {
        let (known, end) = (look_up(c), at + c.len_utf8());
        if let Some(word) = &mut open {
            if word.add(c, known, end) {
                continue;
            }
            word.finish(&mut take);
            open = None;
        }
        if matches!(known.word, Single | Letter | Hebrew | Digit | Joiner) {
            let (last, has_alphanumeric) = (known.word, known.is_alphanumeric);
            open = Some(Open { start: at, end, last, middle: None, has_alphanumeric });
        }
    }
    if let Some(word) = open {
        word.finish(&mut take);
    }
}

impl Open {
    /// Adds a character that ends at `end`, and returns true, if it continues the word.
    fn add(&mut self, c: char, known: Character, end: usize) -> bool {
        let class = known.word;
        match class {
            WordClass::Letter | WordClass::Hebrew | WordClass::Digit | WordClass::Joiner => {
                let is_taken = self.takes(class);
                if is_taken {
                    (self.end, self.last, self.middle) = (end, class, None);
                    self.has_alphanumeric |= known.is_alphanumeric;
                }
                is_taken
            }
            WordClass::Mark => {
                *self.middle.as_mut().map_or(&mut self.end, |middle| &mut middle.0) = end;
                true
            }
            WordClass::Single => false,
            WordClass::Other if c != '"' => false,
            _ if self.middle.is_some() => false,
            WordClass::MidLetter | WordClass::MidDigit | WordClass::MidBoth | WordClass::Other => {
                self.middle = Some((end, class, c));
                true
            }
        }
    }

    /// Returns true if a character of this class continues the word.
    fn takes(&self, class: WordClass) -> bool {
        let is_letter = |class| matches!(class, WordClass::Letter | WordClass::Hebrew);
        match self.middle {
            None => self.last != WordClass::Single,
            Some((_, WordClass::Other, _)) => {
                // WB7b: a double quote.
                self.last == WordClass::Hebrew && class == WordClass::Hebrew
            }
            Some((_, middle, _)) => {
                middle != WordClass::MidDigit && is_letter(self.last) && is_letter(class)
                    || middle != WordClass::MidLetter
                        && self.last == WordClass::Digit
                        && class == WordClass::Digit
            }
        }
    }

    /// Passes on the byte range of the word, if it has a letter or digit.
    fn finish(&self, take: &mut impl FnMut(Range<usize>)) {
        // WB7a: an apostrophe after a Hebrew letter is part of the word.
        let end = match self.middle {
            Some((end, _, '\'')) if self.last == WordClass::Hebrew => end,
            _ => self.end,
        };
        if self.has_alphanumeric {
            take(self.start..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    use super::*;

    /// Generates strings with difficult words, without Katakana, which are single here, and the
    /// joiner of emoji, which folding drops.
    fn awkward() -> impl Strategy<Value = String> {
        let characters: Vec<char> =
            "aZ09 _.,:;'\"-·‧٫٬٣\u{600}˂אב׳״ß漢ひก\u{e33}\u{e34}ခ\u{102c}\u{301}\u{200c}\u{ad}क्षéⅧ가😀$"
                .chars()
                .collect();
        let piece = prop_oneof![
            8 => prop::sample::select(characters).prop_map(String::from),
            4 => prop::sample::select(vec!["a", "1", "'", ".", "א", "\""]).prop_map(String::from),
            1 => any::<char>()
                .prop_filter("is another rule's", |c| *c != '\u{200d}' && !format!("ア{c}").split_word_bounds().all(|w| w.len() > 3))
                .prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]

        #[test]
        fn units_are_words_of_the_crate(text in awkward()) {
            let mut found = Vec::new();
            for_each_unit(&text, |unit| found.push(&text[unit]));
            // Some marks are letters, but alone they are not words here.
            let is_letter =
                |c: char| c.is_alphanumeric() && look_up(c).word != WordClass::Mark;
            let expected: Vec<&str> =
                text.unicode_words().filter(|word| word.contains(is_letter)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
