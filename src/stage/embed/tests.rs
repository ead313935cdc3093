//! The encoding thread between queues that the tests hold.

use std::sync::atomic::Ordering;

use super::read::PartDocument;
use super::*;
use crate::encoder::HubSettings;
use crate::encoder::fake::{FAILS, FakeEncoder};
use crate::progress::{Silent, Stop};

/// Part `index` of one document, whose encoding takes `millis`.
fn part(shard: usize, index: usize, millis: u32) -> Work {
    let document = PartDocument {
        row: 0,
        id: String::new(),
        language: "fra_Latn".into(),
        num_bytes: 1,
        num_tokens: 1,
        content: Content::Chunks(vec![vec![millis, 1]]),
    };
    let (documents, rejects) = (vec![document], Vec::new());
    Work::Part(Box::new(PartInput { shard, index, documents, next_row: 0, rejects, tokens: 0 }))
}

/// What came out: shard and part, or a shard and its end.
type Passed = Vec<(usize, Option<usize>)>;

fn encode(encoder: &FakeEncoder, work: Vec<Work>) -> Result<Passed> {
    let directory = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
    let run = RunDir::create(directory.path())?;
    let (config, stop) = (RunConfig::default(), Stop::default());
    let hub =
        HubSettings { cache: "none".into(), token: None, endpoint: String::new(), offline: true };
    let (hub, progress, redo) = (&hub, &Silent, None);
    let context = Context { config: &config, run: &run, hub, stop: &stop, progress, redo };
    let (to_encode, from_read) = bounded(work.len());
    let (to_write, from_encode) = bounded(work.len());
    for work in work {
        // The other end is in scope.
        let _ = to_encode.send(work);
    }
    drop(to_encode);
    encode_parts(context, Some(encoder), &from_read, &to_write)?;
    drop(to_write);
    let passed = from_encode.into_iter().map(|done| match done {
        Done::Part(part, rows) => {
            assert_eq!(rows.values.len(), 2);
            (part.shard, Some(part.index))
        }
        Done::End { shard } | Done::Failed { shard, .. } => (shard, None),
    });
    Ok(passed.collect())
}

#[test]
fn parts_leave_in_order_however_long_they_take() -> Result<()> {
    for lanes in [1, 4] {
        let encoder = FakeEncoder::new(lanes);
        let millis = [40, 0, 30, 0, 0, 20];
        let mut work: Vec<Work> = (0..6).map(|i| part(0, i, millis[i])).collect();
        work.push(Work::End { shard: 0 });
        let passed = encode(&encoder, work)?;
        let expected: Passed = (0..6).map(|i| (0, Some(i))).chain([(0, None)]).collect();
        assert_eq!(passed, expected);
        let in_work = if lanes == 1 { 1 } else { PARTS_IN_WORK };
        assert_eq!(encoder.most_in_work.load(Ordering::SeqCst), in_work);
    }
    Ok(())
}

#[test]
fn the_end_of_a_shard_does_not_let_the_cards_run_dry() -> Result<()> {
    let encoder = FakeEncoder::new(2);
    let work = vec![
        part(0, 0, 50),
        Work::End { shard: 0 },
        Work::Failed { shard: 1, error: Error::shape("test", "bad data") },
        part(2, 0, 50),
        Work::End { shard: 2 },
    ];
    let passed = encode(&encoder, work)?;
    assert_eq!(passed, [(0, Some(0)), (0, None), (1, None), (2, Some(0)), (2, None)]);
    assert_eq!(encoder.most_in_work.load(Ordering::SeqCst), 2);
    Ok(())
}

#[test]
fn a_failing_part_fails_the_stage() {
    for lanes in [1, 2] {
        let encoder = FakeEncoder::new(lanes);
        let mut work = vec![part(0, 0, 0), part(0, 1, 0)];
        if let Work::Part(part) = &mut work[1] {
            part.documents[0].content = Content::Chunks(vec![vec![0, FAILS]]);
        }
        assert!(encode(&encoder, work).is_err_and(|e| e.to_string().contains("fails")));
    }
}
