//! `mix.toml`: the sources of a mixture, how much of each, and how the result is written.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use super::{Budget, DEFAULT_SEED, Rate, is_language_code, words};
use polysift_base::error::{Error, Result};

/// [`MixConfig::max_epochs`].
const DEFAULT_MAX_EPOCHS: Epochs = Epochs { whole: 4, rest: None };
/// [`MixConfig::output_bytes`].
const DEFAULT_OUTPUT_BYTES: Budget = Budget(1 << 30);

/// Most that [`MixConfig::max_epochs`] can be.
const MOST_EPOCHS: u64 = 1000;

/// The settings of `polysift mix`. Paths are relative to the file that names them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// Tokens of the whole, of which sources have shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Budget>,
    /// Counts tokens: a `tokenizer.json`, a directory with one, or an id of the hub. No special tokens are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// What counts as tokens in its place: `bytes` of text, or `column:NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<TokenCount>,
    /// Another one draws and shuffles otherwise.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Most epochs of a source, or of a language of it that has its own amount.
    #[serde(default = "default_max_epochs")]
    pub max_epochs: Epochs,
    /// About how many bytes, before compression, an output file holds; as many are held in memory.
    #[serde(default = "default_output_bytes")]
    pub output_bytes: Budget,
    /// Which columns are written.
    #[serde(default)]
    pub columns: MixColumns,
    /// Column of the text.
    #[serde(default = "default_text")]
    pub text: String,
    /// Column of the id, by which documents are drawn and shuffled; where a file has none, ids are `<file>/<row>`.
    #[serde(default = "default_id")]
    pub id: String,
    /// What is mixed.
    #[serde(rename = "source")]
    pub sources: Vec<MixSource>,
}

fn default_seed() -> u64 {
    DEFAULT_SEED
}

fn default_max_epochs() -> Epochs {
    DEFAULT_MAX_EPOCHS
}

fn default_output_bytes() -> Budget {
    DEFAULT_OUTPUT_BYTES
}

fn default_text() -> String {
    "text".to_owned()
}

fn default_id() -> String {
    "id".to_owned()
}

/// `[[source]]`: documents that have an amount together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct MixSource {
    /// Its name in the column `source`; by default `source-1`, `source-2` and so on.
    pub name: String,
    /// Files, directories and globs; `{lang}` in a pattern names the language.
    pub files: Vec<String>,
    /// Share of [`MixConfig::tokens`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Rate>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Budget>,
    /// How often all of it is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<Epochs>,
    /// Copies of a document in one epoch, by the value of a column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<ValueCopies>,
    /// Copies of a document in one epoch, by a column of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<Copies>,
    /// Fewest tokens of a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<u64>,
    /// Documents have fewer tokens than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Shares of languages; those without one keep their proportions in what is left.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub languages: BTreeMap<String, Rate>,
    /// Languages have shares as their tokens to this power: 1 keeps proportions, 0 makes all alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// What counts as tokens, if not those of a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum TokenCount {
    /// UTF-8 bytes of the text.
    Bytes,
    /// The whole number in this column.
    Column(String),
}

impl TryFrom<String> for TokenCount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.strip_prefix("column:") {
            _ if text == "bytes" => Ok(Self::Bytes),
            Some(name) if !name.is_empty() => Ok(Self::Column(name.to_owned())),
            _ => Err(format!("`{text}` is not a way to count; `bytes` or `column:NAME` is needed")),
        }
    }
}

impl Serialize for TokenCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bytes => serializer.serialize_str("bytes"),
            Self::Column(name) => serializer.collect_str(&format_args!("column:{name}")),
        }
    }
}

/// Which columns are written, beside `source` and `copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum MixColumns {
    /// Those that all files have.
    #[default]
    Common,
    /// All, null where a file has none.
    Union,
}

/// Copies by the value of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueCopies {
    /// The column.
    pub column: String,
    /// Copies by value; numbers are compared as numbers.
    pub values: BTreeMap<String, u32>,
}

/// Copies by a column of numbers; a document with null counts once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "needs a column in quotes, or { by = \"...\", weights = \"...\" }"
)]
pub enum Copies {
    /// The column holds them.
    Column(String),
    /// By the size of the cluster of duplicates that a document stands for.
    ClusterSize {
        /// Column of the size.
        by: String,
        /// `card` for the weights of FineWeb-2's card, or a JSON file of copies by least size.
        weights: String,
    },
}

/// A number of epochs above 0, exact: 2.37 of 1000 tokens are 2370.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Epochs {
    whole: u64,
    rest: Option<Rate>,
}

impl Epochs {
    /// ceil(epochs · `total`), exactly.
    pub fn ceil_of(self, total: u64) -> u128 {
        let rest = self.rest.map_or(0, |rest| rest.ceil_of(total));
        u128::from(self.whole) * u128::from(total) + u128::from(rest)
    }

    fn as_f64(self) -> f64 {
        self.whole as f64 + self.rest.map_or(0.0, Rate::as_f64)
    }
}

impl FromStr for Epochs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a number of epochs, such as 2.37");
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let whole = whole.parse().map_err(|_| wrong())?;
        let has_rest = decimals.bytes().any(|byte| byte != b'0');
        let rest = has_rest.then(|| format!("0.{decimals}").parse()).transpose();
        let epochs = Self { whole, rest: rest.map_err(|_: String| wrong())? };
        if epochs.whole == 0 && !has_rest { Err(wrong()) } else { Ok(epochs) }
    }
}

