//! Options for what to find and how to replace it.

use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::span::PiiKind;

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

/// Says which personal data is found, and what replaces it.
#[derive(Debug, Clone, PartialEq, Eq, SmartDefault)]
pub struct PiiOptions {
    /// Mode of finding and replacing.
    pub mode: PiiMode,
    /// Kinds of data to find.
    #[default(PiiKind::ALL.to_vec())]
    pub kinds: Vec<PiiKind>,
    /// IP addresses to find.
    pub ip: IpScope,
    /// Treatment of FineWeb's replacements.
    pub placeholders: Placeholders,
    /// Markers; [`PiiMode::Datatrove`] inserts FineWeb's values instead.
    pub markers: Markers,
}
