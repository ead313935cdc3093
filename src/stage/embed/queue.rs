//! A queue between two threads, bounded by what its items weigh and not by their number, so that
//! many small files fill it as well as a few large ones, and long documents do not swell it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::panics::{lock, unpoisoned};

struct Shared<T> {
    limit: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    weight: usize,
    hung_up: bool,
}

impl<T> Shared<T> {
    /// A thread that panics holds no item half way.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    fn hang_up(&self) {
        self.lock().hung_up = true;
        self.changed.notify_all();
    }
}

/// The end that puts in.
pub(super) struct Sender<T>(Arc<Shared<T>>);

/// The end that takes out.
pub(super) struct Receiver<T>(Arc<Shared<T>>);

/// The other end is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HungUp;

/// A queue whose items weigh at most `limit` together; an item that is heavier goes in alone.
pub(super) fn queue<T>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), weight: 0, hung_up: false };
    let shared = Arc::new(Shared { limit, state: Mutex::new(state), changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts `item` in as soon as there is room for its `weight`.
    pub(super) fn send(&self, item: T, weight: usize) -> Result<(), HungUp> {
        let mut state = self.0.lock();
        while !state.hung_up && state.weight > 0 && state.weight + weight > self.0.limit {
            state = unpoisoned(self.0.changed.wait(state));
        }
        if state.hung_up {
            return Err(HungUp);
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

    fn take(&self, state: &mut State<T>) -> Option<T> {
        let (item, weight) = state.items.pop_front()?;
        state.weight -= weight;
        self.0.changed.notify_all();
        Some(item)
    }

    /// Takes the oldest item, waiting for one; `None` once all are taken and no more can come.
    pub(super) fn recv(&self) -> Option<T> {
        let mut state = self.0.lock();
        loop {
            let item = self.take(&mut state);
            if item.is_some() || state.hung_up {
                return item;
            }
            state = unpoisoned(self.0.changed.wait(state));
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.hang_up();
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
    fn a_sender_learns_that_nobody_listens_even_while_it_waits() {
        let (sender, receiver) = queue(1);
        assert_eq!(sender.send((), 1), Ok(()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| sender.send((), 1));
            drop(receiver);
            assert!(waiting.join().is_ok_and(|sent| sent == Err(HungUp)));
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
