//! A GPU at work: it takes batches from the queue until that is closed or the GPU fails.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use polysift_kernels::cuda::{
    CudaError, Device, DeviceInfo, Graph, Pinned, Result, Staged, Stream, max_sequences,
};

use super::algorithms::AlgorithmCache;
use super::forward::{
    Arena, ProductPlan, choose_attention, first_choice, forward, restore, search,
};
use super::model::{DeviceModel, HostModel, ModelShape};
use super::queue::{BatchJob, Queue};
use super::schedule::{SLOTS, Work, run};

/// Batches of a bucket that run with algorithms that were not measured; with the next one the
/// fastest are searched, for which the GPU does nothing else for about a second.
const BATCHES_BEFORE_SEARCH: usize = 2;

/// A GPU with the model and its memory.
pub(super) struct DeviceWorker {
    // Fields are dropped in order: the graphs of the slots before what they use.
    slots: Vec<StreamSlot>,
    /// By number of rows.
    plans: HashMap<usize, BucketPlan>,
    /// A batch that no slot has yet.
    waiting: Option<BatchJob>,
    model: DeviceModel,
    cache: AlgorithmCache,
    device: Device,
}

struct BucketPlan {
    plan: ProductPlan,
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
        let mut model = DeviceModel::copy(&device.stream()?, host)?;
        let slots = (0..SLOTS).map(|_| StreamSlot::new(&device, host.shape, tokens));
        let mut slots = slots.collect::<Result<Vec<_>>>()?;
        let StreamSlot { stream, arena, .. } = &mut slots[0];
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
            let jobs =
                self.slots.iter_mut().filter_map(StreamSlot::abandon).chain(self.waiting.take());
            queue.device_failed(jobs.collect(), &error);
        }
    }

    /// Starts `job` in `slot`, which is free.
    fn start(&mut self, slot: usize, job: BatchJob) -> Result<()> {
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
        let plan = ProductPlan::new(&self.model, &self.device, tokens, |which, matmul| {
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
        let StreamSlot { stream, arena, .. } = &mut slots[slot];
        let plan = ProductPlan::new(model, device, tokens, |which, matmul| {
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
    type Job = BatchJob;
    type Error = CudaError;

    fn take(&mut self) -> Option<BatchJob> {
        self.queue.take()
    }

    fn take_within(&mut self, limit: Duration) -> Option<BatchJob> {
        self.queue.take_within(limit)
    }

    fn start(&mut self, slot: usize, job: BatchJob) -> Result<()> {
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

/// What becomes of a batch whose thread is gone.
pub(super) fn thread_ended(ordinal: usize) -> CudaError {
    CudaError::Driver { ordinal, action: "computing", message: "its thread has ended".into() }
}

/// One batch on a GPU: a stream with memory of its own.
struct StreamSlot {
    stream: Stream,
    arena: Arena,
    /// By number of rows.
    buckets: HashMap<usize, Bucket>,
    /// `[T / 4, H]`: the result on the host.
    result: Pinned<f32>,
    /// The batch that is under way.
    job: Option<BatchJob>,
}

struct Bucket {
    staged: Staged,
    /// The forward pass, from its second run on: the first one runs kernel by kernel, as libraries
    /// load and prepare what a recording would not take.
    graph: Option<Graph>,
}

impl StreamSlot {
    /// A slot for batches of up to `tokens` rows.
    fn new(device: &Device, shape: ModelShape, tokens: usize) -> Result<Self> {
        Ok(Self {
            stream: device.stream()?,
            arena: Arena::new(device, shape, tokens)?,
            buckets: HashMap::new(),
            result: device.alloc_pinned(max_sequences(tokens) * shape.width)?,
            job: None,
        })
    }

    /// Whether no batch is under way, or the one that was is done.
    fn is_done(&self) -> Result<bool> {
        Ok(self.job.is_none() || self.result.is_ready()?)
    }

    /// Forgets the graph for batches of `tokens` rows, as there is a better plan; the slot must not
    /// be busy.
    fn forget(&mut self, tokens: usize) {
        if let Some(bucket) = self.buckets.get_mut(&tokens) {
            bucket.graph = None;
        }
    }

    /// The batch that is under way, taken back.
    fn abandon(&mut self) -> Option<BatchJob> {
        self.job.take()
    }

    /// Starts `job`; the slot must not be busy. After an error the job is still in the slot.
    fn start(&mut self, job: BatchJob, model: &DeviceModel, plan: &ProductPlan) -> Result<()> {
        let BatchJob { batch, bucket, .. } = &*self.job.insert(job);
        let width = model.shape.width;
        let state = match self.buckets.entry(*bucket) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let staged = Staged::new(&self.stream, *bucket, model.shape.limits)?;
                entry.insert(Bucket { staged, graph: None })
            }
        };
        state.staged.put(&self.stream, &batch.input_ids, &batch.cu_seqlens)?;
        if let Some(graph) = &state.graph {
            graph.launch()?;
        } else {
            forward(&self.stream, model, plan, &state.staged, &mut self.arena)?;
        }
        let values = batch.num_sequences() * width;
        self.stream.copy_out(&self.arena.embeddings, &mut self.result, values)?;
        if state.graph.is_none() {
            let record =
                |stream: &Stream| forward(stream, model, plan, &state.staged, &mut self.arena);
            state.graph = Some(self.stream.record(record)?);
        }
        Ok(())
    }

    /// Waits for the batch that is under way, if there is one, and answers it. After an error the
    /// job is still in the slot.
    fn finish(&mut self, width: usize) -> Result<()> {
        let Some(job) = self.job.take() else { return Ok(()) };
        match self.result.values() {
            Ok(values) => {
                let own = values[..job.batch.num_sequences() * width].to_vec();
                job.answer(Ok(own));
                Ok(())
            }
            Err(error) => {
                self.job = Some(job);
                Err(error)
            }
        }
    }
}
