//! The order in which a GPU takes batches and answers them.
//!
//! The module knows nothing of GPUs: its test runs it on a model of one with its own clock.

use std::time::Duration;

/// Maximum batches on a GPU: while one is computed, the next is copied there and waits.
pub(super) const SLOTS: usize = 2;

/// Time that a free slot waits for a batch before the busy slots are checked again.
const POLL: Duration = Duration::from_micros(100);

/// The [`SLOTS`] slots of a GPU, and the source of their batches.
pub(super) trait Work {
    type Error;

    /// Starts the next batch in a free slot. Returns false if none comes within `limit` or, without
    /// a limit, at all.
    fn start(&mut self, slot: usize, limit: Option<Duration>) -> Result<bool, Self::Error>;

    /// Answers the batch of a busy slot, which is then free, if it is done or after a wait if
    /// `waits`. Returns false if the slot stays busy.
    fn finish(&mut self, slot: usize, waits: bool) -> Result<bool, Self::Error>;
}

/// Runs until there are no more batches. A result goes to its caller immediately, because the
/// caller then brings a new batch; a free slot takes a batch whatever the other slot does.
pub(super) fn run<W: Work>(work: &mut W) -> Result<(), W::Error> {
    // Busy slots, in the order in which they started.
    let mut busy: Vec<usize> = Vec::with_capacity(SLOTS);
    loop {
        for slot in std::mem::take(&mut busy) {
            if !work.finish(slot, false)? {
                busy.push(slot);
            }
        }
        let Some(slot) = (0..SLOTS).find(|slot| !busy.contains(slot)) else {
            // The slot that started first ends first.
            work.finish(busy.remove(0), true)?;
            continue;
        };
        if work.start(slot, (!busy.is_empty()).then_some(POLL))? {
            busy.push(slot);
        } else if busy.is_empty() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::IN_FLIGHT_PER_DEVICE;
    use super::*;

    /// A GPU and its callers, with times in seconds of its own clock. The GPU computes one batch
    /// after another; a waiting thread continues [`WAKE`] after the event that it waits for.
    struct Model {
        now: f64,
        /// Time that a batch takes on the GPU.
        duration: f64,
        /// Time between the answer to a caller and its next batch.
        pause: f64,
        /// Times at which the callers bring their next batch.
        arrivals: Vec<f64>,
        /// Number of batches that are still to come.
        left: usize,
        /// Time at which the batch of each slot is done.
        ends: [Option<f64>; SLOTS],
        /// Time at which the GPU is done with all batches.
        end: f64,
        /// Total time that the GPU was idle between batches.
        idle: f64,
    }

    /// Time to assemble and start a batch.
    const PACK: f64 = 0.12e-3;
    const WAKE: f64 = 0.05e-3;

    impl Model {
        fn new(duration: f64, pause: f64, callers: usize) -> Self {
            let (arrivals, ends) = (vec![0.0; callers], [None; SLOTS]);
            Self { now: 0.0, duration, pause, arrivals, left: 2_000, ends, end: 0.0, idle: 0.0 }
        }

        fn take_before(&mut self, limit: f64) -> Option<()> {
            let next = self.arrivals.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
            let next = next.filter(|&(_, &at)| self.left > 0 && at <= limit);
            let Some((i, &at)) = next else {
                self.now = limit + WAKE;
                return None;
            };
            if at > self.now {
                self.now = at + WAKE;
            }
            self.arrivals.swap_remove(i);
            self.left -= 1;
            Some(())
        }
    }

    impl Work for Model {
        type Error = Infallible;

        fn start(&mut self, slot: usize, limit: Option<Duration>) -> Result<bool, Infallible> {
            assert!(self.ends[slot].is_none(), "the slot is free");
            let until = limit.map_or(f64::INFINITY, |limit| self.now + limit.as_secs_f64());
            if self.take_before(until).is_none() {
                return Ok(false);
            }
            self.now += PACK;
            if self.end > 0.0 {
                self.idle += (self.now - self.end).max(0.0);
            }
            self.end = self.end.max(self.now) + self.duration;
            self.ends[slot] = Some(self.end);
            Ok(true)
        }

        fn finish(&mut self, slot: usize, waits: bool) -> Result<bool, Infallible> {
            assert!(self.ends[slot].is_some(), "the slot is busy");
            let end = self.ends[slot].unwrap_or_default();
            if end > self.now {
                if !waits {
                    return Ok(false);
                }
                self.now = end + WAKE;
            }
            self.ends[slot] = None;
            self.arrivals.push(self.now + self.pause);
            Ok(true)
        }
    }

    #[test]
    fn a_device_is_not_idle_while_there_are_batches() {
        // Batches have 33,792, 16,896, 8,448 and 4,224 tokens; callers come back immediately or
        // late. One caller fewer than there are is also enough.
        for duration in [11.2e-3, 5.6e-3, 2.8e-3, 1.4e-3] {
            for pause in [0.1e-3, 0.15e-3, 0.25e-3, 0.5e-3, 1.0e-3] {
                for callers in [IN_FLIGHT_PER_DEVICE - 1, IN_FLIGHT_PER_DEVICE] {
                    let mut device = Model::new(duration, pause, callers);
                    let Ok(()) = run(&mut device);
                    assert_eq!((device.left, device.ends), (0, [None; SLOTS]), "all are answered");
                    let idle = device.idle / device.end;
                    assert!(idle <= 0.016, "{idle}: {duration} s a batch, {pause} s between");
                }
            }
        }
    }
}
