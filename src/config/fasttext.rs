//! `[heads.<name>.fasttext]`: how texts are split into words and fastText heads are trained.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::Mode;
use polysift_base::error::{Error, Result};

/// Prefix of every label in a fastText file.
pub const LABEL_PREFIX: &str = "__label__";

/// What happens to white space; every variant also trims the text. The names in brackets are from
/// FineWeb2-HQ's `preprocess_ft.py`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Preprocessing {
    /// Deletes newlines, which joins the words on both sides (V1, used for the paper).
    DeleteNewlines,
    /// Collapses runs of white space into one space (V2).
    #[default]
    Collapse,
    /// Replaces newlines by the word `<NEW_LINE>` and collapses other white space (V3).
    NewlineToken,
}

/// How a text is split into words; fastText itself only knows white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Segmenter {
    /// `words` for languages written without spaces, `none` for others.
    #[default]
    Auto,
    /// Splits at white space only (as published).
    None,
    /// Splits at Unicode word boundaries (UAX 29): punctuation becomes words of its own, and
    /// scripts without spaces are split into characters, which word n-grams join again.
    Words,
    /// Makes every character (grapheme cluster) a word.
    Characters,
}

/// Languages and scripts written without spaces, by the parts of a language code.
const UNSPACED: [&str; 28] = [
    "zh", "zho", "cmn", "yue", "wuu", "nan", "ja", "jpn", "th", "tha", "lo", "lao", "km", "khm",
    "my", "mya", "bo", "bod", "Hani", "Hans", "Hant", "Jpan", "Thai", "Laoo", "Khmr", "Mymr",
    "Tibt", "Hira",
];

/// Returns true if a part of the language code `language` is in [`UNSPACED`].
fn is_unspaced(language: &str) -> bool {
    language.split(['_', '-']).any(|part| UNSPACED.contains(&part))
}

/// How a text becomes the words of a model; stored in the model's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextSpec {
    /// What happens to white space.
    pub preprocessing: Preprocessing,
    /// Convert texts to lower case.
    pub lowercase: bool,
    /// How a text is split into words; never [`Segmenter::Auto`].
    pub segmenter: Segmenter,
    /// How a text is prepared for scoring: like the samples, or as in FineWeb2-HQ's filter
    /// (newlines are deleted, upper case stays).
    #[serde(default)]
    pub inference: Mode,
    /// Label for which the probability is the score.
    pub positive: String,
}

/// Maximum number of values in the matrix of n-grams: 16 GiB.
const MAX_VALUES: usize = 1 << 32;

/// The table `[heads.NAME.fasttext]` says how texts become words and how a fastText head is
/// trained. If a model file has a card of polysift next to it, the card says how texts become
/// words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct FastTextConfig {
    /// How the white space of a text is changed.
    pub preprocessing: Preprocessing,
    /// Convert texts to lower case.
    #[default = true]
    pub lowercase: bool,
    /// How a text is split into words.
    pub segmenter: Segmenter,
    /// How a text is prepared for scoring: by default like the samples, in published mode as in
    /// FineWeb2-HQ's filter (newlines are deleted, upper case stays).
    pub inference: Mode,
    /// Label whose probability is the score.
    #[default(format!("{LABEL_PREFIX}positive"))]
    pub positive: String,
    /// Label of all other samples.
    #[default(format!("{LABEL_PREFIX}negative"))]
    pub negative: String,
    /// Maximum length of word n-grams (≤ 100). Default: 2; 4 for languages written without spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word_ngrams: Option<usize>,
    /// Passes over the training split.
    #[default = 30]
    pub epochs: usize,
    /// Initial learning rate; it decays linearly to 0.
    #[default = 0.1]
    pub learning_rate: f64,
    /// Dimension of the vectors.
    #[default = 100]
    pub dim: usize,
    /// Number of vectors that all n-grams share, at most 2^30; each takes 4 · `dim` bytes in memory
    /// and in the file, 16 GiB at most. fastText's own default, 2000000, takes 800 MB per language.
    #[default = 200_000]
    pub buckets: usize,
    /// Minimum number of occurrences for a word to have a vector of its own.
    #[default = 1]
    pub min_count: usize,
}

impl FastTextConfig {
    /// Returns how texts in `language` become words.
    pub fn text_spec(&self, language: &str) -> TextSpec {
        let segmenter = match self.segmenter {
            Segmenter::Auto if is_unspaced(language) => Segmenter::Words,
            Segmenter::Auto => Segmenter::None,
            chosen => chosen,
        };
        TextSpec {
            preprocessing: self.preprocessing,
            lowercase: self.lowercase,
            segmenter,
            inference: self.inference,
            positive: self.positive.clone(),
        }
    }

