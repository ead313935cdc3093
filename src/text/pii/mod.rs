//! Personal data: e-mail addresses, IP addresses and IBANs, as spans of bytes of a text, and what
//! stands for them.
//!
//! Owns what is found and how it is replaced: the default way ([`PiiFinder`]), and the two that
//! were published, faults included. Does not know documents or files, and does not decide which
//! inputs are left alone.
//!
//! Spans are those of the original text, ascending and disjoint, and are replaced once from left to
//! right. In the default way a second pass over the replaced text changes nothing, provided that
//! markers hold no address, and start and end with a character that none may touch, as angle
//! brackets are.

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

pub use finder::PiiFinder;
pub use options::{IpScope, Markers, PiiMode, PiiOptions, Placeholders};
pub use redactor::{Redacted, Redactor, replaced};
pub use span::{PiiKind, PiiSpan};
