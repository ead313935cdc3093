//! What happens to lines that cannot be used.
//!
//! Owns the limit: up to `max_rejects` lines of a file are set aside with their bytes, one more
//! fails the file with a count over all of it.

use std::path::Path;

use crate::error::Error;

/// A line that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of the line, counted from 0.
    pub row: u64,
    /// Why it cannot be used.
    pub reason: String,
    /// The line without its end, undecoded.
    pub raw: Vec<u8>,
}

/// The rejects of one file.
#[derive(Default)]
pub(super) struct Rejects {
    limit: u64,
    count: u64,
    kept: Vec<Reject>,
}

impl Rejects {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Counts a bad line; only lines within the limit are kept, and the first in any case, for
    /// the message.
    pub(super) fn add(&mut self, row: u64, reason: String, raw: &[u8]) {
        self.count += 1;
        if self.count <= self.limit || self.kept.is_empty() {
            self.kept.push(Reject { row, reason, raw: raw.to_vec() });
        }
    }

    /// Whether the file must fail.
    pub(super) fn exceeded(&self) -> bool {
        self.count > self.limit
    }

    pub(super) fn kept(&self) -> &[Reject] {
        &self.kept
    }

    /// The failure of the file, once all of its lines were seen.
    pub(super) fn error(&self, path: &Path) -> Error {
        let (row, reason) =
            self.kept.first().map_or((0, String::new()), |first| (first.row, first.reason.clone()));
        Error::Row { path: path.to_owned(), row: row + 1, reason, count: self.count }
    }
}
