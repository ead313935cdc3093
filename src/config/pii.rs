//! `[pii]`: redaction of personal data in exported texts.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use polysift_base::error::{Error, Result};
use polysift_text::pii::{IpScope, Markers, PiiKind, PiiMode, PiiOptions, Placeholders};

/// What the audit records about the personal data that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum PiiAudit {
    /// Only counts.
    None,
    /// Counts and positions, without the data itself.
    #[default]
    Spans,
    /// Counts, positions and the data itself. The audit then is a list of addresses.
    Values,
}

/// The table `[pii]` replaces personal data in exported texts. Without this table texts are
/// exported unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct PiiConfig {
    /// Method that finds and replaces personal data.
    pub mode: PiiMode,
    /// Kinds of personal data to redact.
    #[default(PiiOptions::default().kinds)]
    pub kinds: Vec<PiiKind>,
    /// Which IP addresses are redacted.
    pub ip: IpScope,
    /// Treatment of the placeholder addresses that FineWeb put in place of real ones.
    pub placeholders: Placeholders,
    /// The table `[pii.markers]` holds the texts that replace personal data, by its kind.
    pub markers: Markers,
    /// Globs of input files whose texts stay unchanged: much in code and mathematics looks like an
    /// address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Content of the folder `audit` of the run directory: facts about the personal data found.
    pub audit: PiiAudit,
}

impl PiiConfig {
    /// Returns the options of the redactor.
    pub fn options(&self) -> PiiOptions {
        let Self { mode, ip, placeholders, .. } = *self;
        let (kinds, markers) = (self.kinds.clone(), self.markers.clone());
        PiiOptions { mode, kinds, ip, placeholders, markers }
    }

    /// Returns the patterns of [`PiiConfig::except`]; [`Error::Config`] if one is malformed.
    pub fn exceptions(&self) -> Result<Vec<glob::Pattern>> {
        let parse = |pattern: &String| {
            glob::Pattern::new(pattern).map_err(|e| Error::config("pii.except", e.to_string()))
        };
        self.except.iter().map(parse).collect()
    }

    /// Checks what the types cannot express.
    pub fn check(&self) -> Result<()> {
        if self.kinds.is_empty() {
            return Err(Error::config("pii.kinds", "is empty; leave `[pii]` out instead"));
        }
        if self.mode == PiiMode::Datatrove && self.kinds == [PiiKind::Iban] {
            return Err(Error::config(
                "pii.kinds",
                "has only `iban`, which this mode does not find",
            ));
        }
        self.exceptions().map(drop)
    }
}
