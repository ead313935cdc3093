//! Kinds and spans of personal data.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// E-mail addresses that replace real ones in FineWeb and FineWeb-2, in turn.
pub(super) const PLACEHOLDER_EMAILS: [&str; 2] =
    ["email@example.com", "firstname.lastname@example.org"];
/// IPv4 addresses that replace real ones in FineWeb and FineWeb-2, in turn.
pub(super) const PLACEHOLDER_IPS: [&str; 6] = [
    "22.214.171.124",
    "126.96.36.199",
    "188.8.131.52",
    "184.108.40.206",
    "220.127.116.11",
    "18.104.22.168",
];

/// A kind of personal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PiiKind {
    /// E-mail addresses.
    Email,
    /// IP addresses, of versions 4 and 6.
    Ip,
    /// International bank account numbers.
    Iban,
}

impl PiiKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Email, Self::Ip, Self::Iban];

    /// Returns the name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Ip => "ip",
            Self::Iban => "iban",
        }
    }
}

/// Personal data in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiiSpan {
    /// Kind of the data.
    pub kind: PiiKind,
    /// Byte range in the original text.
    pub range: Range<usize>,
    /// True if FineWeb uses this value in place of real ones.
    pub is_placeholder: bool,
}

impl PiiSpan {
    /// Returns the span of `text` at `range`, compared with the placeholders of FineWeb.
    pub fn new(text: &str, kind: PiiKind, range: Range<usize>) -> Self {
        let placeholders: &[&str] = match kind {
            PiiKind::Email => &PLACEHOLDER_EMAILS,
            PiiKind::Ip => &PLACEHOLDER_IPS,
            PiiKind::Iban => &[],
        };
        let is_placeholder = placeholders.contains(&&text[range.clone()]);
        Self { kind, range, is_placeholder }
    }

    /// Adds the span to disjoint `spans`, keyed by their start, unless it overlaps one of them.
    pub(super) fn add_to(self, spans: &mut BTreeMap<usize, Self>) {
        let before = spans.range(..self.range.end).next_back();
        if before.is_none_or(|(_, before)| before.range.end <= self.range.start) {
            spans.insert(self.range.start, self);
        }
    }
}
