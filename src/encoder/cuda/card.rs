//! A card at work: it takes batches from the queue until that is closed or the card fails.

use std::collections::HashMap;

use polysift_kernels::cuda::{Device, DeviceInfo, Result};

use super::algorithms::AlgorithmCache;
use super::forward::{Plan, choose_attention, search};
use super::model::{HostModel, Model};
use super::queue::{Job, Queue};
use super::slot::Slot;
use super::thread_ended;

/// Batches on the card at a time: while one ends, the other fills the multiprocessors.
const SLOTS: usize = 2;

/// A card with the model and its memory. It stays in the thread that opened it.
pub(super) struct Card {
    // Fields are dropped in order: the graphs of the slots before what they use.
    slots: Vec<Slot>,
    /// By number of rows.
    plans: HashMap<usize, Plan>,
    /// A batch that no slot has yet.
    waiting: Option<Job>,
    model: Model,
    cache: AlgorithmCache,
    device: Device,
}

impl Card {
    /// Opens card `ordinal`, copies the model there and takes all memory that batches of up to
    /// `tokens` rows need.
    pub(super) fn open(
        ordinal: usize,
        host: &HostModel,
        tokens: usize,
        cache: AlgorithmCache,
    ) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let mut model = Model::copy(&device.stream()?, host)?;
        let slots = (0..SLOTS).map(|_| Slot::new(&device, host.shape, tokens));
        let mut slots = slots.collect::<Result<Vec<_>>>()?;
        let Slot { stream, arena, .. } = &mut slots[0];
        model.attention = choose_attention(stream, host.shape, arena)?;
        Ok(Self { slots, plans: HashMap::new(), waiting: None, model, cache, device })
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Computes what the queue holds until it is closed. A card that fails says so and hands its
    /// batches back.
    pub(super) fn serve(mut self, queue: &Queue) {
        let ordinal = self.device.ordinal();
        let _watch = Watch { queue, ordinal };
        if let Err(error) = self.work(queue) {
            tracing::error!(card = ordinal, "a card is lost: {error}");
            let jobs = self.slots.iter_mut().filter_map(Slot::abandon).chain(self.waiting.take());
            queue.card_failed(jobs.collect(), &error);
        }
    }

    fn work(&mut self, queue: &Queue) -> Result<()> {
        let mut next = 0;
        loop {
            let idle = self.slots.iter().all(|slot| !slot.is_busy());
            self.waiting = if idle { queue.take() } else { queue.try_take() };
            if let Some(bucket) = self.waiting.as_ref().map(|job| job.bucket) {
                self.finish(next)?;
                let mut plan = self.take_plan(bucket, next)?;
                if let Some(job) = self.waiting.take() {
                    self.slots[next].start(job, &self.model, &mut plan)?;
                }
                self.plans.insert(bucket, plan);
            } else if idle {
                return Ok(());
            } else {
                // Nothing to start: the older of the two is the one that is needed next.
                self.finish(next)?;
            }
            next = (next + 1) % SLOTS;
        }
    }

    fn finish(&mut self, slot: usize) -> Result<()> {
        let width = self.model.shape.width;
        self.slots[slot].finish(width)
    }

    /// The plan for batches of `tokens` rows, made now if there is none; `slot` is free.
    fn take_plan(&mut self, tokens: usize, slot: usize) -> Result<Plan> {
        if let Some(plan) = self.plans.remove(&tokens) {
            return Ok(plan);
        }
        // Timings count only while nothing else runs.
        for other in 0..SLOTS {
            self.finish(other)?;
        }
        let Self { slots, model, cache, device, .. } = self;
        let Slot { stream, arena, .. } = &mut slots[slot];
        cache.open(device);
        let plan = Plan::new(model, device, tokens, |which, matmul| {
            cache.algorithm(matmul, |matmul| search(which, matmul, stream, model, arena))
        })?;
        cache.save();
        Ok(plan)
    }
}

/// Tells the queue when the thread of a card panics, so that nobody waits for it.
struct Watch<'a> {
    queue: &'a Queue,
    ordinal: usize,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.queue.card_failed(Vec::new(), &thread_ended(self.ordinal));
        }
    }
}
