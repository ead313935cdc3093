//! What the threads share: their state, the queues between them, and the steps that pass through.
//!
//! The size of a queue is bounded in bytes, not in items: many small files fill it as well as a few
//! large ones, and neither long nor numerous documents make it grow.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::{self as channel, RecvTimeoutError};

use polysift_base::error::{Error, Result};
use polysift_base::panics::{lock, unpoisoned};
use polysift_base::progress::{Busy, STOP_POLL};
use polysift_corpus::left_out::LeftOut;
use polysift_corpus::work::Failures;
use polysift_corpus::{Cascade, Context};
use polysift_data::input::Reject;
use polysift_data::parts::EmbeddingRows;
use polysift_encoder::Model;
use polysift_fasttext::LanguageIdentifier;
use polysift_runs::run::{Claims, Encoded, Shard};

/// The shards that this process claims, and its progress.
pub(super) struct Pipeline<'a> {
    pub(super) context: Context<'a>,
    pub(super) shards: &'a [Shard],
    pub(super) claims: &'a Claims<'a>,
    /// `None` if no text is embedded.
    pub(super) model: Option<&'a Model>,
    /// Identifies the language of every text, if the settings name a classifier.
    pub(super) languages: Option<LanguageIdentifier>,
    pub(super) failures: Mutex<Failures<'a>>,
    /// Whether a stream has failed; the others then end too.
    pub(super) is_broken: AtomicBool,
    pub(super) counts_tokens: bool,
    pub(super) cascade: &'a Cascade,
    pub(super) reading: Busy,
    pub(super) tokenizing: Busy,
    pub(super) encoding: Busy,
    pub(super) writing: Busy,
}

/// A message between threads, in the order of the input.
pub(super) enum Step {
    Batch(Box<ChunkBatch>),
    PartEnd(PartEnd),
    ShardEnd {
        shard: usize,
    },
    /// The shard and its current part failed; without a shard, no more shards can be claimed.
    Failed {
        shard: Option<usize>,
        error: Error,
    },
}

impl Step {
    /// Returns the shard of the step; `None` if no more shards can be claimed.
    pub(super) fn shard(&self) -> Option<usize> {
        match self {
            Self::Batch(batch) => Some(batch.shard),
            Self::PartEnd(PartEnd { shard, .. }) | Self::ShardEnd { shard } => Some(*shard),
            Self::Failed { shard, .. } => *shard,
        }
    }

    /// Returns the bytes that a batch takes in memory; 1 for other steps.
    fn memory(&self) -> usize {
        let Self::Batch(batch) = self else { return 1 };
        let EmbeddingRows { documents, values, .. } = &batch.rows;
        let tokens = batch.chunks.iter().map(Vec::as_slice).map(size_of_val);
        documents.memory() + tokens.sum::<usize>() + size_of_val(values.as_slice())
    }
}

/// The end of a part, known once all of it was read.
pub(super) struct PartEnd {
    pub(super) shard: usize,
    pub(super) index: usize,
    pub(super) next_row: u64,
    pub(super) rejects: Vec<Reject>,
}

/// Consecutive documents of a part, and their chunks once they are tokenized.
#[derive(Default)]
pub(super) struct ChunkBatch {
    pub(super) shard: usize,
    pub(super) index: usize,
    /// The documents, without texts once they are tokenized, and embeddings that are known.
    pub(super) rows: EmbeddingRows,
    /// Rows that the cascade leaves out of the shard.
    pub(super) left_out: Arc<LeftOut>,
    /// Embeddings of the part from before a stop, until they are copied.
    pub(super) saved: Option<Arc<EmbeddingRows>>,
    /// `input_ids` of all chunks; empty if the input contains embeddings.
    pub(super) chunks: Vec<Vec<u32>>,
    /// Amounts of the batch, but for `documents` and `rejects`.
    pub(super) encoded: Encoded,
    /// For each chunk, whether `rows` has its embedding.
    pub(super) is_encoded: Vec<bool>,
    /// Number of chunks that the encoding threads have not encoded yet.
    pub(super) missing: usize,
    pub(super) input_bytes: u64,
}

impl ChunkBatch {
    /// Returns true if all chunks of document `i` have embeddings; also if it has no chunk.
    pub(super) fn has_embeddings(&self, i: usize) -> bool {
        let chunks = self.rows.chunk_offsets[i]..self.rows.chunk_offsets[i + 1];
        self.is_encoded[chunks].iter().all(|is_encoded| *is_encoded)
    }

    /// Copies the embeddings of these documents that `saved` contains.
    pub(super) fn take_saved(&mut self, saved: &EmbeddingRows) {
        let width = saved.hidden_size;
        for (i, row) in self.rows.documents.rows().iter().enumerate() {
            let chunks = self.rows.chunk_offsets[i]..self.rows.chunk_offsets[i + 1];
            let Ok(place) = saved.documents.rows().binary_search(row) else { continue };
            let values = saved.chunks(place);
            // A part whose documents were all dropped has no width.
            if values.is_empty() || values.len() != chunks.len() * width {
                continue;
            }
            self.rows.values.resize(self.is_encoded.len() * width, 0.0);
            self.rows.values[chunks.start * width..chunks.end * width].copy_from_slice(values);
            self.is_encoded[chunks].fill(true);
        }
    }

    pub(super) fn num_chunks(&self) -> usize {
        self.rows.chunk_offsets.last().copied().unwrap_or(0)
    }

    /// Adds the next document of the batch, with this number of chunks.
    pub(super) fn push_chunks(&mut self, num_chunks: usize) {
        self.encoded.chunks += num_chunks as u64;
        self.rows.chunk_offsets.push(self.num_chunks() + num_chunks);
    }
}

