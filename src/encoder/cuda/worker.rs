//! A GPU at work: it takes batches from the queue until that is closed or the GPU fails.

use std::collections::HashMap;
use std::time::Duration;

use polysift_kernels::cuda::{CudaError, Device, DeviceInfo, Result};

use super::algorithms::AlgorithmCache;
use super::forward::{Plan, choose_attention, first_choice, restore, search};
use super::model::{HostModel, Model};
use super::queue::{Job, Queue};
use super::schedule::{SLOTS, Work, run};
use super::slot::Slot;
use super::thread_ended;

/// Batches of a bucket that run with algorithms that were not measured; with the next one the
/// fastest are searched, for which the GPU does nothing else for about a second.
const BATCHES_BEFORE_SEARCH: usize = 2;

/// A GPU with the model and its memory.
pub(super) struct DeviceWorker {
    // Fields are dropped in order: the graphs of the slots before what they use.
    slots: Vec<Slot>,
    /// By number of rows.
    plans: HashMap<usize, BucketPlan>,
    /// A batch that no slot has yet.
    waiting: Option<Job>,
    model: Model,
    cache: AlgorithmCache,
    device: Device,
}

struct BucketPlan {
    plan: Plan,
    /// Batches that were started with it.
    batches: usize,
    /// Whether all its algorithms were searched, now or in an earlier process.
    is_searched: bool,
}

impl DeviceWorker {
    /// Copies the model to `device` and takes all memory there that batches of up to `tokens` rows
    /// need.
    pub(super) fn new(
        device: Device,
        host: &HostModel,
        tokens: usize,
        mut cache: AlgorithmCache,
    ) -> Result<Self> {
        let mut model = Model::copy(&device.stream()?, host)?;
        let slots = (0..SLOTS).map(|_| Slot::new(&device, host.shape, tokens));
        let mut slots = slots.collect::<Result<Vec<_>>>()?;
        let Slot { stream, arena, .. } = &mut slots[0];
        model.attention = choose_attention(stream, host.shape, arena)?;
        cache.open(&device);
        Ok(Self { slots, plans: HashMap::new(), waiting: None, model, cache, device })
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Computes what the queue holds until it is closed. A GPU that fails says so and hands its
    /// batches back.
    pub(super) fn serve(mut self, queue: &Queue) {
        let ordinal = self.device.ordinal();
        let _watch = Watch { queue, ordinal };
        if let Err(error) = run(&mut Serving { worker: &mut self, queue }) {
            tracing::error!(device = ordinal, "a GPU is lost: {error}");
            let jobs = self.slots.iter_mut().filter_map(Slot::abandon).chain(self.waiting.take());
            queue.device_failed(jobs.collect(), &error);
        }
    }

    /// Starts `job` in `slot`, which is free.
    fn start(&mut self, slot: usize, job: Job) -> Result<()> {
        let bucket = job.bucket;
        self.waiting = Some(job);
        self.plan_for(bucket, slot)?;
        let Self { slots, plans, waiting, model, .. } = self;
        if let (Some(planned), Some(job)) = (plans.get_mut(&bucket), waiting.take()) {
            planned.batches += 1;
            slots[slot].start(job, model, &planned.plan)?;
        }
        Ok(())
    }

    fn finish(&mut self, slot: usize) -> Result<()> {
        let width = self.model.shape.width;
        self.slots[slot].finish(width)
    }

    /// Sees to a plan for the next batch of `tokens` rows; `slot` is free.
    fn plan_for(&mut self, tokens: usize, slot: usize) -> Result<()> {
        let planned = match self.plans.get(&tokens) {
            None => self.first_plan(tokens)?,
            Some(planned) if planned.is_searched || planned.batches < BATCHES_BEFORE_SEARCH => {
                return Ok(());
            }
            Some(_) => self.searched_plan(tokens, slot)?,
        };
        self.plans.insert(tokens, planned);
        Ok(())
    }

    /// A plan with the algorithms that are kept, and where there are none with a first choice.
    fn first_plan(&self, tokens: usize) -> Result<BucketPlan> {
        let mut is_searched = true;
        let plan = Plan::new(&self.model, &self.device, tokens, |which, matmul| {
            let kept = self.cache.kept(matmul.shape());
            let kept = kept.and_then(|kernel| restore(which, matmul, &self.model, kernel));
            is_searched &= kept.is_some();
            tracing::debug!(?which, tokens, is_kept = kept.is_some(), "choosing an algorithm");
            kept.map_or_else(|| first_choice(which, matmul, &self.model), Ok)
        })?;
        Ok(BucketPlan { plan, batches: 0, is_searched })
    }

    /// A plan with the fastest algorithms.
    fn searched_plan(&mut self, tokens: usize, slot: usize) -> Result<BucketPlan> {
        // Timings count only while nothing else runs.
        for other in 0..SLOTS {
            self.finish(other)?;
            self.slots[other].forget(tokens);
        }
        let Self { slots, model, cache, device, .. } = self;
        let Slot { stream, arena, .. } = &mut slots[slot];
        let plan = Plan::new(model, device, tokens, |which, matmul| {
            let kept = cache.kept(matmul.shape());
            if let Some(kept) = kept.and_then(|kernel| restore(which, matmul, model, kernel)) {
                return Ok(kept);
            }
            let algorithm = search(which, matmul, stream, model, arena)?;
            cache.keep(matmul, &algorithm);
            Ok(algorithm)
        })?;
        cache.save();
        Ok(BucketPlan { plan, batches: 0, is_searched: true })
    }
}

/// A GPU with the queue that it serves.
struct Serving<'a> {
    worker: &'a mut DeviceWorker,
    queue: &'a Queue,
}

impl Work for Serving<'_> {
    type Job = Job;
    type Error = CudaError;

    fn take(&mut self) -> Option<Job> {
        self.queue.take()
    }

    fn take_within(&mut self, limit: Duration) -> Option<Job> {
        self.queue.take_within(limit)
    }

    fn start(&mut self, slot: usize, job: Job) -> Result<()> {
        self.worker.start(slot, job)
    }

    fn is_done(&self, slot: usize) -> Result<bool> {
        self.worker.slots[slot].is_done()
    }

    fn finish(&mut self, slot: usize) -> Result<()> {
        self.worker.finish(slot)
    }
}

/// Tells the queue when the thread of a GPU panics, so that nobody waits for it.
struct Watch<'a> {
    queue: &'a Queue,
    ordinal: usize,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.device_failed(Vec::new(), &thread_ended(self.ordinal));
        }
    }
}
