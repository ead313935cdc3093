//! What happens to rows that cannot be used.
//!
//! Owns the limit: up to `max_rejects` rows of a file are set aside, lines with their bytes; one
//! more fails the file with a count over all of it.

use std::path::Path;

use crate::error::Error;

/// A row that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Number of the row or line, counted from 0.
    pub row: u64,
    /// Why it cannot be used.
    pub reason: String,
    /// The line without its end, undecoded; of one that is too long the beginning, of a row of
    /// Parquet nothing.
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

    /// Counts rows that were set aside before the file is read on.
    pub(super) fn resume(&mut self, count: u64) {
        self.count = count;
        self.kept.clear();
    }

    /// Counts a bad row; only rows within the limit are kept, and the first in any case, for
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

    /// The failure of the file, once all of its rows were seen.
    pub(super) fn error(&self, path: &Path) -> Error {
        let (row, reason) =
            self.kept.first().map_or((0, ""), |first| (first.row, first.reason.as_str()));
        let count = self.count;
        let reason = format!("{reason}; `--max-rejects {count}` sets such rows aside");
        Error::Row { path: path.to_owned(), row: row + 1, reason, count }
    }
}
