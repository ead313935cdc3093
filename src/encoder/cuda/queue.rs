//! The queue of batches for the GPUs, which gives the batches of a failed GPU to another one.
//!
//! When the last GPU fails, all waiting batches get its error.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use polysift_kernels::cuda::CudaError;

use polysift_base::batch::PackedBatch;
use polysift_base::panics::{lock, unpoisoned};

/// Embeddings `[B, D]`, or the error.
type BatchResult = Result<Vec<f32>, CudaError>;

/// A batch for which a caller waits.
pub(super) struct BatchJob {
    pub(super) batch: PackedBatch,
    /// Number of rows that the batch is computed with.
    pub(super) bucket: usize,
    /// Whether a GPU failed with the batch.
    has_failed: bool,
    reply: Sender<BatchResult>,
}

impl BatchJob {
    pub(super) fn new(batch: PackedBatch, bucket: usize) -> (Self, Receiver<BatchResult>) {
        let (reply, result) = bounded(1);
        (Self { batch, bucket, has_failed: false, reply }, result)
    }

    /// Sends `result` to the caller that waits.
    pub(super) fn answer(self, result: BatchResult) {
        // The caller waits for it, unless its thread has panicked.
        let _ = self.reply.send(result);
    }
}

pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    jobs: VecDeque<BatchJob>,
    /// Number of working GPUs.
    devices: usize,
    closed: bool,
    /// Error of the GPU that failed last, if all have failed.
    failure: Option<CudaError>,
}

impl Queue {
    pub(super) fn new(devices: usize) -> Self {
        let state = QueueState { jobs: VecDeque::new(), devices, closed: false, failure: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Queues a job, or answers it with an error if no GPU is left.
    pub(super) fn put(&self, job: BatchJob) {
        let mut state = lock(&self.state);
        if let Some(failure) = &state.failure {
            job.answer(Err(failure.clone()));
        } else {
            state.jobs.push_back(job);
            self.changed.notify_one();
        }
    }

    /// Returns the next job if one comes within `limit`; without a limit, waits for one and returns
    /// `None` once the queue is closed and empty.
    pub(super) fn take(&self, limit: Option<Duration>) -> Option<BatchJob> {
        let waits =
            |state: &mut QueueState| state.jobs.is_empty() && !(limit.is_none() && state.closed);
        let state = lock(&self.state);
        let mut state = match limit {
            None => unpoisoned(self.changed.wait_while(state, waits)),
            Some(limit) => unpoisoned(self.changed.wait_timeout_while(state, limit, waits)).0,
        };
        state.jobs.pop_front()
    }

    /// Makes [`Self::take`] return `None`, to callers without a limit, once no job is left.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Removes a GPU that failed with `jobs`. Another GPU takes these before the waiting jobs. Jobs
    /// that failed twice, or have no GPU left, are answered with `failure`.
    pub(super) fn device_failed(&self, jobs: Vec<BatchJob>, failure: &CudaError) {
        let mut lost = Vec::new();
        let mut state = lock(&self.state);
        state.devices -= 1;
        for mut job in jobs.into_iter().rev() {
            if job.has_failed {
                lost.push(job);
            } else {
                job.has_failed = true;
                state.jobs.push_front(job);
            }
        }
        if state.devices == 0 {
            state.failure = Some(failure.clone());
            lost.extend(state.jobs.drain(..));
        }
        drop(state);
        self.changed.notify_all();
        for job in lost {
            job.answer(Err(failure.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(ordinal: usize) -> CudaError {
        CudaError::Driver { ordinal, action: "testing", message: "boom".into() }
    }

    fn job(tokens: u32) -> (BatchJob, Receiver<BatchResult>) {
        let mut batch = PackedBatch::default();
        batch.push(&vec![5; tokens as usize]);
        BatchJob::new(batch, 528)
    }

    #[test]
    fn jobs_are_taken_in_order_until_the_queue_is_closed_and_empty() {
        let queue = Queue::new(1);
        for tokens in 1..4 {
            queue.put(job(tokens).0);
        }
        queue.close();
        let taken = std::iter::from_fn(|| queue.take(None));
        assert!(taken.map(|job| job.batch.num_tokens()).eq(1..4));
        assert!(queue.take(Some(Duration::ZERO)).is_none());
    }

    #[test]
    fn a_job_is_waited_for_as_long_as_is_said() {
        let queue = Queue::new(1);
        let start = std::time::Instant::now();
        assert!(queue.take(Some(Duration::from_millis(20))).is_none());
        assert!(start.elapsed() >= Duration::from_millis(20));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                queue.put(job(1).0);
            });
            assert!(queue.take(Some(Duration::from_secs(30))).is_some());
        });
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_jobs_of_a_failed_device_go_to_another_one_before_those_that_wait() {
        let queue = Queue::new(2);
        for tokens in [3, 4] {
            queue.put(job(tokens).0);
        }
        queue.device_failed(vec![job(1).0, job(2).0], &failure(0));
        let taken = std::iter::from_fn(|| queue.take(Some(Duration::ZERO)));
        assert!(taken.map(|job| job.batch.num_tokens()).eq(1..5));
    }

    #[test]
    fn a_job_that_failed_on_two_devices_is_an_error_and_the_others_are_not() {
        let queue = Queue::new(3);
        let ((bad, result), (good, other)) = (job(1), job(2));
        queue.device_failed(vec![bad], &failure(0));
        let bad = queue.take(Some(Duration::ZERO)).into_iter().collect();
        queue.put(good);
        queue.device_failed(bad, &failure(1));
        assert_eq!(result.try_recv(), Ok(Err(failure(1))));
        assert!(other.try_recv().is_err());
        assert_eq!(queue.take(Some(Duration::ZERO)).map(|job| job.batch.num_tokens()), Some(2));
    }

    #[test]
    fn when_the_last_device_fails_all_who_wait_are_told_and_so_is_who_comes_later() {
        let queue = Queue::new(1);
        let ((first, mine), (waiting, second), (late, third)) = (job(1), job(2), job(3));
        queue.put(waiting);
        queue.device_failed(vec![first], &failure(0));
        queue.put(late);
        for result in [mine, second, third] {
            assert_eq!(result.try_recv(), Ok(Err(failure(0))));
        }
    }

    #[test]
    fn a_result_comes_back_to_the_caller() {
        let (job, result) = job(1);
        job.answer(Ok(vec![1.0, 2.0]));
        assert_eq!(result.recv(), Ok(Ok(vec![1.0, 2.0])));
    }
}
