//! Finds personal data in a text as byte spans (e-mail addresses, IP addresses and IBANs), and
//! replaces it once from left to right. In the default mode a second pass over the replaced text
//! changes nothing, if markers contain no address and start and end with characters that no address
//! may touch, such as angle brackets.

mod address;
mod email;
mod finder;
mod iban;
mod ip;
mod letters;
mod options;
mod published;
mod redactor;
mod span;
#[cfg(test)]
mod tests;

pub use options::{IpScope, Markers, PiiAudit, PiiConfig, PiiMode, Placeholders};
pub use redactor::Redacted;
pub use span::{PiiKind, PiiSpan};
