//! `[cascade]`: a cheap first pass that drops documents which the full run would not keep.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::amounts::as_text;
use super::{Mode, NO_MODEL, RunConfig, Weight};
use polysift_base::error::{Error, Result};

/// The model of the first pass, which scores every document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum FirstPass {
    /// `auto`: for each language, the candidate with the lowest total cost on a pilot sample.
    #[default]
    Auto,
    /// `bundled`: a ridge head on embeddings of the bundled encoder, on the device of the run.
    Bundled,
    /// `prefix:N`: the run's heads on embeddings of the first N tokens (8 to 4096, `<s>` and `</s>`
    /// included), and a ridge head trained on what they miss.
    Prefix(usize),
}

impl fmt::Display for FirstPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bundled => f.write_str("bundled"),
            Self::Prefix(tokens) => write!(f, "prefix:{tokens}"),
        }
    }
}

impl FromStr for FirstPass {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match (text, text.strip_prefix("prefix:").map(str::parse)) {
            ("auto", _) => Ok(Self::Auto),
            ("bundled", _) => Ok(Self::Bundled),
            (_, Some(Ok(tokens @ 8..=4096))) => Ok(Self::Prefix(tokens)),
            _ => Err(format!(
                "`{text}` is no first pass; there are auto, bundled and prefix:N, N from 8 to 4096 \
                 tokens"
            )),
        }
    }
}

as_text!(FirstPass);

/// The table `[cascade]` adds a cheap first pass, which drops documents that the full run would not
/// keep. Without this table every document is encoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct CascadeConfig {
    /// Minimum recall: of the documents that the full run would keep, the share that the cascade
    /// keeps too, for each head, rate and language.
    #[default = 0.995]
    pub recall: f64,
    /// Probability with which `recall` is reached, above 0.5 and below 1.
    #[default = 0.99]
    pub confidence: f64,
    /// Model of the first pass, which scores every document.
    pub first_pass: FirstPass,
    /// Share of the dropped documents that are encoded anyway, to measure the recall; rounded to
    /// one in a whole number (0.4 is one in 3).
    #[default = 0.02]
    pub audit: f64,
    /// Encode more documents if the audit does not prove the recall, until it does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repair: bool,
}

impl CascadeConfig {
    /// Returns 1 − [`CascadeConfig::confidence`].
    pub fn risk(&self) -> f64 {
        1.0 - self.confidence
    }

    /// Returns n if one in n dropped documents is encoded anyway.
    pub fn audit_every(&self) -> u64 {
        (1.0 / self.audit).round() as u64
    }

    /// Checks the ranges, and that `config` allows a cascade.
    pub(super) fn check(&self, config: &RunConfig) -> Result<()> {
        for (key, value, least) in
            [("cascade.recall", self.recall, 0.0), ("cascade.confidence", self.confidence, 0.5)]
        {
            if !(value > least && value < 1.0) {
                let reason = format!("is {value}; a number above {least} and below 1 is needed");
                return Err(Error::config(key, reason));
            }
        }
        if !(self.audit > 1e-6 && self.audit <= 1.0) {
            let reason =
                format!("is {}; a share above 0.000001 and at most 1 is needed", self.audit);
            return Err(Error::config("cascade.audit", reason));
        }
        let has_budget = config.languages.values().any(|language| language.budget.is_some());
        let reason = if config.input.embeddings.is_some() {
            "has nothing to save: the input brings its embeddings"
        } else if config.encoder.model == NO_MODEL {
            "has nothing to save: there is no encoder"
        } else if config.selection.mode == Mode::Published {
            "does not go with the mode `published`, which takes its thresholds from the first rows"
        } else if config.input.language.is_by_document() {
            "needs the language of every file; here each document has its own (`input.language`)"
        } else if has_budget {
            "does not go with a budget: no sample tells how many documents meet it; use rates"
        } else if config.selection.weight != Weight::Documents {
            "promises a share of the documents; leave `selection.weight` at `documents`"
        } else {
            return Ok(());
        };
        Err(Error::config("cascade", reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_passes_read_back_as_they_are_written_and_others_are_refused_with_all_names() {
        for text in ["auto", "bundled", "prefix:128"] {
            assert_eq!(text.parse::<FirstPass>().map(|pass| pass.to_string()), Ok(text.to_owned()));
        }
        for text in ["prefix", "prefix:7", "prefix:x", "", "Bundled"] {
            let refused = text.parse::<FirstPass>();
            assert!(refused.is_err_and(|reason| reason.contains("prefix:N")), "{text}");
        }
    }

    #[test]
    fn a_cascade_is_refused_where_it_can_promise_nothing() {
        for (settings, key) in [
            ("[cascade]\nrecall = 1.0", "cascade.recall"),
            ("[cascade]\nconfidence = 0.4", "cascade.confidence"),
            ("[cascade]\naudit = 0.0", "cascade.audit"),
            ("encoder = { model = 'none' }\n[cascade]", "cascade"),
            ("selection = { mode = 'published' }\n[cascade]", "cascade"),
            ("input = { language = { column = 'l' } }\n[cascade]", "cascade"),
            ("heads.q.path = 'q'\nlanguages._default.budget = { q = '1M' }\n[cascade]", "cascade"),
            ("selection = { weight = 'bytes' }\n[cascade]", "cascade"),
        ] {
            let refused = RunConfig::from_toml(settings, "run.toml").map_err(|e| e.to_string());
            assert!(
                refused.as_ref().is_err_and(|e| e.starts_with(&format!("{key}: "))),
                "{refused:?}"
            );
        }
        assert!(RunConfig::from_toml("[cascade]", "run.toml").is_ok());
    }
}
