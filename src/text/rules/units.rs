//! Splits a folded text into units: the words of UAX #29, and characters of scripts without spaces.

use std::ops::Range;

use super::characters::{Character, character};
use crate::characters::WordClass;

/// Places of the units of a text.
#[derive(Debug)]
pub(super) struct Units {
    /// A bit for each byte at which a unit starts.
    starts: Bits,
    /// A bit for each byte of a unit except its first.
    insides: Bits,
}

impl Units {
    pub(super) fn of(text: &str) -> Self {
        let mut units = Self { starts: Bits::new(text.len()), insides: Bits::new(text.len()) };
        for_each_unit(text, |unit| {
            units.starts.set(unit.start..unit.start + 1);
            units.insides.set(unit.start + 1..unit.end);
        });
        units
    }

    /// Returns true if no unit extends across `at`.
    pub(super) fn is_border(&self, at: usize) -> bool {
        !self.insides.has(at)
    }

    /// Counts the units that start in `part`.
    pub(super) fn count(&self, part: Range<usize>) -> usize {
        self.starts.count(part)
    }

    /// Adds a unit for a part without one, such as an emoji.
    pub(super) fn add(&mut self, part: Range<usize>) {
        if !part.is_empty() && self.count(part.clone()) == 0 {
            self.starts.set(part.start..part.start + 1);
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

fn for_each_unit(text: &str, mut take: impl FnMut(Range<usize>)) {
    let mut open: Option<Open> = None;
    for (at, c) in text.char_indices() {
        let (known, end) = (character(c), at + c.len_utf8());
        if let Some(word) = &mut open {
            if word.add(c, known, end) {
                continue;
            }
            word.finish(&mut take);
            open = None;
        }
        let starts_unit = matches!(
            known.word,
            WordClass::Single
                | WordClass::Letter
                | WordClass::Hebrew
                | WordClass::Digit
                | WordClass::Joiner
        );
        if starts_unit {
            let (last, has_alphanumeric) = (known.word, known.is_alphanumeric);
            open = Some(Open { start: at, end, last, middle: None, has_alphanumeric });
        }
    }
    if let Some(word) = open {
        word.finish(&mut take);
    }
}

impl Open {
    /// Adds a character that ends at `end`, if it continues the word.
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

    /// Returns true if any letter or digit continues the word.
    fn goes_on(&self) -> bool {
        self.middle.is_none() && self.last != WordClass::Single
    }

    /// Returns true if a character of this class continues the word.
    fn takes(&self, class: WordClass) -> bool {
        let is_letter = |class| matches!(class, WordClass::Letter | WordClass::Hebrew);
        match self.middle {
            None => self.goes_on(),
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

/// A bit for each byte of a text.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Self {
        Self(vec![0; len / 64 + 1])
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, range: Range<usize>) {
        for (word, mask) in masks(range) {
            self.0[word] |= mask;
        }
    }

    fn count(&self, range: Range<usize>) -> usize {
        masks(range).map(|(word, mask)| (self.0[word] & mask).count_ones() as usize).sum()
    }
}

/// Returns the 64-bit words that a range of bits overlaps, with a mask of the overlap.
fn masks(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let first = range.start / 64;
    let words = if range.is_empty() { first..first } else { first..range.end.div_ceil(64) };
    words.map(move |word| {
        let (first, last) = (range.start.max(word * 64), range.end.min(word * 64 + 64));
        (word, u64::MAX >> (64 - (last - first)) << (first % 64))
    })
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
                |c: char| c.is_alphanumeric() && character(c).word != WordClass::Mark;
            let expected: Vec<&str> =
                text.unicode_words().filter(|word| word.contains(is_letter)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn bits_are_counted_as_they_are_set(a in 0_usize..300, b in 0_usize..300, c in 0_usize..300) {
            let (first, last) = (a.min(b), a.max(b));
            let mut bits = Bits::new(300);
            bits.set(first..last);
            prop_assert_eq!(bits.count(0..300), last - first);
            prop_assert_eq!(bits.has(c), (first..last).contains(&c));
            prop_assert_eq!(bits.count(0..c), c.clamp(first, last) - first);
        }
    }
}
