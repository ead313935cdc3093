//! What is looked for, and what stands for it.

use serde::{Deserialize, Serialize};

use super::span::PiiKind;

/// Which IP addresses are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IpScope {
    /// Those that Python's `ipaddress` calls global, without multicast.
    #[default]
    Public,
    /// All.
    All,
}

/// How personal data is found and replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PiiMode {
    /// Addresses as they are defined, once from left to right, by markers.
    #[default]
    Default,
    /// As Apertus' published formatter does: every distinct match is replaced wherever its
    /// characters occur, in order of discovery. Its setting for public addresses is never read, nor
    /// is ours.
    Apertus,
    /// As datatrove's formatter does, which made FineWeb: FineWeb's values in turn, no IBANs. The
    /// turn starts anew with every text; datatrove's goes on.
    Datatrove,
}

/// What becomes of FineWeb's own replacements in the default mode; the published modes treat them
/// as they treat any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placeholders {
    /// They become markers too.
    #[default]
    Replace,
    /// They stay.
    Keep,
}

/// What stands for personal data, by kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Markers {
    /// For an e-mail address.
    pub email: String,
    /// For an IP address.
    pub ip: String,
    /// For an IBAN.
    pub iban: String,
}

impl Default for Markers {
    /// Those of Apertus.
    fn default() -> Self {
        let [email, ip, iban] = ["<email-pii>", "<ip-pii>", "<iban-pii>"].map(str::to_owned);
        Self { email, ip, iban }
    }
}

impl Markers {
    /// The marker that replaces data of `kind`.
    pub fn of(&self, kind: PiiKind) -> &str {
        match kind {
            PiiKind::Email => &self.email,
            PiiKind::Ip => &self.ip,
            PiiKind::Iban => &self.iban,
        }
    }
}

/// What is found and what stands for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiiOptions {
    /// How it is found and replaced.
    pub mode: PiiMode,
    /// What is looked for.
    pub kinds: Vec<PiiKind>,
    /// Which IP addresses are meant.
    pub ip: IpScope,
    /// What becomes of FineWeb's replacements.
    pub placeholders: Placeholders,
    /// What stands for what is found; FineWeb's values do in [`PiiMode::Datatrove`].
    pub markers: Markers,
}

impl Default for PiiOptions {
    fn default() -> Self {
        Self {
            mode: PiiMode::Default,
            kinds: PiiKind::ALL.to_vec(),
            ip: IpScope::Public,
            placeholders: Placeholders::Replace,
            markers: Markers::default(),
        }
    }
}
