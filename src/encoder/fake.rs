//! An encoder for tests of what calls encoders: simple values, and as slow as its input says.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Encoder, EncoderInfo};
use crate::batch::PackedBatch;
use crate::error::{Error, Result};
use crate::progress::Stop;

/// A batch with this token id fails.
pub(crate) const FAILS: u32 = 999;

/// The embedding of a sequence is `[sum of its ids, its length]`; a batch takes as many milliseconds
/// as its first id says.
pub(crate) struct FakeEncoder {
    info: EncoderInfo,
    lanes: usize,
    in_work: AtomicUsize,
    /// Most calls of `encode` at the same time.
    pub(crate) most_in_work: AtomicUsize,
    /// Calls of `encode`.
    pub(crate) calls: AtomicUsize,
}

impl FakeEncoder {
    pub(crate) fn new(lanes: usize) -> Self {
        let info = EncoderInfo {
            model: "fake".into(),
            hidden_size: 2,
            num_hidden_layers: 1,
            vocab_size: 1000,
            max_tokens: 512,
            num_parameters: 0,
            device: "fake".into(),
            digest: "fake".into(),
        };
        let (in_work, most_in_work, calls) = Default::default();
        Self { info, lanes, in_work, most_in_work, calls }
    }
}

impl Encoder for FakeEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], _: &Stop) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let in_work = self.in_work.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_work.fetch_max(in_work, Ordering::SeqCst);
        let millis = batch.input_ids.first().copied().unwrap_or(0);
        std::thread::sleep(Duration::from_millis(u64::from(millis)));
        for (i, row) in embeddings.chunks_exact_mut(2).enumerate() {
            let ids = batch.sequence(i);
            row[0] = ids.iter().sum::<u32>() as f32;
            row[1] = ids.len() as f32;
        }
        self.in_work.fetch_sub(1, Ordering::SeqCst);
        if batch.input_ids.contains(&FAILS) {
            return Err(Error::shape("fake", "fails"));
        }
        Ok(())
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn max_sequences(&self, batch_tokens: usize) -> usize {
        batch_tokens / 4
    }
}
