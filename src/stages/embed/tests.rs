//! Tests of the encoding threads, with queues that the tests control.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::queue::{ChunkBatch, PartEnd, Receiver, Step};
use super::*;
use polysift_base::batch::PackedBatch;
use polysift_base::error::Error;
use polysift_base::panics::lock;
use polysift_base::progress::{Progress, Silent, Stop};
use polysift_config::{DeviceChoice, LanguageSource, RunConfig};
use polysift_data::input::DocumentInfo;
use polysift_data::parts::EmbeddingRows;
use polysift_encoder::fake::{FAILS, FakeEncoder};
use polysift_encoder::{Encoder, EncoderInfo, HubSettings};
use polysift_runs::run::{RunDir, Worker};

/// A batch of documents with one chunk each. The first id is the time in milliseconds of an encoder
/// batch that begins with it; the second id distinguishes batches.
fn batch(shard: usize, index: usize, chunks: &[[u32; 2]]) -> Step {
    let len = chunks.len();
    let (id, language) = ("", "fra_Latn");
    let documents = (0..len as u64).map(|row| DocumentInfo {
        row,
        id,
        language,
        num_bytes: 1,
        num_tokens: None,
    });
    let rows = EmbeddingRows {
        documents: documents.collect(),
        chunk_offsets: (0..=len).collect(),
        ..EmbeddingRows::default()
    };
    Step::Batch(Box::new(ChunkBatch {
        shard,
        index,
        rows,
        chunks: chunks.iter().map(|ids| ids.to_vec()).collect(),
        is_encoded: vec![false; len],
        input_bytes: 10 * len as u64,
        ..ChunkBatch::default()
    }))
}

fn part_end(shard: usize, index: usize) -> Step {
    Step::PartEnd(PartEnd { shard, index, next_row: 0, rejects: Vec::new() })
}

/// A received step: the first values of a batch's embeddings, or the part or shard that ended.
#[derive(Debug, PartialEq)]
enum Passed {
    Batch(Vec<f32>),
    PartEnd(usize, usize),
    ShardEnd(usize),
    Failed(usize),
}

fn as_batch(step: Step) -> Option<ChunkBatch> {
    if let Step::Batch(batch) = step { Some(*batch) } else { None }
}

fn passed(steps: Vec<Step>) -> Vec<Passed> {
    (steps.into_iter())
        .map(|step| match step {
            Step::Batch(batch) => Passed::Batch(batch.rows.values.into_iter().step_by(2).collect()),
            Step::PartEnd(end) => Passed::PartEnd(end.shard, end.index),
            Step::ShardEnd { shard } => Passed::ShardEnd(shard),
            Step::Failed { shard, .. } => Passed::Failed(shard.unwrap_or(usize::MAX)),
        })
        .collect()
}

fn encode(encoder: &FakeEncoder, steps: Vec<Step>) -> Result<Vec<Passed>> {
    let (outcome, steps) = encode_until(&Stop::default(), encoder, steps)?;
    outcome.map(|()| passed(steps))
}

/// Encodes `steps`; returns the outcome and the steps that were sent.
fn encode_until(
    stop: &Stop,
    encoder: &FakeEncoder,
    steps: Vec<Step>,
) -> Result<(Result<()>, Vec<Step>)> {
    let (to_encode, from_tokenize) = queue(usize::MAX);
    for step in steps {
        // The receiver is in scope.
        let _ = to_encode.send(step, 1);
    }
    drop(to_encode);
    encode_from(stop, encoder, &from_tokenize)
}

fn encode_from(
    stop: &Stop,
    encoder: &FakeEncoder,
    from_tokenize: &Receiver<Step>,
) -> Result<(Result<()>, Vec<Step>)> {
    encode_with(stop, &Silent, encoder, from_tokenize)
}

fn encode_with(
    stop: &Stop,
    progress: &dyn Progress,
    encoder: &FakeEncoder,
    from_tokenize: &Receiver<Step>,
) -> Result<(Result<()>, Vec<Step>)> {
    let directory = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
    let run = RunDir::create(directory.path())?;
    let mut config = RunConfig::default();
    // Batches of two documents.
    config.encoder.batch_tokens = Some(8);
    let hub =
        HubSettings { cache: "none".into(), token: None, endpoint: String::new(), offline: true };
    let worker = Worker::observer(&run);
    let context = Context::observing(&config, &run, &hub, stop, progress, &worker);
    let busy = Busy::new("encoding");
    let (to_write, from_encode) = queue(usize::MAX);
    let outcome = Encoding::new(context, encoder, 1, &busy).run(from_tokenize, &to_write);
    drop(to_write);
    Ok((outcome, std::iter::from_fn(|| from_encode.recv()).collect()))
}

