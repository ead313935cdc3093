//! `[pii]`: personal data in exported texts.

use serde::{Deserialize, Serialize};

use polysift_base::error::{Error, Result};
use polysift_text::pii::{IpScope, Markers, PiiKind, PiiMode, PiiOptions, Placeholders};

/// What is noted of the personal data that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum PiiAudit {
    /// Counts alone.
    None,
    /// Where it stood, without the data itself.
    #[default]
    Spans,
    /// That, and the data itself: the audit is then a list of addresses.
    Values,
}

/// `[pii]`; without this table texts are exported as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PiiConfig {
    /// How it is found and replaced.
    pub mode: PiiMode,
    /// What is looked for.
    pub kinds: Vec<PiiKind>,
    /// Which IP addresses are meant.
    pub ip: IpScope,
    /// What becomes of the values that FineWeb has in place of real ones.
    pub placeholders: Placeholders,
    /// What stands for what is found.
    pub markers: Markers,
    /// Globs of input files whose texts stay as they are, as code and mathematics, in which much looks like an
    /// address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// What is noted beside the export.
    pub audit: PiiAudit,
}

impl Default for PiiConfig {
    fn default() -> Self {
        let PiiOptions { mode, kinds, ip, placeholders, markers } = PiiOptions::default();
        let (except, audit) = (Vec::new(), PiiAudit::default());
        Self { mode, kinds, ip, placeholders, markers, except, audit }
    }
}

impl PiiConfig {
    /// What finds and replaces it.
    pub fn options(&self) -> PiiOptions {
        let Self { mode, ip, placeholders, .. } = *self;
        let (kinds, markers) = (self.kinds.clone(), self.markers.clone());
        PiiOptions { mode, kinds, ip, placeholders, markers }
    }

    /// The patterns of [`PiiConfig::except`].
    ///
    /// # Errors
    /// [`Error::Config`] for one that is malformed.
    pub fn exceptions(&self) -> Result<Vec<glob::Pattern>> {
        let parse = |pattern: &String| {
            glob::Pattern::new(pattern).map_err(|e| Error::config("pii.except", e.to_string()))
        };
        self.except.iter().map(parse).collect()
    }

    /// Checks what the types cannot.
    pub fn check(&self) -> Result<()> {
        if self.kinds.is_empty() {
            return Err(Error::config("pii.kinds", "is empty; leave `[pii]` out instead"));
        }
        self.exceptions().map(drop)
    }
}
