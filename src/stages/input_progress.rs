//! Progress in input bytes, which every format knows; JSON lines do not tell their row count.

use std::sync::atomic::{AtomicU64, Ordering};

use polysift_base::progress::Progress;

/// Number of encoded input bytes, and their total.
#[derive(Default)]
pub(crate) struct InputProgress {
    done: AtomicU64,
    /// Bytes of the shards that this process does; other and earlier processes do not count.
    total: AtomicU64,
}

impl InputProgress {
    pub(crate) fn add(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take_away(&self, bytes: u64) {
        self.total.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reports that `documents` with `tokens` tokens from `bytes` bytes of the input are encoded.
    pub(crate) fn advance(&self, progress: &dyn Progress, documents: u64, tokens: u64, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        progress.input(done, self.total.load(Ordering::Relaxed));
        progress.advance(documents, tokens);
    }
}
