//! `mix.toml`: the sources of a mixture, the amount of each, and how the result is written.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smart_default::SmartDefault;

use polysift_base::error::{Error, Result};
use polysift_config::{
    Budget, DEFAULT_SEED, LANGUAGE_CODE, MAX_DECIMALS, Rate, explain_file_error, is_language_code,
    number_or_text, parse_units,
};

const MOST_EPOCHS: u64 = 1000;

/// These keys stand at the top of `mix.toml`, the settings of `polysift mix`. Paths are relative to
/// the file that names them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct MixConfig {
    /// Total number of tokens, if the sources have shares of it.
    pub tokens: Option<Budget>,
    /// Tokenizer that counts tokens, without special ones: a `tokenizer.json`, a directory with
    /// one, or a hub id. A mixture has one of `tokenizer` and `count`.
    pub tokenizer: Option<String>,
    /// The unit that is counted in place of a tokenizer's tokens.
    pub count: Option<TokenCount>,
    /// Seed of the draw and of the shuffle, below 2^63.
    #[default(DEFAULT_SEED)]
    pub seed: u64,
    /// Maximum number of epochs of a source, or of a language with its own share of a source, at
    /// most 1000. A mixture that needs more is refused.
    #[default(Epochs { units: 4 * Rate::ONE })]
    pub max_epochs: Epochs,
    /// Approximate size of an output file in bytes before compression; one file is held in memory.
    #[default(Budget(1 << 30))]
    pub output_bytes: Budget,
    /// Which columns of the input are written, besides `source` and `copy`.
    pub columns: MixColumns,
    /// Name of the text column.
    #[default = "text"]
    pub text: String,
    /// Name of the id column. Ids decide the draw and the order; in files without the column they
    /// are `FILE/ROW`.
    #[default = "id"]
    pub id: String,
    /// The sources of the mixture.
    #[serde(rename = "source")]
    pub sources: Vec<MixSource>,
}

/// An entry of `[[source]]` is a source of the mixture. It has one of `share`, `tokens` and
/// `epochs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct MixSource {
    /// Name in the column `source`. Default: `source-1`, `source-2` and so on.
    pub name: String,
    /// Files, directories, globs and URLs of the documents. `{lang}` in a pattern stands for the
    /// language.
    pub files: Vec<String>,
    /// Share of the total `tokens`. Then all sources have one, and they add up to 1.
    pub share: Option<Rate>,
    /// Number of tokens of the source.
    pub tokens: Option<Budget>,
    /// Number of passes over the whole source.
    pub epochs: Option<Epochs>,
    /// Copies of a document in one epoch by the value of a column, instead of `copies`. Default:
    /// one.
    pub weight: Option<ValueCopies>,
    /// Copies of a document in one epoch by a column of numbers; null counts as 1. Default: one.
    pub copies: Option<Copies>,
    /// Minimum number of tokens of a document.
    pub min_tokens: Option<u64>,
    /// Documents with this number of tokens or more are left out.
    pub max_tokens: Option<u64>,
    /// Shares of the languages of a source. Languages without a share split the rest in the
    /// proportions that they have. Default: all languages keep their proportions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub languages: BTreeMap<String, Rate>,
    /// Exponent of tokens in the shares of languages, 0 to 1: 1 keeps the proportions, 0 makes all
    /// equal. Default: 1.
    pub temperature: Option<f64>,
}

/// What counts as tokens if there is no tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum TokenCount {
    /// `bytes`: the UTF-8 bytes of the text.
    Bytes,
    /// `column:NAME`: the whole number in this column.
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

/// Which input columns are written, besides `source` and `copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum MixColumns {
    /// Columns that all files have.
    #[default]
    Common,
    /// Columns of any file, with null where a file lacks one.
    Union,
}

/// The table `[source.weight]` gives the copies of a document in one epoch by the value of a
/// column, such as `quality_retention`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueCopies {
    /// Column with the value.
    pub column: String,
    /// Copies for each value of the column; numbers are compared as numbers, and a value that is
    /// missing here is an error.
    pub values: BTreeMap<String, u32>,
}

/// Copies of a document by a column of numbers; null counts as 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "needs a column in quotes, or { by = \"...\", weights = \"...\" }"
)]
pub enum Copies {
    /// `"copies"`: the column with this name holds the number of copies.
    Column(String),
    /// `{ by = "minhash_cluster_size", weights = "card" }`: copies depend on the size of the
    /// cluster of duplicates that a document stands for.
    ClusterSize {
        /// Column with the cluster size.
        by: String,
        /// `card` for the weights of FineWeb-2's card, or a JSON file of copies by minimum size.
        weights: String,
    },
}

/// A number of epochs above 0, exact: 2.37 epochs of 1000 tokens are 2370 tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epochs {
    /// The number in units of 10^-[`MAX_DECIMALS`].
    units: u64,
}

