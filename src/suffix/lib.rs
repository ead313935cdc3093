//! The public suffix list. It is a crate of its own because `psl` compiles the whole list anew, for
//! 20 s, into every crate and every test binary that calls it.

use serde::{Deserialize, Serialize};

/// Selects entries of the public suffix list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suffixes {
    /// Entries of registries: `alice.github.io` belongs to `github.io`.
    #[default]
    Icann,
    /// Entries of companies too: `alice.github.io` belongs to itself.
    Private,
}

/// Returns the public suffix that a host is under, or is, if it is a known one.
pub fn public_suffix(host: &str, suffixes: Suffixes) -> Option<&str> {
    let mut name = host;
    loop {
        let suffix = psl::suffix(name.as_bytes())?;
        name = &name[name.len() - suffix.as_bytes().len()..];
        // A suffix of a company is under one of a registry.
        match suffix.typ()? {
            psl::Type::Private if suffixes == Suffixes::Icann => name = name.split_once('.')?.1,
            _ => return Some(name),
        }
    }
}
