//! Settings for building an index, and for reading the documents that are searched.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::character::{WordPart, look_up};
use polysift_base::error::{Error, Result};

/// Languages written without spaces, by ISO 639 code.
const UNSPACED_LANGUAGES: [&str; 23] = [
    "zh", "zho", "cmn", "yue", "wuu", "nan", "hak", "gan", "lzh", "ja", "jpn", "th", "tha", "lo",
    "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo",
];
/// Scripts without spaces, by ISO 15924 code.
const UNSPACED_SCRIPTS: [&str; 16] = [
    "Hani", "Hans", "Hant", "Jpan", "Hira", "Kana", "Hrkt", "Thai", "Laoo", "Khmr", "Mymr", "Tibt",
    "Tale", "Talu", "Lana", "Tavt",
];

/// Rules that turn a text into tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Normalisation {
    /// NFKC without case and nonspacing marks. Tokens are runs of letters and digits, and single
    /// characters of scripts without spaces.
    #[default]
    Default,
    /// datatrove's rules: numbers become `0`, punctuation becomes white space, and words are
    /// separated by spaces. Not for languages without spaces.
    Datatrove,
}

/// Treatment of numbers ([`Normalisation::Datatrove`] always makes each `0`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Numbers {
    /// Keeps numbers.
    #[default]
    Keep,
    /// Replaces each by `0`, so that the same exercise with other numbers is the same text.
    Zero,
}

/// Part of an item that an n-gram is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ItemPart {
    /// Wholly in the question.
    Question,
    /// In both question and answer.
    Straddle,
    /// Wholly in the answer.
    Answer,
}

/// Settings of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields)]
pub struct IndexSettings {
    /// Rules that turn items and documents into tokens.
    pub normalisation: Normalisation,
    /// Treatment of numbers.
    pub numbers: Numbers,
    /// Tokens per n-gram.
    #[default = 13]
    pub ngram: u32,
    /// Tokens per n-gram in languages without spaces, where characters are tokens.
    #[default = 26]
    pub ngram_chars: u32,
    /// Parts of items to index.
    #[default(vec![ItemPart::Question, ItemPart::Straddle, ItemPart::Answer])]
    pub parts: Vec<ItemPart>,
}

impl IndexSettings {
    /// Returns the defaults of datatrove 0.10: n-grams of 12 words, none wholly in a question.
    pub fn datatrove() -> Self {
        Self {
            normalisation: Normalisation::Datatrove,
            ngram: 12,
            parts: vec![ItemPart::Straddle, ItemPart::Answer],
            ..Self::default()
        }
    }

    /// Checks what the types do not express: n-grams have tokens and parts.
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

    /// Returns the tokens per n-gram in `language` (`deu_Latn`, `ja`) or, if unknown, of `text`.
    pub(super) fn ngram_for(&self, language: &str, text: impl FnOnce() -> String) -> u32 {
        let is_unspaced = || is_unspaced(language).unwrap_or_else(|| is_mostly_unspaced(&text()));
        if self.normalisation == Normalisation::Default && is_unspaced() {
            self.ngram_chars
        } else {
            self.ngram
        }
    }
}

/// Tells by its script, or else by itself, if a language has no spaces; `None` if it is no code.
fn is_unspaced(language: &str) -> Option<bool> {
    let language = language.to_ascii_lowercase();
    let mut subtags = language.split(['_', '-']);
    let primary = subtags.next().unwrap_or_default();
    let script = subtags.find(|subtag| subtag.len() == 4);
    if !(2..=3).contains(&primary.len()) || script.is_none() && primary == "und" {
        return None;
    }
    Some(match script {
        Some(script) => UNSPACED_SCRIPTS.iter().any(|known| known.eq_ignore_ascii_case(script)),
        None => UNSPACED_LANGUAGES.contains(&primary),
    })
}

/// Returns true if more than half of the letters of `text` are of scripts without spaces.
fn is_mostly_unspaced(text: &str) -> bool {
    let parts = || text.chars().map(|c| look_up(c).0);
    let unspaced = parts().filter(|part| *part == WordPart::Single).count();
    let letters = parts().filter(|part| *part == WordPart::Letter).count();
    unspaced > letters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_decides_and_else_the_language() {
        for unspaced in ["cmn_Hani", "CMN_HANI", "tha_Thai", "zh", "zh-CN", "zh-Hant-TW", "bo"] {
            assert_eq!(is_unspaced(unspaced), Some(true), "{unspaced}");
        }
        for spaced in ["cmn_Latn", "kor_Hang", "deu_Latn", "en"] {
            assert_eq!(is_unspaced(spaced), Some(false), "{spaced}");
        }
        for unknown in ["", "_", "und", "Chinese", "Hani"] {
            assert_eq!(is_unspaced(unknown), None, "{unknown}");
        }
        assert!(is_mostly_unspaced("この問題をTensorFlowで解く方法を説明してください"));
        assert!(!is_mostly_unspaced("a text that names 北京 and 東京 only"));
    }
}