    /// Returns the maximum length of word n-grams in `language`.
    pub fn word_ngrams(&self, language: &str) -> usize {
        self.word_ngrams.unwrap_or(if is_unspaced(language) { 4 } else { 2 })
    }

    /// Checks what the types cannot express; `key` is the key of the table. Labels have the usual
    /// prefix if the head `is_trained`; models that are loaded may have others.
    pub(super) fn check(&self, key: &str, is_trained: bool) -> Result<()> {
        let is_rate = self.learning_rate > 0.0 && self.learning_rate.is_finite();
        let ngrams = self.word_ngrams.unwrap_or(1);
        let values = self.dim.saturating_mul(self.buckets);
        let rules = [
            (is_label(&self.positive, is_trained), "positive", LABEL),
            (!is_trained || is_label(&self.negative, true), "negative", LABEL),
            (!is_trained || self.positive != self.negative, "negative", "is the positive label"),
            ((1..=100).contains(&ngrams), "word_ngrams", "is between 1 and 100"),
            (self.epochs > 0 && self.min_count > 0, "epochs", "and `min_count` are at least 1"),
            (is_rate, "learning_rate", "is a number above 0"),
            ((1..=65_536).contains(&self.dim), "dim", "is between 1 and 65536"),
            ((1..=1 << 30).contains(&self.buckets), "buckets", "is between 1 and 2^30"),
            (values <= MAX_VALUES, "buckets", "times `dim` is at most 2^32, a matrix of 16 GiB"),
        ];
        let broken = rules.into_iter().find(|(is_kept, ..)| !is_kept);
        let Some((_, name, reason)) = broken else { return Ok(()) };
        Err(Error::config(format!("{key}.{name}"), reason))
    }
}

const LABEL: &str = "has to be `__label__` with a name after it, or a label of a model that is \
                     loaded, without white space";

/// Returns true if `label` has a name, behind the usual prefix if it `is_trained`, and neither
/// white space nor NUL.
fn is_label(label: &str, is_trained: bool) -> bool {
    let rest =
        if is_trained { label.strip_prefix(LABEL_PREFIX).unwrap_or_default() } else { label };
    !rest.is_empty() && !label.contains(|c: char| c.is_whitespace() || c == '\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_without_spaces_are_cut_into_words_and_have_longer_ngrams() {
        let config = FastTextConfig::default();
        for (language, segmenter, ngrams) in [
            ("deu_Latn", Segmenter::None, 2),
            ("cmn_Hani", Segmenter::Words, 4),
            ("jpn_Jpan", Segmenter::Words, 4),
            ("th", Segmenter::Words, 4),
            ("_all", Segmenter::None, 2),
        ] {
            assert_eq!(config.text_spec(language).segmenter, segmenter, "{language}");
            assert_eq!(config.word_ngrams(language), ngrams, "{language}");
        }
        let published = FastTextConfig { segmenter: Segmenter::None, ..config };
        assert_eq!(published.text_spec("cmn_Hani").segmenter, Segmenter::None);
    }

    #[test]
    fn what_no_model_can_have_is_refused() {
        let good = FastTextConfig::default();
        assert!(good.check("heads.ft.fasttext", true).is_ok());
        for bad in [
            FastTextConfig { positive: "positive".into(), ..good.clone() },
            FastTextConfig { positive: "__label__a b".into(), ..good.clone() },
            FastTextConfig { negative: good.positive.clone(), ..good.clone() },
            FastTextConfig { word_ngrams: Some(0), ..good.clone() },
            FastTextConfig { epochs: 0, ..good.clone() },
            FastTextConfig { learning_rate: f64::NAN, ..good.clone() },
            FastTextConfig { dim: 0, ..good.clone() },
            FastTextConfig { buckets: usize::MAX, ..good.clone() },
        ] {
            assert!(bad.check("heads.ft.fasttext", true).is_err(), "{bad:?}");
        }
        // A model that is loaded may have been trained with another prefix (`-label`).
        let loaded = FastTextConfig { positive: "#L#2".into(), ..good.clone() };
        assert!(loaded.check("heads.ft.fasttext", false).is_ok());
        let scored_by_negative = FastTextConfig { positive: good.negative.clone(), ..good };
        assert!(scored_by_negative.check("heads.ft.fasttext", false).is_ok());
        assert!(loaded.check("heads.ft.fasttext", true).is_err());
    }
}
