//! How far the input is read, in bytes: what is known of formats that do not tell their rows.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::input::DocumentReader;
use crate::progress::Progress;
use crate::run::Shard;

/// Bytes of the shards that this process does.
pub(super) struct InputBytes<'a> {
    progress: &'a dyn Progress,
    done: AtomicU64,
    total: AtomicU64,
}

impl<'a> InputBytes<'a> {
    /// `total` bytes are to be read.
    pub(super) fn new(progress: &'a dyn Progress, total: u64) -> Self {
        Self { progress, done: AtomicU64::new(0), total: AtomicU64::new(total) }
    }

    /// `bytes` more are to be read.
    pub(super) fn extend(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    fn report(&self) {
        let [done, total] = [&self.done, &self.total].map(|bytes| bytes.load(Ordering::Relaxed));
        self.progress.input(done, total);
    }
}

/// The place in a shard.
pub(super) struct ShardBytes<'a> {
    input: &'a InputBytes<'a>,
    shard: &'a Shard,
    position: u64,
    /// Whether what comes before the first block was done earlier.
    is_resumed: bool,
}

impl<'a> ShardBytes<'a> {
    /// The beginning of `shard`, or a place in it that is only known once a block is read.
    pub(super) fn new(input: &'a InputBytes<'a>, shard: &'a Shard, is_resumed: bool) -> Self {
        Self { input, shard, position: 0, is_resumed }
    }

    /// `reader` has read all rows up to `next_row`.
    pub(super) fn advance(&mut self, reader: &DocumentReader, next_row: u64) {
        let of_rows = || {
            let rows = next_row.saturating_sub(self.shard.first_row()) as f64;
            (self.shard.bytes as f64 * rows / self.shard.num_rows.unwrap_or(0).max(1) as f64) as u64
        };
        let position = reader.bytes_read().unwrap_or_else(of_rows);
        let position = position.clamp(self.position, self.shard.bytes);
        let read = position - self.position;
        if std::mem::take(&mut self.is_resumed) {
            self.input.total.fetch_sub(read, Ordering::Relaxed);
        } else {
            self.input.done.fetch_add(read, Ordering::Relaxed);
        }
        self.position = position;
        self.input.report();
    }

    /// The end: what was not read is nothing to be read.
    pub(super) fn finish(self) {
        self.input.total.fetch_sub(self.shard.bytes - self.position, Ordering::Relaxed);
        self.input.report();
    }
}
