//! What an index is made with, and what a document has to be read with to be looked up in it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Languages written without spaces, by ISO 639 code.
const UNSPACED_LANGUAGES: [&str; 22] = [
    "zh", "zho", "cmn", "yue", "wuu", "nan", "hak", "gan", "lzh", "ja", "jpn", "th", "tha", "lo",
    "lao", "km", "khm", "my", "mya", "bo", "bod", "dzo",
];
/// Scripts without spaces, by ISO 15924 code.
const UNSPACED_SCRIPTS: [&str; 11] =
    ["Hani", "Hans", "Hant", "Jpan", "Hira", "Kana", "Thai", "Laoo", "Khmr", "Mymr", "Tibt"];

/// How a text becomes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Normalisation {
    /// NFKC, lower case, no nonspacing marks; the words of UAX #29, and single characters in scripts
    /// without spaces.
    #[default]
    Default,
    /// What datatrove makes of text: numbers are `0`, punctuation is white space, words stand between
    /// spaces. Not for languages without spaces.
    Datatrove,
}

/// What becomes of numbers ([`Normalisation::Datatrove`] makes each `0` whatever is set).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Numbers {
    /// They stay.
    #[default]
    Keep,
    /// Each is `0`, so that the same exercise with other numbers is the same text.
    Zero,
}

/// Where in an item an n-gram stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemPart {
    /// Wholly in the question.
    Question,
    /// In both.
    Straddle,
    /// Wholly in the answer.
    Answer,
}

impl ItemPart {
    /// Of an n-gram of `ngram` tokens that begins with token number `token` of an item whose question has
    /// `question` tokens.
    pub(super) fn of(token: u32, ngram: u32, question: u32) -> Self {
        if token >= question {
            Self::Answer
        } else if token + ngram <= question {
            Self::Question
        } else {
            Self::Straddle
        }
    }
}

/// What an index is made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexSettings {
    /// How items and documents become tokens.
    pub normalisation: Normalisation,
    /// What becomes of their numbers.
    pub numbers: Numbers,
    /// Tokens of an n-gram.
    pub ngram: u32,
    /// Tokens of an n-gram in languages written without spaces, where characters are tokens.
    pub ngram_chars: u32,
    /// The parts whose n-grams are indexed.
    pub parts: Vec<ItemPart>,
}

impl Default for IndexSettings {
    fn default() -> Self {
        Self {
            normalisation: Normalisation::Default,
            numbers: Numbers::Keep,
            ngram: 13,
            ngram_chars: 26,
            parts: vec![ItemPart::Question, ItemPart::Straddle, ItemPart::Answer],
        }
    }
}

impl IndexSettings {
    /// The defaults of datatrove 0.10: n-grams of 12 words, none wholly in a question.
    pub fn datatrove() -> Self {
        Self {
            normalisation: Normalisation::Datatrove,
            ngram: 12,
            parts: vec![ItemPart::Straddle, ItemPart::Answer],
            ..Self::default()
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub(super) fn check(&self) -> Result<()> {
        for (name, ngram) in [("ngram", self.ngram), ("ngram_chars", self.ngram_chars)] {
            if ngram == 0 {
                return Err(Error::config(name, "is 0; an n-gram has at least one token"));
            }
        }
        if self.parts.is_empty() {
            return Err(Error::config("parts", "is empty; name question, straddle or answer"));
        }
        Ok(())
    }

    /// Tokens of an n-gram of a text in `language` (`deu_Latn`, `ja`; empty where it is not known).
    pub(super) fn ngram_for(&self, language: &str) -> u32 {
        if self.normalisation == Normalisation::Default && is_unspaced(language) {
            self.ngram_chars
        } else {
            self.ngram
        }
    }
}

/// Whether `language` is written without spaces: its script says so, or where it names none, the language.
fn is_unspaced(language: &str) -> bool {
    let mut subtags = language.split(['_', '-']);
    let primary = subtags.next().unwrap_or_default();
    match subtags.find(|subtag| subtag.len() == 4) {
        Some(script) => UNSPACED_SCRIPTS.contains(&script),
        None => UNSPACED_LANGUAGES.contains(&primary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_decides_and_else_the_language() {
        for unspaced in ["cmn_Hani", "jpn_Jpan", "tha_Thai", "zh", "zh-CN", "zh-Hant-TW", "bo"] {
            assert!(is_unspaced(unspaced), "{unspaced}");
        }
        for spaced in ["cmn_Latn", "kor_Hang", "deu_Latn", "en", "", "_", "Hani"] {
            assert!(!is_unspaced(spaced), "{spaced}");
        }
    }
}
