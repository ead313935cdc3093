//! Progress in bytes of the input, which every format knows: JSON lines do not say how many rows they have.

use std::sync::atomic::{AtomicU64, Ordering};

use polysift_base::progress::Progress;

/// Bytes of the input that are encoded, and bytes in all.
#[derive(Default)]
pub(crate) struct InputProgress {
    done: AtomicU64,
    /// Bytes of all shards that this process does, without what other processes and earlier ones did.
    total: AtomicU64,
}

impl InputProgress {
    /// `bytes` more are to be encoded.
    pub(crate) fn add(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `bytes` are not to be encoded.
    pub(crate) fn take_away(&self, bytes: u64) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reports that `documents` of `tokens` tokens are encoded, which took `bytes` of the input.
    pub(crate) fn advance(&self, progress: &dyn Progress, documents: u64, tokens: u64, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        progress.input(done, self.total.load(Ordering::Relaxed));
        progress.advance(documents, tokens);
    }
}
