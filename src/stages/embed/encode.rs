//! The encoding threads: pack the chunks of many documents into batches of similar lengths and
//! assign the embeddings back to the documents.
//!
//! ```text
//! plan ──packed batches──▶ encode ──embeddings──▶ collect ──documents, in order──▶
//!   └────────────────────documents──────────────────▲
//! ```
//!
//! Several packed batches are in flight, so that no thread of a CPU waits for the end of a batch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{self as channel, RecvTimeoutError};

use super::queue::{ChunkBatch, Receiver, Sender, Step};
use polysift_base::batch::{PackedBatch, plan_batches};
use polysift_base::error::{Error, Result};
use polysift_base::progress::{Busy, STOP_POLL};
use polysift_corpus::Context;
use polysift_encoder::{self as encoder, Encoder};

/// Maximum batches per batch in flight whose chunks are sorted by length together.
const BATCHES_PLANNED: usize = 4;
/// If a window takes longer, the next is smaller, so slow machines finish their first shards soon.
const PLANNED_TIME: Duration = Duration::from_secs(2);
/// Polling interval of the planning thread, a fraction of the time of a batch on a GPU.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(super) struct Encoding<'a> {
    context: Context<'a>,
    encoder: &'a dyn Encoder,
    busy: &'a Busy,
    in_flight: usize,
    batch_tokens: usize,
}

/// A packed batch, with the chunk that each of its embeddings belongs to.
type EncodeJob = (PackedBatch, Vec<ChunkPlace>);

/// Number of a step of the input, and of a chunk in it.
type ChunkPlace = (usize, usize);

/// Message to the collecting thread.
enum Event {
    /// The next step of the input; its chunks are on their way to the encoding threads.
    Step(Step),
    /// Embeddings of a batch of `tokens` tokens.
    Encoded { places: Vec<ChunkPlace>, tokens: usize, embeddings: Result<Vec<f32>> },
}

/// Chunks that are not in a batch yet.
#[derive(Default)]
struct Window {
    chunks: Vec<(ChunkPlace, Vec<u32>)>,
    tokens: usize,
    /// Number of chunks at the front that were already left over once.
    left_over: usize,
}

impl Window {
    fn push(&mut self, place: ChunkPlace, ids: Vec<u32>) {
        self.tokens += ids.len();
        self.chunks.push((place, ids));
    }
}

impl<'a> Encoding<'a> {
    /// Makes the encoding threads of one of `num_streams` streams.
    pub(super) fn new(
        context: Context<'a>,
        encoder: &'a dyn Encoder,
        num_streams: usize,
        busy: &'a Busy,
    ) -> Self {
        let in_flight = encoder.info().in_flight.div_ceil(num_streams).max(1);
        let batch_tokens = encoder::batch_tokens(&context.config.encoder, encoder);
        Self { context, encoder, busy, in_flight, batch_tokens }
    }

    /// Returns the maximum tokens of the chunks that are sorted by length together.
    pub(super) fn window(&self) -> usize {
        self.batch_tokens.saturating_mul(BATCHES_PLANNED * self.in_flight)
    }

