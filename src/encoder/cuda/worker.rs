//! A GPU at work: it takes batches from the queue until that is closed or the GPU fails.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use polysift_kernels::cuda::{
    CudaError, Device, DeviceInfo, Graph, Pinned, Result, Staged, Stream, max_sequences,
};

use super::super::weights::Blob;
use super::algorithms::AlgorithmCache;
use super::forward::{Arena, ProductPlan, choose_attention, forward, search};
use super::model::{DeviceModel, ModelShape};
use super::queue::{BatchJob, Queue};
use super::schedule::{SLOTS, Work, run};

/// Full batches that run with algorithms that were not measured; with the next one the fastest are
/// searched, for which the GPU does nothing else for about a second. Batches that are not full are few.
const BATCHES_BEFORE_SEARCH: usize = 2;

/// A GPU with the model and its memory.
pub(super) struct DeviceWorker {
    // Fields are dropped in order: the graphs of the slots before what they use.
    slots: Vec<StreamSlot>,
    /// By number of rows.
    plans: HashMap<usize, BucketPlan>,
    /// Rows of full batches.
    largest: usize,
    /// A batch that no slot has yet.
    waiting: Option<BatchJob>,
    model: DeviceModel,
    cache: AlgorithmCache,
    device: Device,
    queue: Arc<Queue>,
}

struct BucketPlan {
    plan: ProductPlan,
    /// Batches that were started with it.
    batches: usize,
    /// Whether all its algorithms were searched, now or in an earlier process, or need not be.
    is_searched: bool,
}

impl DeviceWorker {
    /// Loads the model with the weights in `files` onto `device`, which will serve `queue`, and takes
    /// all memory there that batches of up to `largest` rows need.
    pub(super) fn new(
        device: Device,
        (files, shape): (&Arc<[Blob]>, &ModelShape),
        largest: usize,
        queue: Arc<Queue>,
    ) -> polysift_base::Result<Self> {
        let mut model = DeviceModel::load(&device.stream()?, files, shape.clone())?;
        let slots = (0..SLOTS).map(|_| StreamSlot::new(&device, shape, largest));
        let mut slots = slots.collect::<Result<Vec<_>>>()?;
        let StreamSlot { stream, arena, .. } = &mut slots[0];
        model.attention = choose_attention(stream, shape, arena)?;
        let cache = AlgorithmCache::open(&device);
        let plans = HashMap::new();
        Ok(Self { slots, plans, largest, waiting: None, model, cache, device, queue })
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Computes what the queue holds until it is closed. A GPU that fails says so and hands its
    /// batches back.
    pub(super) fn serve(mut self) {
        let (queue, ordinal) = (Arc::clone(&self.queue), self.device.ordinal());
        let _watch = Watch { queue: &queue, ordinal };
        if let Err(error) = run(&mut self) {
            tracing::error!(device = ordinal, "a GPU is lost: {error}");
            let jobs = self.slots.iter_mut().filter_map(|slot| slot.job.take());
            queue.device_failed(jobs.chain(self.waiting.take()).collect(), &error);
        }
    }

    /// Sees to a plan for the next batch of `tokens` rows. Its algorithms are a first choice; of full batches
    /// those that are kept, and where none are, later the fastest. `slot` is free.
    fn plan_for(&mut self, tokens: usize, slot: usize) -> Result<()> {
        let searches = match self.plans.get(&tokens) {
            None => false,
            Some(plan) if plan.is_searched || plan.batches < BATCHES_BEFORE_SEARCH => return Ok(()),
            Some(_) => true,
        };
        if searches {
            // Timings count only while nothing else runs.
            for other in 0..SLOTS {
                self.finish(other)?;
                self.slots[other].forget(tokens);
            }
        }
        let Self { slots, model, cache, device, .. } = self;
        let StreamSlot { stream, arena, .. } = &mut slots[slot];
        let is_full = tokens == self.largest;
        let mut is_searched = true;
        let plan = ProductPlan::new(model, device, tokens, |which, matmul| {
            let weights = model.first_weights(which);
            if !is_full {
                return matmul.first_choice(weights);
            }
            let kept = cache.kept(matmul.shape());
            let kept = kept.and_then(|kernel| matmul.restore(weights, kernel));
            tracing::debug!(?which, tokens, is_kept = kept.is_some(), "choosing an algorithm");
            if let Some(kept) = kept {
                return Ok(kept);
            }
            if !searches {
                is_searched = false;
                return matmul.first_choice(weights);
            }
            let algorithm = search(which, matmul, stream, model, arena)?;
            cache.keep(matmul, &algorithm);
            Ok(algorithm)
        })?;
        cache.save();
        self.plans.insert(tokens, BucketPlan { plan, batches: 0, is_searched });
        Ok(())
    }
}

impl Work for DeviceWorker {
    type Job = BatchJob;
    type Error = CudaError;

    fn take(&mut self, limit: Option<Duration>) -> Option<BatchJob> {
        self.queue.take(limit)
    }

    fn start(&mut self, slot: usize, job: BatchJob) -> Result<()> {
        let bucket = job.bucket;
        self.waiting = Some(job);
        self.plan_for(bucket, slot)?;
        let Self { slots, plans, waiting, model, .. } = self;
        if let (Some(plan), Some(job)) = (plans.get_mut(&bucket), waiting.take()) {
            plan.batches += 1;
            slots[slot].start(job, model, &plan.plan)?;
        }
        Ok(())
    }

    fn is_done(&self, slot: usize) -> Result<bool> {
        self.slots[slot].is_done()
    }

    fn finish(&mut self, slot: usize) -> Result<()> {
        let width = self.model.shape.architecture.width;
        self.slots[slot].finish(width)
    }
}

/// Reports to the queue that the thread of a GPU has panicked: nobody is to wait for it.
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
    fn new(device: &Device, shape: &ModelShape, tokens: usize) -> Result<Self> {
        Ok(Self {
            stream: device.stream()?,
            arena: Arena::new(device, shape, tokens)?,
            buckets: HashMap::new(),
            result: device.alloc_pinned(max_sequences(tokens) * shape.architecture.width)?,
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

    /// Starts `job`; the slot must not be busy. After an error the job is still in the slot.
    fn start(&mut self, job: BatchJob, model: &DeviceModel, plan: &ProductPlan) -> Result<()> {
        let BatchJob { batch, bucket, .. } = &*self.job.insert(job);
        let width = model.shape.architecture.width;
        let state = match self.buckets.entry(*bucket) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let staged = Staged::new(&self.stream, *bucket, model.shape.limits())?;
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