impl Epochs {
    /// Returns ceil(epochs · `total`), computed exactly.
    pub fn ceil_of(self, total: u64) -> u128 {
        (u128::from(self.units) * u128::from(total)).div_ceil(u128::from(Rate::ONE))
    }

    /// Returns the nearest f64. Printed in the shortest form, it shows the number that was parsed.
    fn as_f64(self) -> f64 {
        self.units as f64 / Rate::ONE as f64
    }
}

impl FromStr for Epochs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a number of epochs below 18 million, such as 2.37");
        let units = parse_units(text, MAX_DECIMALS).filter(|units| *units > 0);
        let units = units.filter(|_| !text.starts_with('.'));
        units.map(|units| Self { units }).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Epochs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_or_text(deserializer, "a number of epochs, such as 2.37,")
    }
}

impl std::fmt::Display for Epochs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_f64().fmt(f)
    }
}

impl Serialize for Epochs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

impl MixConfig {
    /// Parses and checks `mix.toml`; `origin` names it in errors.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self> {
        let mut config: Self =
            toml::from_str(text).map_err(|e| Error::config(origin, explain_file_error(&e)))?;
        for (place, source) in config.sources.iter_mut().enumerate() {
            if source.name.is_empty() {
                source.name = format!("source-{}", place + 1);
            }
        }
        config.check()?;
        Ok(config)
    }

    /// Checks each source, and that their amounts go together.
    fn check(&self) -> Result<()> {
        if self.tokenizer.is_some() == self.count.is_some() {
            let reason = "one of `tokenizer` and `count` has to say what counts as tokens";
            return Err(Error::config("tokenizer", reason));
        }
        if self.max_epochs.ceil_of(1) > u128::from(MOST_EPOCHS) {
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
                return Err(source.wrong("name", "is the name of another source"));
            }
        }
        let shares: Vec<Rate> = self.sources.iter().filter_map(|source| source.share).collect();
        let sum = sum_units(&shares);
        let (key, reason) = match (shares.len(), self.tokens) {
            (0, None) => return Ok(()),
            (0, Some(_)) => ("tokens", "is for shares; the sources have no `share`".to_owned()),
            (_, None) => ("tokens", "is missing; a `share` is a part of it".to_owned()),
            (some, _) if some < self.sources.len() => {
                ("source", "either all sources have a `share`, or none".to_owned())
            }
            _ if sum == Rate::ONE => return Ok(()),
            _ => {
                ("source.share", format!("adds up to {}, not to 1", sum as f64 / Rate::ONE as f64))
            }
        };
        Err(Error::config(key, reason))
    }
}

/// Returns the sum of `rates` in units of 10^-[`MAX_DECIMALS`], at most `u64::MAX`.
fn sum_units<'r>(rates: impl IntoIterator<Item = &'r Rate>) -> u64 {
    rates.into_iter().map(|rate| rate.units()).fold(0, u64::saturating_add)
}

impl MixSource {
    /// Returns [`Error::Config`] about `key`.
    pub fn wrong(&self, key: &str, reason: impl Into<String>) -> Error {
        Error::config(format!("source `{}`: {key}", self.name), reason)
    }

    /// Returns the share of the languages that [`MixSource::languages`] does not name.
    pub fn share_left(&self) -> Option<Rate> {
        Rate::of_units(Rate::ONE.saturating_sub(sum_units(self.languages.values())))
    }

    /// Checks this source alone.
    fn check(&self) -> Result<()> {
        let amounts = [self.share.is_some(), self.tokens.is_some(), self.epochs.is_some()];
        if let Some(code) = self.languages.keys().find(|code| !is_language_code(code)) {
            let reason = format!("`{code}` is not {LANGUAGE_CODE}");
            return Err(self.wrong("languages", reason));
        }
        if let Some(power) = self.temperature.filter(|power| !(0.0..=1.0).contains(power)) {
            return Err(self.wrong("temperature", format!("is {power}; 0 to 1 are allowed")));
        }
        let (key, reason) = if self.files.is_empty() {
            ("files", "is missing")
        } else if amounts.iter().filter(|is_set| **is_set).count() != 1 {
            ("share", "one of `share`, `tokens` and `epochs` is needed")
        } else if self.weight.is_some() && self.copies.is_some() {
            ("weight", "does not go with `copies`")
        } else if self.min_tokens.unwrap_or(0) >= self.max_tokens.unwrap_or(u64::MAX) {
            ("max_tokens", "has to be above `min_tokens`")
        } else if sum_units(self.languages.values()) > Rate::ONE {
            ("languages", "the shares add up to more than 1")
        } else if self.temperature.is_some() && !self.languages.is_empty() {
            ("temperature", "does not go with `languages`")
        } else {
            return Ok(());
        };
        Err(self.wrong(key, reason))
    }
}