impl TryFrom<f64> for Epochs {
    type Error = String;

    // The shortest decimal that reads back as `value` is what the user wrote.
    fn try_from(value: f64) -> Result<Self, String> {
        format!("{value}").parse()
    }
}

impl Serialize for Epochs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl std::fmt::Display for Epochs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_f64().fmt(f)
    }
}

impl MixConfig {
    /// Parses `mix.toml`; `origin` names it in errors.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn from_toml(text: &str, origin: &str) -> Result<Self> {
        let mut config: Self =
            toml::from_str(text).map_err(|e| Error::config(origin, words::of_file(&e)))?;
        for (place, source) in config.sources.iter_mut().enumerate() {
            if source.name.is_empty() {
                source.name = format!("source-{}", place + 1);
            }
        }
        config.check()?;
        Ok(config)
    }

    /// Tokens that are asked for, where that is known before any are counted.
    pub fn total(&self) -> Option<u128> {
        let own = || self.sources.iter().map(|source| source.tokens.map(|own| u128::from(own.0)));
        self.tokens.map(|all| u128::from(all.0)).or_else(|| own().sum())
    }

    fn check(&self) -> Result<()> {
        if self.tokenizer.is_some() == self.count.is_some() {
            let reason = "one of `tokenizer` and `count` has to say what counts as tokens";
            return Err(Error::config("tokenizer", reason));
        }
        if self.max_epochs.whole > MOST_EPOCHS {
            let reason = format!("is {}; at most {MOST_EPOCHS} are allowed", self.max_epochs);
            return Err(Error::config("max_epochs", reason));
        }
        if self.sources.is_empty() {
            return Err(Error::config("source", "there is none"));
        }
        let mut names = BTreeSet::new();
        for source in &self.sources {
            source.check()?;
            if !names.insert(&source.name) {
                return Err(source.wrong("name", "is that of another source"));
            }
        }
        let shares: Vec<Rate> = self.sources.iter().filter_map(|source| source.share).collect();
        match (shares.len(), self.tokens) {
            (0, None) => return Ok(()),
            (0, Some(_)) => {
                return Err(Error::config(
                    "tokens",
                    "is of the whole; sources have no `share` of it",
                ));
            }
            (_, None) => {
                return Err(Error::config("tokens", "is missing; sources have a `share` of it"));
            }
            (some, _) if some < self.sources.len() => {
                return Err(Error::config("source", "either all sources have a `share`, or none"));
            }
            _ => {}
        }
        let sum = sum(&shares);
        if sum == WHOLE {
            return Ok(());
        }
        let reason = format!("adds up to {}, not to 1", sum as f64 / WHOLE as f64);
        Err(Error::config("source.share", reason))
    }
}

/// The unit that shares are added up in: every [`Rate`] is a whole number of its parts.
const WHOLE: u64 = 10u64.pow(12);

fn sum<'r>(rates: impl IntoIterator<Item = &'r Rate>) -> u64 {
    rates.into_iter().map(|rate| rate.ceil_of(WHOLE)).fold(0, u64::saturating_add)
}

impl MixSource {
    /// [`Error::Config`] about `key`.
    pub fn wrong(&self, key: &str, reason: impl Into<String>) -> Error {
        Error::config(format!("source `{}`: {key}", self.name), reason)
    }

    /// Share of the languages that [`MixSource::languages`] does not name.
    pub fn share_left(&self) -> Option<Rate> {
        // Nothing is left where they add up to 1.
        let left = WHOLE.checked_sub(sum(self.languages.values())).filter(|left| *left > 0)?;
        format!("{}.{:012}", left / WHOLE, left % WHOLE).parse().ok()
    }

    fn check(&self) -> Result<()> {
        if self.files.is_empty() {
            return Err(self.wrong("files", "is missing"));
        }
        let amounts = [self.share.is_some(), self.tokens.is_some(), self.epochs.is_some()];
        if amounts.iter().filter(|is_set| **is_set).count() != 1 {
            return Err(self.wrong("share", "one of `share`, `tokens` and `epochs` is needed"));
        }
        if self.weight.is_some() && self.copies.is_some() {
            return Err(self.wrong("weight", "does not go with `copies`"));
        }
        if self.min_tokens.unwrap_or(0) >= self.max_tokens.unwrap_or(u64::MAX) {
            return Err(self.wrong("max_tokens", "has to be above `min_tokens`"));
        }
        if let Some(code) = self.languages.keys().find(|code| !is_language_code(code)) {
            let reason = format!("`{code}` is not {}", super::LANGUAGE_CODE);
            return Err(self.wrong("languages", reason));
        }
        if sum(self.languages.values()) > WHOLE {
            return Err(self.wrong("languages", "the shares add up to more than 1"));
        }
        match self.temperature {
            Some(_) if !self.languages.is_empty() => {
                Err(self.wrong("temperature", "does not go with `languages`"))
            }
            Some(power) if !(0.0..=1.0).contains(&power) => {
                Err(self.wrong("temperature", format!("is {power}; 0 to 1 are allowed")))
            }
            _ => Ok(()),
        }
    }
}