    /// Encodes the steps of `from_tokenize` and sends them to `to_write` in the same order.
    pub(super) fn run(
        &self,
        from_tokenize: &Receiver<Step>,
        to_write: &Sender<Step>,
    ) -> Result<()> {
        let (to_encode, jobs) = channel::bounded(self.in_flight);
        let (to_collect, events) = channel::bounded(self.in_flight);
        let is_collected = AtomicBool::new(false);
        // The planning thread polls this: it may be that no encoder or reader is left to wake it.
        let is_over = || self.context.stop.is_asked() || is_collected.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..self.in_flight {
                let (jobs, to_collect) = (jobs.clone(), to_collect.clone());
                scope.spawn(move || self.encode_batches(&jobs, &to_collect));
            }
            // When the last encoding thread ends, the queue of jobs closes, which `plan` notices.
            drop(jobs);
            scope.spawn(move || self.plan(from_tokenize, &to_encode, &to_collect, &is_over));
            let outcome = self.collect(&events, to_write);
            is_collected.store(true, Ordering::Relaxed);
            drop(events); // senders notice that the receiver is gone
            outcome
        })?;
        self.context.stop.check()
    }

    /// Makes batches of the chunks until there are no more, or `is_over`; returns `None` if a
    /// receiver is gone. The thread that had the receiver reports the error.
    fn plan(
        &self,
        from_tokenize: &Receiver<Step>,
        to_encode: &channel::Sender<EncodeJob>,
        to_collect: &channel::Sender<Event>,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> Option<()> {
        let mut window = Window::default();
        let mut step_number = 0;
        let least = self.batch_tokens.saturating_mul(self.in_flight);
        let mut limit = least;
        while !is_over() {
            let next = from_tokenize.recv_until(|| true); // does not wait
            if next.is_none() {
                // Batches still wait to be encoded, so the window can wait for more chunks.
                if !window.chunks.is_empty() && !to_encode.is_empty() {
                    std::thread::sleep(LOOK_AGAIN);
                    continue;
                }
                self.send_batches(&mut window, true, to_encode).ok()?;
            }
            let Some(mut step) = next.or_else(|| from_tokenize.recv_until(is_over)) else {
                return self.send_batches(&mut window, false, to_encode).ok();
            };
            if let Step::Batch(batch) = &mut step {
                for (chunk, ids) in std::mem::take(&mut batch.chunks).into_iter().enumerate() {
                    if !batch.is_encoded[chunk] {
                        window.push((step_number, chunk), ids);
                    }
                }
            }
            step_number += 1;
            to_collect.send(Event::Step(step)).ok()?;
            if window.tokens >= limit {
                let began = Instant::now();
                self.send_batches(&mut window, true, to_encode).ok()?;
                let is_soon = began.elapsed() < PLANNED_TIME;
                let next = if is_soon { limit.saturating_mul(2) } else { limit / 2 };
                limit = next.clamp(least, self.window());
            }
        }
        Some(())
    }

    /// Empties `window` into batches. The last batch is seldom full: if more is to come, its chunks
    /// stay in the window, but none of them for a second time.
    fn send_batches(
        &self,
        window: &mut Window,
        more_is_to_come: bool,
        to_encode: &channel::Sender<EncodeJob>,
    ) -> Result<(), channel::SendError<EncodeJob>> {
        let Window { mut chunks, left_over, .. } = std::mem::take(window);
        let lengths: Vec<usize> = chunks.iter().map(|(_, ids)| ids.len()).collect();
        let most = self.encoder.info().max_sequences;
        let mut groups = plan_batches(&lengths, self.batch_tokens, most);
        let may_wait = |last: &mut Vec<usize>| last.iter().all(|&i| i >= left_over);
        for i in groups.pop_if(|last| more_is_to_come && may_wait(last)).unwrap_or_default() {
            window.push(chunks[i].0, std::mem::take(&mut chunks[i].1));
        }
        window.left_over = window.chunks.len();
        for group in groups {
            let mut batch = PackedBatch::default();
            for &i in &group {
                batch.push(&chunks[i].1);
            }
            to_encode.send((batch, group.into_iter().map(|i| chunks[i].0).collect()))?;
        }
        Ok(())
    }

    /// Encodes batches until there are no more or a stop is requested.
    fn encode_batches(
        &self,
        jobs: &channel::Receiver<EncodeJob>,
        to_collect: &channel::Sender<Event>,
    ) {
        let stop = self.context.stop;
        while !stop.is_asked() {
            let (batch, mut places) = match jobs.recv_timeout(STOP_POLL) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut tokens = batch.num_tokens();
            let width = self.encoder.info().embedding_size;
            let mut embeddings = vec![f32::NAN; places.len() * width];
            let encoded = {
                let _busy = self.busy.work();
                let _span = tracing::trace_span!("encode", tokens, chunks = places.len()).entered();
                self.encoder.encode(&batch, &mut embeddings, stop)
            };
            let embeddings = match encoded {
                Err(Error::Stopped) => {
                    tokens = 0; // throughput counts whole batches
                    Ok(keep_done(&mut places, &embeddings, width))
                }
                encoded => encoded.map(|()| embeddings),
            };
            if to_collect.send(Event::Encoded { places, tokens, embeddings }).is_err() {
                return;
            }
        }
    }

    /// Assigns embeddings to their documents and sends complete steps. After a stop it also sends
    /// incomplete steps with their embeddings, without waiting for reading and tokenizing: the
    /// other threads end then, which closes the queue of events.
    fn collect(&self, events: &channel::Receiver<Event>, to_write: &Sender<Step>) -> Result<()> {
        let width = self.encoder.info().embedding_size;
        let (stop, progress) = (self.context.stop, self.context.progress);
        // Steps that have not been sent yet.
        let mut open: VecDeque<Step> = VecDeque::new();
        let mut passed = 0;
        let is_done = |step: &mut Step| !matches!(step, Step::Batch(batch) if batch.missing > 0);
        while let Ok(event) = events.recv() {
            match event {
                Event::Step(mut step) => {
                    let (documents, bytes) = match &mut step {
                        Step::Batch(batch) => batch.begin(width),
                        _ => (0, 0),
                    };
                    progress.input(bytes, 0);
                    progress.advance(documents, 0);
                    open.push_back(step);
                }
                Event::Encoded { places, tokens, embeddings } => {
                    let (mut documents, mut bytes) = (0, 0);
                    for (place, values) in places.iter().zip(embeddings?.chunks_exact(width)) {
                        let &(step, chunk) = place;
                        let step = step.checked_sub(passed).and_then(|i| open.get_mut(i));
                        let Some(Step::Batch(batch)) = step else {
                            let reason = "an embedding of no open documents";
                            return Err(Error::shape("encode", reason));
                        };
                        let before = batch.done();
                        batch.rows.values[chunk * width..][..width].copy_from_slice(values);
                        batch.is_encoded[chunk] = true;
                        batch.missing -= 1;
                        documents += batch.done().0 - before.0;
                        bytes += batch.done().1 - before.1;
                    }
                    progress.input(bytes, 0);
                    progress.advance(documents, tokens as u64);
                }
            }
            while !stop.is_asked()
                && let Some(step) = open.pop_front_if(is_done)
            {
                passed += 1;
                if to_write.send_step(step).is_err() {
                    return Ok(()); // the writer reports its error
                }
            }
        }
        // Steps that a stop left incomplete, with the embeddings they have.
        for step in open {
            if to_write.send_step(step).is_err() {
                break; // the writer reports its error
            }
        }
        Ok(())
    }
}