#[test]
fn blocks_leave_in_order_however_long_they_take() -> Result<()> {
    for in_flight in [2, 4] {
        let encoder = FakeEncoder::new(in_flight);
        // Enough batches for several windows.
        let batches = (0..40).map(|i| batch(0, i, &[[(40 - i as u32) % 7, i as u32]; 3]));
        let ends = vec![part_end(0, 0), Step::ShardEnd { shard: 0 }];
        let expected = (0..40).map(|i| Passed::Batch(vec![((40 - i) % 7 + i) as f32; 3]));
        let expected: Vec<Passed> =
            expected.chain([Passed::PartEnd(0, 0), Passed::ShardEnd(0)]).collect();
        assert_eq!(encode(&encoder, batches.chain(ends).collect())?, expected);
        assert_eq!(encoder.most_in_flight.load(Ordering::SeqCst), in_flight);
    }
    Ok(())
}

/// Records the reported documents and bytes of the input.
#[derive(Default)]
struct Recorder {
    documents: AtomicU64,
    bytes: AtomicU64,
    reports: Mutex<Vec<(u64, u64)>>,
}

impl Progress for Recorder {
    fn begin(&self, _stage: &str, _total: Option<u64>, _unit: &'static str) {}
    fn advance(&self, units: u64, _tokens: u64) {
        let documents = self.documents.fetch_add(units, Ordering::SeqCst) + units;
        lock(&self.reports).push((documents, self.bytes.load(Ordering::SeqCst)));
    }
    fn input(&self, done: u64, _total: i64) {
        self.bytes.fetch_add(done, Ordering::SeqCst);
    }
    fn end(&self) {}
}

#[test]
fn progress_counts_the_input_that_is_encoded_and_not_what_is_read() -> Result<()> {
    let recorder = Recorder::default();
    let (to_encode, from_tokenize) = queue(usize::MAX);
    for i in 0..4 {
        let _ = to_encode.send(batch(0, i, &[[1, i as u32]; 8]), 1);
    }
    drop(to_encode);
    encode_with(&Stop::default(), &recorder, &FakeEncoder::new(1), &from_tokenize)?.0?;
    let reports = lock(&recorder.reports);
    // An encoder batch has two documents of ten bytes each.
    assert!(reports.len() >= 16, "{reports:?}");
    assert!(reports.iter().all(|(documents, bytes)| *bytes == 10 * documents), "{reports:?}");
    assert_eq!(reports.last(), Some(&(32, 320)));
    Ok(())
}

#[test]
fn batches_are_full_where_more_is_to_come() -> Result<()> {
    for in_flight in [1, 2, 3] {
        let encoder = FakeEncoder::new(in_flight);
        // All batches are in the queue, so the encoder never waits.
        let batches = (0..41).map(|i| batch(0, i, &[[0, i as u32]; 3]));
        let expected: Vec<Passed> = (0..41).map(|i| Passed::Batch(vec![i as f32; 3])).collect();
        assert_eq!(encode(&encoder, batches.collect())?, expected);
        // 123 documents, two per batch.
        assert_eq!(encoder.calls.load(Ordering::SeqCst), 62, "{in_flight} in flight");
    }
    Ok(())
}

#[test]
fn batches_reach_over_the_ends_of_parts_and_shards() -> Result<()> {
    let encoder = FakeEncoder::new(2);
    let steps = vec![
        batch(0, 0, &[[1, 0]]),
        part_end(0, 0),
        Step::ShardEnd { shard: 0 },
        Step::Failed { shard: Some(1), error: Error::shape("test", "bad data") },
        batch(2, 0, &[[2, 0], [3, 0]]),
        batch(2, 0, &[]),
        part_end(2, 0),
        Step::ShardEnd { shard: 2 },
    ];
    let expected = [
        Passed::Batch(vec![1.0]),
        Passed::PartEnd(0, 0),
        Passed::ShardEnd(0),
        Passed::Failed(1),
        Passed::Batch(vec![2.0, 3.0]),
        Passed::Batch(vec![]),
        Passed::PartEnd(2, 0),
        Passed::ShardEnd(2),
    ];
    assert_eq!(encode(&encoder, steps)?, expected);
    assert_eq!(encoder.calls.load(Ordering::SeqCst), 2, "two sequences fit into a batch of 8");
    Ok(())
}

#[test]
fn what_is_encoded_when_a_stop_is_asked_for_is_passed_on() -> Result<()> {
    for in_flight in [1, 2] {
        let encoder = FakeEncoder::new(in_flight);
        let stop = Stop::default();
        let asker = stop.clone();
        // Two documents per batch; odd batches take longer.
        let steps = (0..4).map(|i| batch(0, i, &[[if i % 2 == 0 { 1 } else { 400 }, i as u32]; 8]));
        let asking = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(600));
            asker.ask(15);
        });
        let (outcome, steps) = encode_until(&stop, &encoder, steps.collect())?;
        assert!(asking.join().is_ok());
        assert!(matches!(outcome, Err(Error::Stopped)), "{outcome:?}");
        let batches: Vec<ChunkBatch> = steps.into_iter().filter_map(as_batch).collect();
        let is_encoded = |batch: &ChunkBatch, i: usize| batch.has_embeddings(i);
        let encoded = |batch: &ChunkBatch| (0..8).filter(|&i| is_encoded(batch, i)).count();
        let counts: Vec<usize> = batches.iter().map(encoded).collect();
        // Nothing of the other batches was in work.
        assert!(counts.len() >= 2, "batches in work are passed on: {counts:?}");
        assert!(counts.iter().sum::<usize>() > 0 && counts.iter().any(|&n| n < 8), "{counts:?}");
        for batch in &batches {
            let sums = batch.rows.values.chunks_exact(2).enumerate();
            for (i, values) in sums.filter(|(i, _)| batch.has_embeddings(*i)) {
                assert_eq!(values[1].to_bits(), 2f32.to_bits(), "document {i}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_was_saved_is_not_encoded_again() -> Result<()> {
    let encoder = FakeEncoder::new(1);
    let mut step = batch(0, 0, &[[1, 0], [2, 0], [3, 0]]);
    if let Step::Batch(batch) = &mut step {
        batch.rows.values = vec![0.0, 0.0, 70.0, 2.0, 0.0, 0.0];
        batch.is_encoded[1] = true;
    }
    let passed = encode(&encoder, vec![step, part_end(0, 0)])?;
    assert_eq!(passed, [Passed::Batch(vec![1.0, 70.0, 3.0]), Passed::PartEnd(0, 0)]);
    Ok(())
}

#[test]
fn a_failing_batch_fails_the_stage() {
    for in_flight in [1, 2] {
        let encoder = FakeEncoder::new(in_flight);
        let steps = (0..30).map(|i| batch(0, 0, &[[0, if i == 20 { FAILS } else { 1 }]]));
        let outcome = encode(&encoder, steps.collect());
        assert!(outcome.is_err_and(|error| error.to_string().contains("fails")));
    }
}

#[test]
fn nobody_waits_for_a_stage_whose_writer_is_gone() -> Result<()> {
    let (to_write, from_encode) = queue(1);
    drop(from_encode);
    let (to_encode, from_tokenize) = queue(1);
    let (config, stop, busy) = (RunConfig::default(), Stop::default(), Busy::new("encoding"));
    let directory = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
    let run = RunDir::create(directory.path())?;
    let hub =
        HubSettings { cache: "none".into(), token: None, endpoint: String::new(), offline: true };
    let worker = Worker::observer(&run);
    let context = Context::observing(&config, &run, &hub, &stop, &Silent, &worker);
    let encoder = FakeEncoder::new(2);
    std::thread::scope(|scope| {
        let endless = scope.spawn(move || while to_encode.send(batch(0, 0, &[]), 1).is_ok() {});
        let outcome = Encoding::new(context, &encoder, 1, &busy).run(&from_tokenize, &to_write);
        drop(from_tokenize);
        assert!(endless.join().is_ok());
        outcome
    })
}

/// Encodes the steps of `from_tokenize` in a thread and runs `over`, which makes the thread end;
/// returns `None` if it has not ended 2 seconds later.
fn ends(
    stop: &Stop,
    encoder: &Arc<FakeEncoder>,
    from_tokenize: Receiver<Step>,
    over: impl FnOnce(),
) -> Option<Result<()>> {
    let (stop, encoder) = (stop.clone(), Arc::clone(encoder));
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let outcome = encode_from(&stop, &encoder, &from_tokenize);
        let _ = done.send(outcome.and_then(|(outcome, _)| outcome)); // or the test gave up
    });
    over();
    ended.recv_timeout(Duration::from_secs(2)).ok()
}

