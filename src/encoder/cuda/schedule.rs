//! In which order a GPU takes batches and answers them.
//!
//! Knows nothing of GPUs: the test runs it on a model of one, by a clock of its own.

use std::time::Duration;

/// Batches on the GPU at a time: while one ends, the other fills the multiprocessors.
pub(super) const SLOTS: usize = 2;

/// How long a free slot waits for a batch before the busy ones are looked at again.
const POLL: Duration = Duration::from_micros(100);

/// What is directed: [`SLOTS`] slots, and where their batches come from.
pub(super) trait Work {
    type Job;
    type Error;

    /// The next batch, if one comes within `limit`; without a limit `None` if there will be no more.
    fn take(&mut self, limit: Option<Duration>) -> Option<Self::Job>;

    /// Begins `job` in a slot that is free.
    fn start(&mut self, slot: usize, job: Self::Job) -> Result<(), Self::Error>;

    /// Whether the batch of a slot is done, if it has one.
    fn is_done(&self, slot: usize) -> Result<bool, Self::Error>;

    /// Answers the batch of a slot, if it has one; waits for it.
    fn finish(&mut self, slot: usize) -> Result<(), Self::Error>;
}

/// Computes until there are no more batches. A result is given to its caller at once, as the next
/// batch comes from there; a slot that is free takes the next batch whatever the other one does.
pub(super) fn run<W: Work>(work: &mut W) -> Result<(), W::Error> {
    // Slots at work, in the order in which they began.
    let mut busy: Vec<usize> = Vec::with_capacity(SLOTS);
    loop {
        for slot in std::mem::take(&mut busy) {
            if work.is_done(slot)? {
                work.finish(slot)?;
            } else {
                busy.push(slot);
            }
        }
        let free = (0..SLOTS).find(|slot| !busy.contains(slot));
        let Some(slot) = free else {
            // The one that began first ends first.
            work.finish(busy.remove(0))?;
            continue;
        };
        match work.take((!busy.is_empty()).then_some(POLL)) {
            Some(job) => {
                work.start(slot, job)?;
                busy.push(slot);
            }
            None if busy.is_empty() => return Ok(()),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::IN_FLIGHT_PER_DEVICE;
    use super::*;

    /// A GPU and its callers; times in seconds of its own clock. The GPU computes one batch after
    /// another; a thread that waits goes on [`WAKE`] after what it waits for.
    struct Model {
        now: f64,
        /// Of a batch, on the GPU.
        duration: f64,
        /// Between the answer to a caller and its next batch.
        pause: f64,
        /// When the callers come with their next batch.
        arrivals: Vec<f64>,
        /// Batches that are still to come.
        left: usize,
        /// When the batch of each slot is done.
        ends: [Option<f64>; SLOTS],
        /// When the GPU is done with all batches.
        end: f64,
        /// How long it had nothing to do between batches.
        idle: f64,
    }

    /// To put a batch together and to start it.
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
        type Job = ();
        type Error = Infallible;

        fn take(&mut self, limit: Option<Duration>) -> Option<()> {
            self.take_before(limit.map_or(f64::INFINITY, |limit| self.now + limit.as_secs_f64()))
        }

        fn start(&mut self, slot: usize, (): ()) -> Result<(), Infallible> {
            assert!(self.ends[slot].is_none(), "the slot is free");
            self.now += PACK;
            if self.end > 0.0 {
                self.idle += (self.now - self.end).max(0.0);
            }
            self.end = self.end.max(self.now) + self.duration;
            self.ends[slot] = Some(self.end);
            Ok(())
        }

        fn is_done(&self, slot: usize) -> Result<bool, Infallible> {
            Ok(self.ends[slot].is_none_or(|end| end <= self.now))
        }

        fn finish(&mut self, slot: usize) -> Result<(), Infallible> {
            if let Some(end) = self.ends[slot].take() {
                if end > self.now {
                    self.now = end + WAKE;
                }
                self.arrivals.push(self.now + self.pause);
            }
            Ok(())
        }
    }

    #[test]
    fn a_device_is_not_idle_while_there_are_batches() {
        // Batches of 33,792, 16,896, 8,448 and 4,224 tokens; callers that come back at once, and late. Even
        // one caller less than there are is enough.
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
