//! `[languages]` and `[selection]`: what is kept and removed, and in which unit.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::{Budget, Mode, Rate, amounts};

/// Margin around a threshold, as a multiple of the largest score difference in the sample.
pub const REFINE_SAFETY: f64 = 2.0;
/// One in this many documents of a language is sampled.
pub const REFINE_SAMPLE_EVERY: u64 = 100;
/// Minimum number of sampled documents per language (all of them if there are fewer).
pub const REFINE_MIN_SAMPLE: u64 = 64;
/// Maximum number of sampled documents per language.
pub const REFINE_MAX_SAMPLE: u64 = 4096;
/// Divisor of the sample sizes above if some risk is accepted.
pub const REFINE_RISK_DIVISOR: u64 = 4;
/// Default of [`SelectionConfig::refine_risk`].
const REFINE_RISK: f64 = 1e-4;

/// A table `[languages.LANGUAGE]` says what is kept and removed in a language. `_default` in place
/// of a code stands for the languages that do not set a key themselves, and `_unscored` replaces
/// `_default` in languages without a head to select by. Each key holds a table from the names of
/// heads to values, as in `retention = { quality = 0.1 }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageConfig {
    /// Rates of documents to keep: those with the best scores of this head, exactly ⌈rate · n⌉ of n
    /// scored documents. A single rate may stand for a list of one.
    #[serde(deserialize_with = "amounts::rates_by_head")]
    pub retention: Option<BTreeMap<String, Vec<Rate>>>,
    /// Rate of documents to remove: those with the worst scores of this head, exactly ⌈rate · n⌉.
    pub removal: Option<BTreeMap<String, Rate>>,
    /// Threshold on the score of this head itself, instead of a rate.
    pub threshold: Option<BTreeMap<String, FixedThreshold>>,
    /// Amount to keep of the documents with the best scores of this head, in the unit of
    /// `selection.weight`.
    pub budget: Option<BTreeMap<String, Budget>>,
}

/// A threshold on the score itself. Scores are f32, so the threshold is rounded to the nearest f32.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "a number, `{ at_least = ... }` or `{ at_most = ... }` is needed"
)]
pub enum FixedThreshold {
    /// `0.5`: keeps documents strictly above the score, or strictly below it if the head keeps low
    /// scores.
    Beyond(f64),
    /// `{ at_least = 0.5 }`: keeps documents at or above the score, for heads that keep high
    /// scores.
    AtLeast {
        /// The score.
        at_least: f64,
    },
    /// `{ at_most = 0.5 }`: keeps documents at or below the score, for heads that keep low scores.
    AtMost {
        /// The score.
        at_most: f64,
    },
}

impl FixedThreshold {
    /// Returns the score at the boundary.
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

/// Unit of rates and budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// Documents.
    #[default]
    Documents,
    /// UTF-8 bytes of text.
    Bytes,
    /// Content tokens of the encoder's tokenizer; `embed` has to count them.
    Tokens,
}

/// The table `[selection]` says how the scores become a selection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct SelectionConfig {
    /// Names of the heads in the order of their thresholds. A threshold applies to the documents
    /// that earlier ones leave; a retention's rate refers to all scored documents. Default:
    /// removals, then fixed thresholds, then retentions and budgets, then random heads.
    pub order: Vec<String>,
    /// The unit that rates and budgets count.
    pub weight: Weight,
    /// How thresholds are found: exactly, or as the published code does.
    pub mode: Mode,
    /// Embed and score the documents near a threshold again in f32 (after fp8 in bf16), so that the
    /// selection is what that precision would select from the whole corpus.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refine: bool,
    /// Expected number of documents that are selected wrongly after `refine`, as a share (below 1)
    /// of the documents on the smaller side of a threshold. With 0, margins are twice the largest
    /// difference seen, and no wrong document is expected.
    #[serde(skip_serializing_if = "is_default_risk")]
    #[default(REFINE_RISK)]
    pub refine_risk: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_default_risk(risk: &f64) -> bool {
    risk.to_bits() == REFINE_RISK.to_bits()
}

/// The thresholds of one language after `_default` or `_unscored` has been applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct LanguageThresholds {
    /// See [`LanguageConfig::retention`]; rates are ascending.
    pub retention: BTreeMap<String, Vec<Rate>>,
    /// See [`LanguageConfig::removal`].
    pub removal: BTreeMap<String, Rate>,
    /// See [`LanguageConfig::threshold`].
    pub threshold: BTreeMap<String, FixedThreshold>,
    /// See [`LanguageConfig::budget`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub budget: BTreeMap<String, Budget>,
}
