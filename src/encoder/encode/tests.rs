//! Tests of `embed_chunks` with one batch and with several batches in flight.

use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::fake::{FAILS, FakeEncoder};

/// Embeddings, and the reported (chunks, tokens) of each batch.
type Outcome = Result<(Vec<f32>, Vec<(usize, usize)>)>;

fn embed(encoder: &FakeEncoder, chunks: &[Vec<u32>], batch_tokens: usize) -> Outcome {
    let chunks: Vec<&[u32]> = chunks.iter().map(Vec::as_slice).collect();
    let mut reported = Vec::new();
    let stop = Stop::default();
    let embeddings = embed_chunks(encoder, &chunks, batch_tokens, &stop, &mut |chunks, tokens| {
        reported.push((chunks, tokens));
    })?;
    reported.sort_unstable();
    Ok((embeddings, reported))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn several_in_flight_give_the_embeddings_and_reports_of_one(
        chunks in prop::collection::vec(prop::collection::vec(0u32..4, 1..30), 0..60),
        batch_tokens in 4usize..80,
    ) {
        let check = || -> Result<bool> {
            let expected: Vec<f32> = chunks
                .iter()
                .flat_map(|chunk| [chunk.iter().sum::<u32>() as f32, chunk.len() as f32])
                .collect();
            let one = embed(&FakeEncoder::new(1), &chunks, batch_tokens)?;
            let four = embed(&FakeEncoder::new(4), &chunks, batch_tokens)?;
            Ok(one.0 == expected && one == four)
        };
        prop_assert!(check().map_err(|e| TestCaseError::fail(e.to_string()))?);
    }
}

#[test]
fn as_many_batches_are_in_work_as_keep_the_encoder_busy() -> Result<()> {
    for in_flight in [1, 3] {
        let encoder = FakeEncoder::new(in_flight);
        embed(&encoder, &vec![vec![50; 10]; 6], 10)?;
        assert_eq!(encoder.most_in_flight.load(Ordering::SeqCst), in_flight);
        assert_eq!(encoder.calls.load(Ordering::SeqCst), 6);
    }
    Ok(())
}

#[test]
fn the_first_failure_ends_the_work() {
    for in_flight in [1, 3] {
        let encoder = FakeEncoder::new(in_flight);
        let mut chunks = vec![vec![2; 10]; 300];
        chunks[0] = vec![0, FAILS, 0, 0, 0, 0, 0, 0, 0, 0];
        let outcome = embed(&encoder, &chunks, 10);
        assert!(matches!(outcome, Err(Error::Shape { op: "fake", .. })));
        assert!(encoder.calls.load(Ordering::SeqCst) < 150);
    }
}

#[test]
fn a_stop_ends_the_work() {
    for in_flight in [1, 3] {
        let encoder = FakeEncoder::new(in_flight);
        let chunks = vec![&[2u32; 10][..]; 300];
        let stop = Stop::default();
        let ask = &mut |_, _| stop.ask(15);
        let outcome = embed_chunks(&encoder, &chunks, 10, &stop, ask);
        assert!(matches!(outcome, Err(Error::Stopped)));
        assert!(encoder.calls.load(Ordering::SeqCst) < 150);
    }
}

#[test]
fn a_batch_is_as_large_as_the_settings_say_or_as_suits_the_encoder() {
    let mut config = EncoderConfig::default();
    assert_eq!(batch_tokens(&config, &FakeEncoder::new(1)), DEFAULT_BATCH_TOKENS);
    config.batch_tokens = Some(600);
    assert_eq!(batch_tokens(&config, &FakeEncoder::new(1)), 600);
}
