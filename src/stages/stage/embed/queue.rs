//! What passes between the threads: documents in batches, and where parts and shards end.
//!
//! A queue is bounded by the bytes of its items and not by their number, so that many small files
//! fill it as well as a few large ones, and neither long documents nor many short ones swell it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::stage::cascaded::CascadeRows;
use polysift_base::error::Error;
use polysift_base::panics::{lock, unpoisoned};
use polysift_base::progress::STOP_POLL;
use polysift_data::input::{DocumentBatch, Reject};
use polysift_data::parts::EmbeddingRows;

/// What passes from thread to thread, in the order of the input.
pub(super) enum Step<B> {
    /// Documents of the part in work.
    Batch(B),
    /// The part is complete.
    PartEnd(PartEnd),
    /// The shard is.
    ShardEnd { shard: usize },
    /// The shard cannot be done, and so neither its part in work; `None`: no more shards can be had.
    Failed { shard: Option<usize>, error: Error },
}

impl<B> Step<B> {
    /// The same for another kind of batch.
    pub(super) fn map<C>(self, batch: impl FnOnce(B) -> Step<C>) -> Step<C> {
        match self {
            Self::Batch(documents) => batch(documents),
            Self::PartEnd(end) => Step::PartEnd(end),
            Self::ShardEnd { shard } => Step::ShardEnd { shard },
            Self::Failed { shard, error } => Step::Failed { shard, error },
        }
    }
}

impl Step<ChunkBatch> {
    /// Bytes that it takes in memory.
    pub(super) fn memory(&self) -> usize {
        let Self::Batch(ChunkBatch { documents, chunks, values, .. }) = self else { return 1 };
        let tokens = chunks.iter().map(Vec::as_slice).map(size_of_val);
        documents.memory() + tokens.sum::<usize>() + size_of_val(values.as_slice())
    }
}

/// What is known of a part once all of it was read.
pub(super) struct PartEnd {
    /// Place in the plan.
    pub(super) shard: usize,
    pub(super) index: usize,
    pub(super) next_row: u64,
    pub(super) rejects: Vec<Reject>,
}

/// Consecutive documents of a part.
pub(super) struct TextBatch {
    /// Place in the plan.
    pub(super) shard: usize,
    /// The part.
    pub(super) index: usize,
    pub(super) documents: DocumentBatch,
    /// What a cascade leaves out of the shard.
    pub(super) cascade: Arc<CascadeRows>,
    /// What was encoded of the part before a stop.
    pub(super) saved: Option<Arc<EmbeddingRows>>,
    /// Bytes of the input that were read for the documents.
    pub(super) input_bytes: u64,
}

/// Documents of a part, whose texts became chunks.
#[derive(Default)]
pub(super) struct ChunkBatch {
    /// Position among the shards to do.
    pub(super) shard: usize,
    /// The part.
    pub(super) index: usize,
    /// Without their texts.
    pub(super) documents: DocumentBatch,
    /// `[documents + 1]`, as in [`polysift_data::parts::EmbeddingRows`].
    pub(super) chunk_offsets: Vec<usize>,
    /// `input_ids` of all chunks; none where the input brought its embeddings along.
    pub(super) chunks: Vec<Vec<u32>>,
    /// Sum of their lengths.
    pub(super) tokens: usize,
    /// Documents with text that a cascade left without chunks.
    pub(super) dropped: u64,
    /// Documents with text whose embedding is null in the input.
    pub(super) without_embedding: u64,
    /// By chunk: whether its embedding is among the values.
    pub(super) is_encoded: Vec<bool>,
    /// Embeddings of all chunks, once there are.
    pub(super) values: Vec<f32>,
    pub(super) hidden_size: usize,
    /// Bytes of the input that were read for the documents.
    pub(super) input_bytes: u64,
}

impl ChunkBatch {
    /// `documents` of the part of `texts`, which have no chunks so far.
    pub(super) fn new(texts: &TextBatch) -> Self {
        let &TextBatch { shard, index, input_bytes, .. } = texts;
        Self { shard, index, input_bytes, chunk_offsets: vec![0], ..Self::default() }
    }

    /// Whether all chunks of document `i` are encoded.
    pub(super) fn is_encoded(&self, i: usize) -> bool {
        self.is_encoded[self.chunk_offsets[i]..self.chunk_offsets[i + 1]].iter().all(|is| *is)
    }

    /// Takes over what `saved` holds of the documents.
    pub(super) fn take_saved(&mut self, saved: &EmbeddingRows) {
        let width = saved.hidden_size;
        for (i, row) in self.documents.rows().iter().enumerate() {
            let chunks = self.chunk_offsets[i]..self.chunk_offsets[i + 1];
            let Ok(place) = saved.documents.rows().binary_search(row) else { continue };
            let values = saved.chunks(place);
            if chunks.is_empty() || values.len() != chunks.len() * width {
                continue;
            }
            self.values.resize(self.is_encoded.len() * width, 0.0);
            self.values[chunks.start * width..chunks.end * width].copy_from_slice(values);
            self.is_encoded[chunks].fill(true);
        }
    }

