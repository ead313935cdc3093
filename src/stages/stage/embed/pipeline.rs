//! What the threads of the stage share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stage::cascaded::Cascade;
use crate::stage::context::Context;
use polysift_base::progress::Busy;
use polysift_encoder::Model;
use polysift_runs::run::{Claims, Shard};

/// The shards that this process claims, and how far it is.
pub(super) struct Pipeline<'a> {
    pub(super) context: Context<'a>,
    pub(super) shards: &'a [Shard],
    pub(super) claims: &'a Claims<'a>,
    /// `None` where no text is embedded.
    pub(super) model: Option<&'a Model>,
    pub(super) counts_tokens: bool,
    /// What leaves documents out.
    pub(super) cascade: &'a Cascade,
    /// Bytes of the input that are read: the progress where formats do not say how many rows they have.
    pub(super) bytes_read: AtomicU64,
    /// Bytes of all shards that this process does.
    pub(super) bytes: AtomicU64,
    pub(super) reading: Busy,
    pub(super) tokenizing: Busy,
    pub(super) encoding: Busy,
    pub(super) writing: Busy,
}

impl Pipeline<'_> {
    pub(super) fn report_bytes(&self) {
        let [done, total] = [&self.bytes_read, &self.bytes].map(|n| n.load(Ordering::Relaxed));
        self.context.progress.input(done, total);
    }
}
