//! Replaces personal data in texts.

use super::options::{PiiMode, PiiOptions, Placeholders};
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

/// Finds and replaces personal data, text by text.
#[derive(Debug, Clone)]
pub struct Redactor {
    options: PiiOptions,
}

impl Redactor {
    /// Returns a redactor with these options.
    pub fn new(options: PiiOptions) -> Self {
        Self { options }
    }

    /// Returns `text` with personal data replaced, or `None` if there is none.
    pub fn redact(&self, text: &str) -> Option<Redacted> {
        let options = &self.options;
        let spans = match options.mode {
            PiiMode::Default => finder::find(text, options),
            PiiMode::Apertus => published::apertus_spans(text, &options.kinds),
            PiiMode::Datatrove => published::datatrove_spans(text, &options.kinds, options.ip),
        };
        if spans.is_empty() {
            return None;
        }
        let keeps = (options.mode, options.placeholders) == (PiiMode::Default, Placeholders::Keep);
        let mut emails = PLACEHOLDER_EMAILS.into_iter().cycle();
        let mut ips = PLACEHOLDER_IPS.into_iter().cycle();
        let text = replaced(text, &spans, |span| {
            let in_turn = match (options.mode, span.kind) {
                (PiiMode::Datatrove, PiiKind::Email) => emails.next(),
                (PiiMode::Datatrove, PiiKind::Ip) => ips.next(),
                _ if keeps && span.is_placeholder => Some(&text[span.range.clone()]),
                _ => None,
            };
            in_turn.unwrap_or_else(|| options.markers.of(span.kind))
        });
        Some(Redacted { text, spans })
    }
}

/// Returns `text` with each of its ascending and disjoint `spans` replaced by its `replacement`,
/// which is not searched again.
fn replaced<'a>(
    text: &str,
    spans: &[PiiSpan],
    mut replacement: impl FnMut(&PiiSpan) -> &'a str,
) -> String {
    let mut result = String::with_capacity(text.len());
    let mut end = 0;
    for span in spans {
        result.push_str(&text[end..span.range.start]);
        result.push_str(replacement(span));
        end = span.range.end;
    }
    result.push_str(&text[end..]);
    result
}