    /// Number of chunks.
    pub(super) fn num_chunks(&self) -> usize {
        self.chunk_offsets.last().copied().unwrap_or(0)
    }

    /// Appends the number of chunks of the next document.
    pub(super) fn push(&mut self, num_chunks: usize) {
        self.chunk_offsets.push(self.num_chunks() + num_chunks);
    }

    /// Takes `documents` over, of all of which the chunks are there, without their texts.
    pub(super) fn take_documents(&mut self, mut documents: DocumentBatch) {
        documents.drop_texts();
        self.documents = documents;
    }
}

struct Shared<T> {
    limit: usize,
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

struct QueueState<T> {
    items: VecDeque<(T, usize)>,
    weight: usize,
    is_disconnected: bool,
}

impl<T> Shared<T> {
    /// A thread that panics holds no item half way.
    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        lock(&self.state)
    }

    fn disconnect(&self) {
        self.lock().is_disconnected = true;
        self.changed.notify_all();
    }
}

/// The end that puts in.
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// The end that takes out.
pub(super) struct Receiver<T>(Arc<Shared<T>>);

/// The other end is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Disconnected;

/// A queue whose items weigh at most `limit` together; an item that is heavier goes in alone.
pub(super) fn queue<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let state = QueueState { items: VecDeque::new(), weight: 0, is_disconnected: false };
    let shared = Arc::new(Shared { limit, state: Mutex::new(state), changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts `item` in as soon as there is room for its `weight`.
    pub(super) fn send(&self, item: T, weight: usize) -> Result<(), Disconnected> {
        let mut state = self.0.lock();
        while !state.is_disconnected && state.weight > 0 && state.weight + weight > self.0.limit {
            state = unpoisoned(self.0.changed.wait(state));
        }
        if state.is_disconnected {
            return Err(Disconnected);
        }
        state.weight += weight;
        state.items.push_back((item, weight));
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes the oldest item, if one is there.
    pub(super) fn try_recv(&self) -> Option<T> {
        self.take(&mut self.0.lock())
    }

    fn take(&self, state: &mut QueueState<T>) -> Option<T> {
        let (item, weight) = state.items.pop_front()?;
        state.weight -= weight;
        self.0.changed.notify_all();
        Some(item)
    }

    /// Takes the oldest item, waiting for one; `None` once all are taken and no more can come.
    pub(super) fn recv(&self) -> Option<T> {
        self.recv_until(|| false)
    }

    /// As [`Receiver::recv`], but it does not wait any more once it `is_over`.
    pub(super) fn recv_until(&self, is_over: impl Fn() -> bool) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            let item = self.take(&mut state);
            if item.is_some() || state.is_disconnected || is_over() {
                return item;
            }
            state = unpoisoned(self.0.changed.wait_timeout(state, STOP_POLL)).0;
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.disconnect();
        self.0.lock().items.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn items_come_out_in_order_and_those_left_outlive_the_sender() {
        let (sender, receiver) = queue(100);
        assert!((0..3).all(|i| sender.send(i, 1) == Ok(())));
        drop(sender);
        assert_eq!(std::iter::from_fn(|| receiver.recv()).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn documents_without_embeddings_weigh_what_they_hold() {
        let id = "<urn:uuid:0123456789>".repeat(3);
        let document = |row| polysift_data::input::DocumentInfo {
            row,
            id: &id,
            language: "fra_Latn",
            num_bytes: 1,
            num_tokens: None,
        };
        let mut batch =
            ChunkBatch { documents: (0..1000).map(document).collect(), ..ChunkBatch::default() };
        // Four bytes say where an id and a language end, eight are the row and its bytes each.
        let least = 1000 * (id.len() + 4 + "fra_Latn".len() + 4 + 8 + 8);
        let alone = Step::Batch(std::mem::take(&mut batch)).memory();
        assert!((least..3 * least).contains(&alone), "{alone}, at least {least}");
        batch.chunks = vec![vec![7; 30]; 2];
        batch.values = vec![0.5; 16];
        let none = Step::Batch(ChunkBatch::default()).memory();
        assert_eq!(Step::Batch(batch).memory(), none + 4 * (2 * 30 + 16));
    }

    #[test]
    fn a_sender_learns_that_nobody_listens_even_while_it_waits() {
        let (sender, receiver) = queue(1);
        assert_eq!(sender.send((), 1), Ok(()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send((), 1));
            drop(receiver);
            assert!(waiting.join().is_ok_and(|sent| sent == Err(Disconnected)));
        });
    }

    #[test]
    fn no_more_is_held_than_allowed_but_for_one_heavy_item() {
        let (sender, receiver) = queue(10);
        assert_eq!((sender.send("heavy", 25), receiver.recv()), (Ok(()), Some("heavy")));
        assert_eq!((sender.send("a", 4), sender.send("b", 4)), (Ok(()), Ok(())));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send("c", 4));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiting.is_finished(), "12 are in");
            assert_eq!(receiver.recv(), Some("a"));
            assert!(waiting.join().is_ok_and(|sent| sent == Ok(())));
        });
    }
}
