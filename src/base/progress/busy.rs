//! For how long one of the parts of a stage that work side by side was at work.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::panics::lock;

/// A part of a stage, in one thread or in several.
#[derive(Debug)]
pub struct Busy {
    activity: &'static str,
    state: Mutex<BusyState>,
}

#[derive(Debug, Default)]
struct BusyState {
    /// Threads at work.
    at_work: usize,
    /// Since when there is one.
    since: Option<Instant>,
    /// Time in which there was at least one, up to the last moment in which there was none.
    total: Duration,
}

/// Work that is being timed.
#[derive(Debug)]
pub struct AtWork<'a>(&'a Busy);

impl Busy {
    /// Nothing was done yet; `activity` is the word in the summary ("encoding").
    pub fn new(activity: &'static str) -> Self {
        Self { activity, state: Mutex::default() }
    }

    /// What is timed.
    pub fn activity(&self) -> &'static str {
        self.activity
    }

    /// Counts the time until what is returned is dropped; time that threads share counts once.
    pub fn work(&self) -> AtWork<'_> {
        let mut state = self.lock();
        state.at_work += 1;
        state.since.get_or_insert_with(Instant::now);
        AtWork(self)
    }

    /// Time in which there was work.
    pub fn time(&self) -> Duration {
        let state = self.lock();
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// What a thread that panicked left is still a time.
    fn lock(&self) -> MutexGuard<'_, BusyState> {
        lock(&self.state)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.at_work -= 1;
        if state.at_work == 0
            && let Some(since) = state.since.take()
        {
            state.total += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_threads_share_counts_once_and_idle_time_does_not() {
        let nap = Duration::from_millis(40);
        let busy = Busy::new("sleeping");
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let _work = busy.work();
                    std::thread::sleep(nap);
                });
            }
        });
        let at_work = began.elapsed();
        std::thread::sleep(nap);
        // Sleeping takes no less than it is asked for; the four together no more than was measured.
        assert!((nap..=at_work).contains(&busy.time()), "{:?} of {at_work:?}", busy.time());
        assert_eq!(busy.time(), busy.time(), "nothing is at work");
    }
}
