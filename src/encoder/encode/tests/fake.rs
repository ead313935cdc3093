//! A fake encoder for tests of code that calls encoders. It takes as long as its input asks for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polysift_base::batch::PackedBatch;
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;

use crate::{Encoder, EncoderInfo};

/// A batch with this token id fails.
pub const FAILS: u32 = 999;

/// The embedding of a sequence is `[sum of its ids, its length]`. The first id of a batch is the
/// number of milliseconds that the batch takes.
#[derive(Debug)]
pub struct FakeEncoder {
    info: EncoderInfo,
    now_in_flight: AtomicUsize,
    /// Maximum number of concurrent calls of `encode`.
    pub most_in_flight: AtomicUsize,
    /// Number of calls of `encode`.
    pub calls: AtomicUsize,
}

impl FakeEncoder {
    /// Creates an encoder that asks for `in_flight` concurrent calls of `encode`.
    #[must_use]
    pub fn new(in_flight: usize) -> Self {
        let info = EncoderInfo {
            hidden_size: 2,
            embedding_size: 2,
            linear_flops: 1,
            vocab_size: 1000,
            max_tokens: 512,
            in_flight,
            max_sequences: 2,
            ..EncoderInfo::default()
        };
        let (now_in_flight, most_in_flight, calls) = Default::default();
        Self { info, now_in_flight, most_in_flight, calls }
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
}
