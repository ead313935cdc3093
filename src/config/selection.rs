//! `[languages]` and `[selection]`: what is kept and removed, and how it is counted.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::{Budget, Mode, Rate, rate};

/// Margin of a threshold by the largest difference that was seen.
pub const REFINE_SAFETY: f64 = 2.0;
/// One in this many documents of a language is sampled.
pub const REFINE_SAMPLE_EVERY: u64 = 100;
/// Fewest documents that are sampled of a language that has them.
pub const REFINE_MIN_SAMPLE: u64 = 64;
/// Most documents that are sampled of a language.
pub const REFINE_MAX_SAMPLE: u64 = 4096;

/// `[languages.<code>]`; maps are from head name to value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageConfig {
    /// Rates of documents to keep by that head's score, best first: exactly ceil(rate · n). A rate
    /// alone may stand for a list of one.
    #[serde(deserialize_with = "rate::by_head", skip_serializing_if = "Option::is_none")]
    pub retention: Option<BTreeMap<String, Vec<Rate>>>,
    /// Rate of documents to remove by that head's score, worst first: exactly ceil(rate · n).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<BTreeMap<String, Rate>>,
    /// Fixed thresholds on the score, instead of a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<BTreeMap<String, FixedThreshold>>,
    /// How much to keep by that head's score, best first, until they weigh as much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BTreeMap<String, Budget>>,
}

/// A threshold on the score itself. Scores have 32 bits, and are compared with the nearest number of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a number, `{ at_least = ... }` or `{ at_most = ... }` is needed"
)]
pub enum FixedThreshold {
    /// Kept is what is strictly above, or below for a head that keeps low scores.
    Beyond(f64),
    /// Kept is this and what is above; of a head that keeps high scores.
    AtLeast {
        /// The score.
        at_least: f64,
    },
    /// Kept is this and what is below; of a head that keeps low scores.
    AtMost {
        /// The score.
        at_most: f64,
    },
}

impl FixedThreshold {
    /// The score at the boundary.
    pub fn score(self) -> f64 {
        match self {
            Self::Beyond(score)
            | Self::AtLeast { at_least: score }
            | Self::AtMost { at_most: score } => score,
        }
    }
}

impl fmt::Display for FixedThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond(score) => write!(f, "{score}"),
            Self::AtLeast { at_least } => write!(f, "at least {at_least}"),
            Self::AtMost { at_most } => write!(f, "at most {at_most}"),
        }
    }
}

/// What rates and budgets count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Documents.
    #[default]
    Documents,
    /// UTF-8 bytes of text.
    Bytes,
    /// Content tokens of the encoder's tokenizer.
    Tokens,
}

/// `[selection]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct SelectionConfig {
    /// Heads in the order of their thresholds, each made among the survivors of those before it;
    /// empty: removals first, then fixed thresholds, then retentions and budgets, random heads last. A retention's rate is
    /// always of all scored documents of the language, so that the rate asked for is the rate got.
    pub order: Vec<String>,
    /// What rates and budgets count.
    pub weight: Weight,
    /// How thresholds are found.
    pub mode: Mode,
    /// Score the documents near the thresholds again with embeddings in f32, so that the selection is the
    /// one that f32 would make of the whole corpus (see `polysift_stages::stage::refine`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refine: bool,
}

/// The thresholds of one language after `_default` or `_unscored` was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct LanguageThresholds {
    /// See [`LanguageConfig::retention`]; rates ascending.
    pub retention: BTreeMap<String, Vec<Rate>>,
    /// See [`LanguageConfig::removal`].
    pub removal: BTreeMap<String, Rate>,
    /// See [`LanguageConfig::threshold`].
    pub threshold: BTreeMap<String, FixedThreshold>,
    /// See [`LanguageConfig::budget`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub budget: BTreeMap<String, Budget>,
}
