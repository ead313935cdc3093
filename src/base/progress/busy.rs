//! Measures how long each concurrent part of a stage was at work.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::panics::lock;

/// Working time of a part of a stage, which runs in one thread or several.
#[derive(Debug)]
pub struct Busy {
    /// The word for the activity in the summary ("encoding").
    pub activity: &'static str,
    state: Mutex<BusyState>,
}

#[derive(Debug, Default)]
struct BusyState {
    at_work: usize,
    /// Start of the current working period, if any thread is at work.
    since: Option<Instant>,
    /// Total duration of all finished working periods.
    total: Duration,
}

/// A guard: time counts as working time until it is dropped.
#[derive(Debug)]
pub struct AtWork<'a>(&'a Busy);

impl Busy {
    /// Returns a timer with no time counted.
    pub fn new(activity: &'static str) -> Self {
        Self { activity, state: Mutex::default() }
    }

    /// Counts time until the returned guard is dropped. Time that threads share counts once.
    pub fn work(&self) -> AtWork<'_> {
        let mut state = lock(&self.state);
        state.at_work += 1;
        state.since.get_or_insert_with(Instant::now);
        AtWork(self)
    }

    /// Returns the time in which at least one thread was at work.
    pub fn time(&self) -> Duration {
        let state = lock(&self.state);
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
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
        // A sleep takes at least `nap`; the four together take at most `at_work`.
        assert!((nap..=at_work).contains(&busy.time()), "{:?} of {at_work:?}", busy.time());
        assert_eq!(busy.time(), busy.time(), "nothing is at work");
    }
}