/// Returns the finished embeddings of a batch that a stop ended (not NaN), and keeps their places.
fn keep_done(places: &mut Vec<ChunkPlace>, embeddings: &[f32], width: usize) -> Vec<f32> {
    let mut done = Vec::new();
    let mut rows = embeddings.chunks_exact(width);
    places.retain(|_| {
        let row = rows.next().filter(|row| row.iter().all(|value| value.is_finite()));
        done.extend_from_slice(row.unwrap_or_default());
        row.is_some()
    });
    done
}

impl ChunkBatch {
    /// Makes room for embeddings of `width` values; returns [`ChunkBatch::done`].
    fn begin(&mut self, width: usize) -> (u64, u64) {
        self.missing = self.is_encoded.iter().filter(|is_encoded| !**is_encoded).count();
        self.rows.hidden_size = width;
        self.rows.values.resize(self.num_chunks() * width, 0.0);
        self.done()
    }

    /// Returns the documents and the input bytes that are encoded, in proportion to chunks.
    fn done(&self) -> (u64, u64) {
        let (all, missing) = (self.num_chunks() as u64, self.missing as u64);
        let done = |of: u64| (of * (all - missing)).checked_div(all).unwrap_or(of);
        (done(self.rows.documents.len() as u64), done(self.input_bytes))
    }
}
