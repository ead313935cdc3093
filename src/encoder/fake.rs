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
    in_flight: usize,
    now_in_flight: AtomicUsize,
    /// Most calls of `encode` at the same time.
    pub(crate) most_in_flight: AtomicUsize,
    /// Calls of `encode`.
    pub(crate) calls: AtomicUsize,
}

impl FakeEncoder {
    pub(crate) fn new(in_flight: usize) -> Self {
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
        let (now_in_flight, most_in_flight, calls) = Default::default();
        Self { info, in_flight, now_in_flight, most_in_flight, calls }
    }
}

impl Encoder for FakeEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], _: &Stop) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let now_in_flight = self.now_in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now_in_flight, Ordering::SeqCst);
        let millis = batch.input_ids.first().copied().unwrap_or(0);
        std::thread::sleep(Duration::from_millis(u64::from(millis)));
        for (i, row) in embeddings.chunks_exact_mut(2).enumerate() {
            let ids = batch.sequence(i);
            row[0] = ids.iter().sum::<u32>() as f32;
            row[1] = ids.len() as f32;
        }
        self.now_in_flight.fetch_sub(1, Ordering::SeqCst);
        if batch.input_ids.contains(&FAILS) {
            return Err(Error::shape("fake", "fails"));
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn max_sequences(&self, batch_tokens: usize) -> usize {
        batch_tokens / 4
    }
}
