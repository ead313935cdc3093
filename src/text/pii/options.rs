//! `[pii]`: what to find in exported texts and how to replace it.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::span::PiiKind;
use polysift_base::error::{Error, Result};

/// Selects the IP addresses to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpScope {
    /// Addresses that Python's `ipaddress` calls global. The default mode leaves out multicast, and
    /// IPv6 outside of 2000::/3.
    #[default]
    Public,
    /// All addresses.
    All,
}

/// Mode of finding and replacing personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PiiMode {
    /// Finds addresses by their definition and replaces each once, from left to right, by a marker.
    #[default]
    Default,
    /// Follows Apertus' published formatter: replaces every distinct match wherever its characters
    /// occur, in order of discovery. Like the formatter, it ignores which addresses are public.
    Apertus,
    /// Follows datatrove's formatter, which made FineWeb: inserts FineWeb's values in turn, and
    /// finds no IBANs. The turn restarts with every text; datatrove's continues.
    Datatrove,
}

/// Treatment of FineWeb's own values in the default mode; other modes take them for addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placeholders {
    /// Replaces them by markers.
    #[default]
    Replace,
    /// Keeps them.
    Keep,
}

/// Markers that replace personal data, by kind; the defaults are those of Apertus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(default, deny_unknown_fields)]
pub struct Markers {
    /// Marker of an e-mail address.
    #[default = "<email-pii>"]
    pub email: String,
    /// Marker of an IP address.
    #[default = "<ip-pii>"]
    pub ip: String,
    /// Marker of an IBAN.
    #[default = "<iban-pii>"]
    pub iban: String,
}

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
    #[default(PiiKind::ALL.to_vec())]
    pub kinds: Vec<PiiKind>,
    /// Which IP addresses are redacted. Not for the mode `apertus`, which ignores the default.
    pub ip: IpScope,
    /// Treatment of the placeholder addresses that FineWeb put in place of real ones. Only for the
    /// mode `default`; the other modes ignore the default.
    pub placeholders: Placeholders,
    /// The table `[pii.markers]` holds the texts that replace personal data, by its kind. Not for the
    /// mode `datatrove`, which ignores the defaults.
    pub markers: Markers,
    /// Globs of shards or input files whose texts stay unchanged: much in code and mathematics looks
    /// like an address. A run keeps absolute globs; what is behind `/./` in them also names shards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Content of the folder `audit` of the run directory: facts about the personal data found.
    pub audit: PiiAudit,
}

impl PiiConfig {
    /// Returns the patterns of [`PiiConfig::except`], and for a glob with `/./` also the part
    /// behind it; [`Error::Config`] if one is malformed.
    pub fn exceptions(&self) -> Result<Vec<glob::Pattern>> {
        let parse = |glob: String| {
            let wrong = |e| Error::config("pii.except", format!("`{glob}`: {e}"));
            glob::Pattern::new(&glob).map_err(wrong)
        };
        let globs = self.except.iter().flat_map(|glob| {
            let behind = glob.split_once("/./").map(|(_, behind)| behind.to_owned());
            behind.into_iter().chain([glob.replacen("/./", "/", 1)])
        });
        globs.map(parse).collect()
    }

    /// Checks that the mode finds a kind and uses every setting, and that globs are valid.
    pub fn check(&self) -> Result<()> {
        if self.kinds.is_empty() {
            return Err(Error::config("pii.kinds", "is empty; leave `[pii]` out instead"));
        }
        let (mode, default) = (self.mode, Self::default());
        let unused = match mode {
            PiiMode::Apertus if self.ip != default.ip => Some("ip"),
            PiiMode::Datatrove if self.markers != default.markers => Some("markers"),
            _ if mode == PiiMode::Default || self.placeholders == default.placeholders => None,
            _ => Some("placeholders"),
        };
        if let Some(key) = unused {
            let mode = format!("{mode:?}").to_lowercase();
            let reason = format!("has no effect if `pii.mode` is `{mode}`; leave it out");
            return Err(Error::config(format!("pii.{key}"), reason));
        }
        if self.mode == PiiMode::Datatrove && self.kinds == [PiiKind::Iban] {
            let reason = "has only `iban`, which this mode does not find";
            return Err(Error::config("pii.kinds", reason));
        }
        self.exceptions().map(drop)
    }
}
