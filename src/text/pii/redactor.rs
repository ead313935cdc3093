//! Replaces personal data in texts.

use super::options::{PiiConfig, PiiMode, Placeholders};
use super::span::{PLACEHOLDER_EMAILS, PLACEHOLDER_IPS, PiiKind, PiiSpan};
use super::{finder, published};

/// A text with personal data replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redacted {
    /// The text after replacement.
    pub text: String,
    /// Personal data in the original text, ascending and disjoint, including kept placeholders.
    pub spans: Vec<PiiSpan>,
}

impl PiiConfig {
    /// Returns `text` with personal data replaced, or `None` if there is none.
    pub fn redact(&self, text: &str) -> Option<Redacted> {
        let spans = match self.mode {
            PiiMode::Default => finder::find(text, self),
            PiiMode::Apertus | PiiMode::Datatrove => published::find(text, self),
        };
        if spans.is_empty() {
            return None;
        }
        let keeps = (self.mode, self.placeholders) == (PiiMode::Default, Placeholders::Keep);
        let mut emails = PLACEHOLDER_EMAILS.into_iter().cycle();
        let mut ips = PLACEHOLDER_IPS.into_iter().cycle();
        let mut redacted = String::with_capacity(text.len());
        let mut end = 0;
        for span in &spans {
            let replacement: &str = match (self.mode, span.kind) {
                (PiiMode::Datatrove, PiiKind::Email) => emails.next().unwrap_or_default(),
                (PiiMode::Datatrove, PiiKind::Ip) => ips.next().unwrap_or_default(),
                _ if keeps && span.is_placeholder => &text[span.range.clone()],
                (_, PiiKind::Email) => &self.markers.email,
                (_, PiiKind::Ip) => &self.markers.ip,
                (_, PiiKind::Iban) => &self.markers.iban,
            };
            redacted.push_str(&text[end..span.range.start]);
            redacted.push_str(replacement);
            end = span.range.end;
        }
        redacted.push_str(&text[end..]);
        Some(Redacted { text: redacted, spans })
    }
}
