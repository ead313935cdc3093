//! Splits a text into words like datatrove's decontamination, each with its place in the text.
//! Text is put into lower case, numbers become `0`, punctuation and controls become white space,
//! and NFD drops nonspacing marks. The result is split at white space, and English contractions
//! like in spaCy. spaCy's other splits (`€0` and `0km` into two words each) are not made.

use std::iter::{Peekable, repeat_n};
use std::ops::Range;

use unicode_normalization::char::decompose_canonical;

use super::character::{is_digit, is_nonspacing_mark};
use super::contractions::WORDS;
use super::open_word::OpenWord;
use crate::characters::CharacterTable;

/// Characters that become white space, besides controls and ASCII punctuation.
const PUNCTUATION: &str = "—”％〈、━【「」，】；“《„’∶´．（–？！：～«〉》）。…►»";
/// Characters between the two parts of one number.
const SEPARATORS: &str = ".,،٫⎖⎗⎘";

/// What becomes of a lower-case character.
enum Role {
    Digit,
    /// It is this part of a word, which may be empty.
    Part(Box<str>),
    Space,
}

static ROLES: CharacterTable<Role> = CharacterTable::new(|c| {
    if is_digit(c) {
        return Role::Digit;
    }
    let is_space =
        c.is_whitespace() || c.is_control() || c.is_ascii_punctuation() || PUNCTUATION.contains(c);
    if is_space && !c.is_alphanumeric() {
        return Role::Space;
    }
    let mut part = String::new();
    decompose_canonical(c, |c| part.extend((!is_nonspacing_mark(c)).then_some(c)));
    Role::Part(part.into())
});

/// Calls `take` with each word and its place in `text`, in bytes.
pub(super) fn for_each_word(text: &str, language: &str, mut take: impl FnMut(&[u8], Range<usize>)) {
    // datatrove's own default is English.
    let is_english = matches!(language.split(['_', '-']).next(), Some("" | "en" | "eng") | None);
    let mut word = OpenWord::new(|word: &[u8], place: Range<usize>| {
        let Some(lengths) = is_english.then(|| WORDS.get(word)).flatten() else {
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
    let places = text
        .char_indices()
        .flat_map(|(at, c)| repeat_n(at..at + c.len_utf8(), c.to_lowercase().count()));
    let mut chars = lower.chars().zip(places).peekable();
    while let Some((c, mut place)) = chars.next() {
        match ROLES.get(c) {
            Role::Digit => {
                skip_digits(&mut chars, &mut place);
                let mut behind = chars.clone();
                let is_separated = behind.next_if(|(c, _)| SEPARATORS.contains(*c)).is_some();
                if is_separated && skip_digits(&mut behind, &mut place) {
                    chars = behind;
                }
                word.push(b"0", place);
            }
            Role::Part(part) if part.is_empty() => {}
            Role::Part(part) => word.push(part.as_bytes(), place),
            Role::Space => word.end(),
        }
    }
    word.end();
}

/// Skips digits and extends the end of `number` behind them; returns whether there are any.
fn skip_digits<C>(chars: &mut Peekable<C>, number: &mut Range<usize>) -> bool
where
    C: Iterator<Item = (char, Range<usize>)>,
{
    let end = number.end;
    while let Some((_, place)) = chars.next_if(|(c, _)| matches!(ROLES.get(*c), Role::Digit)) {
        number.end = place.end;
    }
    number.end > end
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::super::character::digit_value;
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