/// The planning thread waits for more: two batches are in work and one waits, unfilled.
#[test]
fn neither_a_stop_nor_an_error_is_missed_while_a_batch_waits_for_more() {
    for id in [1, FAILS] {
        let (stop, encoder) = (Stop::default(), Arc::new(FakeEncoder::new(2)));
        let (to_encode, from_tokenize) = queue(usize::MAX);
        let over = || {
            let _ = to_encode.send(batch(0, 0, &[[300, id]; 7]), 1);
            while encoder.calls.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = to_encode.send(batch(0, 0, &[[300, id]]), 1);
            if id != FAILS {
                stop.ask(15);
            }
        };
        let outcome = ends(&stop, &encoder, from_tokenize, over);
        let as_wanted = |outcome: &Result<()>| match outcome {
            Err(Error::Stopped) => id != FAILS,
            outcome => id == FAILS && outcome.is_err(),
        };
        assert!(outcome.as_ref().is_some_and(as_wanted), "{id}: {outcome:?}");
    }
}

#[test]
fn three_hundred_stops_at_random_moments_end_three_hundred_times() {
    let late = |seed: &u64| {
        let mut random = ChaCha8Rng::seed_from_u64(*seed);
        let stop = Stop::default();
        let encoder = Arc::new(FakeEncoder::new(random.random_range(1..4)));
        let (to_encode, from_tokenize) = queue(random.random_range(1..20));
        let (asker, after) = (stop.clone(), random.random_range(0..20_000));
        // Acts like the tokenizing thread: it ends at a stop and waits while the queue is full.
        std::thread::spawn(move || {
            while !asker.is_asked() {
                let chunk = [random.random_range(0..4), 1];
                let step = batch(0, 0, &vec![chunk; random.random_range(1..9)]);
                if to_encode.send(step, 1).is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(random.random_range(0..4_000)));
            }
        });
        let over = || {
            std::thread::sleep(Duration::from_micros(after));
            stop.ask(15);
        };
        !matches!(ends(&stop, &encoder, from_tokenize, over), Some(Err(Error::Stopped)))
    };
    let seeds: Vec<u64> = (0..300).collect();
    let late = std::thread::scope(|scope| {
        let threads: Vec<_> = (seeds.chunks(38))
            .map(|seeds| {
                scope.spawn(move || seeds.iter().copied().filter(late).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    assert_eq!(late.concat(), [0; 0]);
}

/// Fails at the batch of this number; the embedding is made of the tokens.
struct FailsAt(FakeEncoder, usize);

impl Encoder for FailsAt {
    fn info(&self) -> &EncoderInfo {
        self.0.info()
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()> {
        self.0.encode(batch, embeddings, stop)?;
        let is_last = self.0.calls.load(Ordering::SeqCst) == self.1;
        if is_last { Err(Error::shape("fake", "fails")) } else { Ok(()) }
    }
}

/// Embeds twelve files with `gpus` that fail at batch `fails_at`; returns the outcome, the bytes of
/// all parts, and the number of files that are done.
fn embed_on(gpus: usize, fails_at: usize) -> Result<(Result<()>, Vec<Vec<u8>>, usize)> {
    let directory = tempfile::tempdir().map_err(Error::io("temp".as_ref(), "create"))?;
    let mut config = RunConfig::default();
    for file in 0..12 {
        let lines = (0..40).map(|i| format!("{{\"text\": \"text {i} of {file}\"}}\n"));
        let path = directory.path().join(format!("corpus/{file:02}.jsonl"));
        polysift_base::io::write_atomic(&path, lines.collect::<String>().as_bytes())?;
    }
    config.input.files = vec![directory.path().join("corpus").display().to_string()];
    config.input.language = LanguageSource::Fixed("fra_Latn".into());
    config.parts.rows = 16;
    config.encoder.batch_tokens = Some(64);
    config.encoder.device = DeviceChoice::Cpu;
    config.encoder.model =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/encoder/head16-prefixed").into();
    let run = RunDir::create(&directory.path().join("run"))?;
    let hub =
        HubSettings { cache: "none".into(), token: None, endpoint: String::new(), offline: true };
    let stop = Stop::default();
    let worker = Worker::join(&run, &stop)?;
    let context = Context::observing(&config, &run, &hub, &stop, &Silent, &worker);
    let mut model = polysift_encoder::load(&config.encoder, &hub)?;
    model.encoder = Arc::new(FailsAt(FakeEncoder::new(2), fails_at));
    model.placement.gpus = (0..gpus).collect();
    let plan = polysift_corpus::plan::plan(&config)?;
    let outcome = embed(context, &plan, Some(&model));
    let (mut parts, mut done) = (Vec::new(), 0);
    for shard in &plan.shards {
        for index in 0..run.part_markers(shard)?.len() {
            let path = run.embeddings_part(shard, index);
            parts.push(std::fs::read(&path).map_err(Error::io(&path, "read"))?);
        }
        done += usize::from(run.is_done(Stage::Embed, &shard.name)?);
    }
    Ok((outcome, parts, done))
}

#[test]
fn several_streams_write_what_one_writes() -> Result<()> {
    let (outcome, one, done) = embed_on(1, usize::MAX)?;
    outcome?;
    assert_eq!((one.len(), done), (36, 12));
    let (outcome, eight, done) = embed_on(8, usize::MAX)?;
    outcome?;
    assert_eq!((eight == one, done), (true, 12));
    Ok(())
}

#[test]
fn the_failure_of_one_stream_ends_the_others() -> Result<()> {
    let (outcome, _, done) = embed_on(8, 5)?;
    assert!(outcome.is_err_and(|e| e.to_string().contains("fake")) && done < 12, "{done}");
    Ok(())
}