/// The items of a queue by their weight, which threads wait for.
struct Load {
    limit: usize,
    /// Weight of the items; `None` once the receiver is gone. A panic cannot leave it inconsistent.
    weight: Mutex<Option<usize>>,
    changed: Condvar,
}

/// The end of a queue that items go into; when it is dropped, the receiver ends.
pub(super) struct Sender<T>(channel::Sender<(T, usize)>, Arc<Load>);

pub(super) struct Receiver<T>(channel::Receiver<(T, usize)>, Arc<Load>);

/// Creates a queue with at most `limit` total weight; a heavier item is accepted alone.
pub(super) fn queue<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let load = Arc::new(Load { limit, weight: Mutex::new(Some(0)), changed: Condvar::new() });
    let (sender, receiver) = channel::unbounded();
    (Sender(sender, Arc::clone(&load)), Receiver(receiver, load))
}

impl<T> Sender<T> {
    /// Adds `item` once there is room for its `weight`; [`Error::Stopped`] without a receiver.
    pub(super) fn send(&self, item: T, weight: usize) -> Result<()> {
        let Load { limit, weight: held, changed } = &*self.1;
        let is_full =
            |held: &mut Option<usize>| held.is_some_and(|held| held > 0 && held + weight > *limit);
        let mut held = unpoisoned(changed.wait_while(lock(held), is_full));
        *held.as_mut().ok_or(Error::Stopped)? += weight;
        self.0.send((item, weight)).map_err(|_| Error::Stopped)
    }
}

impl Sender<Step> {
    pub(super) fn send_step(&self, step: Step) -> Result<()> {
        let memory = step.memory();
        self.send(step, memory)
    }
}

impl<T> Receiver<T> {
    /// Waits for the oldest item and takes it; `None` if the queue is empty and the sender is gone.
    pub(super) fn recv(&self) -> Option<T> {
        self.recv_until(|| false)
    }

    /// Like [`Receiver::recv`], but returns `None` without waiting once `is_over`.
    pub(super) fn recv_until(&self, is_over: impl Fn() -> bool) -> Option<T> {
        let mut wait = Duration::ZERO;
        let (item, weight) = loop {
            match self.0.recv_timeout(wait) {
                Ok(weighed) => break weighed,
                Err(RecvTimeoutError::Timeout) if !is_over() => wait = STOP_POLL,
                Err(_) => return None,
            }
        };
        if let Some(held) = &mut *lock(&self.1.weight) {
            *held -= weight;
        }
        self.1.changed.notify_all();
        Some(item)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        *lock(&self.1.weight) = None;
        self.1.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use polysift_data::input::{DocumentBatch, DocumentInfo};

    use super::*;

    #[test]
    fn items_come_out_in_order_and_those_left_outlive_the_sender() {
        let (sender, receiver) = queue(100);
        assert!((0..3).all(|i| sender.send(i, 1).is_ok()));
        drop(sender);
        assert_eq!(std::iter::from_fn(|| receiver.recv()).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn documents_without_embeddings_weigh_what_they_hold() {
        let id = "<urn:uuid:0123456789>".repeat(3);
        let document = |row| DocumentInfo {
            row,
            id: &id,
            language: "fra_Latn",
            num_bytes: 1,
            num_tokens: None,
        };
        let mut batch = ChunkBatch::default();
        batch.rows.documents = (0..1000).map(document).collect();
        // Per document: 4 bytes each for the ends of id and language, 8 each for row and size.
        let least = 1000 * (id.len() + 4 + "fra_Latn".len() + 4 + 8 + 8);
        let alone = Step::Batch(Box::new(std::mem::take(&mut batch))).memory();
        assert!((least..3 * least).contains(&alone), "{alone}, at least {least}");
        batch.chunks = vec![vec![7; 30]; 2];
        batch.rows.values = vec![0.5; 16];
        let none = Step::Batch(Box::default()).memory();
        assert_eq!(Step::Batch(Box::new(batch)).memory(), none + 4 * (2 * 30 + 16));
    }

    #[test]
    fn a_part_whose_documents_were_all_dropped_has_no_saved_embeddings() {
        let document =
            DocumentInfo { row: 4, id: "a", language: "fra_Latn", num_bytes: 1, num_tokens: None };
        let documents = || std::iter::once(document).collect::<DocumentBatch>();
        let saved = EmbeddingRows {
            documents: documents(),
            chunk_offsets: vec![0, 0],
            values: Vec::new(),
            hidden_size: 0,
        };
        let mut batch = ChunkBatch { is_encoded: vec![false], ..ChunkBatch::default() };
        (batch.rows.documents, batch.rows.chunk_offsets) = (documents(), vec![0, 1]);
        batch.take_saved(&saved);
        assert!(!batch.has_embeddings(0), "it would be all zeros");
    }

    #[test]
    fn a_sender_learns_that_nobody_listens_even_while_it_waits() {
        let (sender, receiver) = queue(1);
        assert!(sender.send((), 1).is_ok());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send((), 1));
            drop(receiver);
            assert!(waiting.join().is_ok_and(|sent| matches!(sent, Err(Error::Stopped))));
        });
    }

    #[test]
    fn no_more_is_held_than_allowed_but_for_one_heavy_item() {
        let (sender, receiver) = queue(10);
        assert!(sender.send("heavy", 25).is_ok());
        assert_eq!(receiver.recv(), Some("heavy"));
        assert!(sender.send("a", 4).is_ok() && sender.send("b", 4).is_ok());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send("c", 4));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished(), "12 are in");
            assert_eq!(receiver.recv(), Some("a"));
            assert!(waiting.join().is_ok_and(|sent| sent.is_ok()));
        });
    }
}
