//! The worker of a GPU, which takes batches from the queue until it is closed or the GPU fails.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use polysift_kernels::cuda::{
    CudaError, Device, DeviceInfo, Graph, Pinned, Result, Staged, Stream, max_sequences,
};

use super::super::weights::Blob;
use super::forward::{Arena, ModelInstructions, forward};
use super::model::{DeviceModel, ModelShape};
use super::queue::{BatchJob, Queue};
use super::schedule::{SLOTS, Work, run};
use polysift_base::panics::caught;

/// A GPU with the model and its memory.
pub(super) struct DeviceWorker {
    // Fields are dropped in order: the graphs of the slots before the memory that they use.
    slots: Vec<BatchSlot>,
    lane: Lane,
    model: DeviceModel,
    instructions: ModelInstructions,
    device: Device,
    queue: Arc<Queue>,
}

impl DeviceWorker {
    /// Loads the model with the weights in `files` onto `device`, which will serve `queue`, and
    /// allocates all memory there that batches of up to `largest` rows need.
    pub(super) fn new(
        device: Device,
        (files, shape): (&Arc<[Blob]>, &ModelShape),
        largest: usize,
        queue: Arc<Queue>,
    ) -> polysift_base::Result<Self> {
        let stream = device.stream()?;
        let model = DeviceModel::load(&stream, files, shape.clone())?;
        let mut lane = Lane { stream, arena: Arena::new(&device, shape, largest)? };
        let slots = (0..SLOTS).map(|_| BatchSlot::new(&device, shape, largest));
        let slots = slots.collect::<Result<_>>()?;
        let instructions =
            ModelInstructions::choose(&lane.stream, &model, &mut lane.arena, largest)?;
        Ok(Self { slots, lane, model, instructions, device, queue })
    }

    pub(super) fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Computes batches from the queue until it is closed. If the GPU fails, or this thread
    /// panics, logs the error and hands the batches back.
    pub(super) fn serve(mut self) {
        let (queue, ordinal) = (Arc::clone(&self.queue), self.device.ordinal());
        let panicked = |message| Err(CudaError::Driver { ordinal, action: "computing", message });
        if let Err(error) = caught(|| run(&mut self)).unwrap_or_else(panicked) {
            tracing::error!(device = ordinal, "a GPU is lost: {error}");
            let jobs = self.slots.iter_mut().filter_map(|slot| slot.job.take());
            queue.device_failed(jobs.collect(), &error);
        }
    }
}

impl Work for DeviceWorker {
    type Job = BatchJob;
    type Error = CudaError;

    fn take(&mut self, limit: Option<Duration>) -> Option<BatchJob> {
        self.queue.take(limit)
    }

    fn start(&mut self, slot: usize, job: BatchJob) -> Result<()> {
        self.slots[slot].start(job, &mut self.lane, &self.model, &self.instructions)
    }

    fn is_done(&self, slot: usize) -> Result<bool> {
        self.slots[slot].is_done()
    }

    fn finish(&mut self, slot: usize) -> Result<()> {
        let width = self.model.shape.architecture.width;
        self.slots[slot].finish(width)
    }
}

/// The stream in which a GPU computes one batch after another, and the memory for their states. Two
/// streams with their own memory are slower: they take each other's cache (0.6 to 2.5% on an H200).
struct Lane {
    stream: Stream,
    arena: Arena,
}

/// A slot for one batch on a GPU: while one slot's batch is computed, the other's is prepared.
struct BatchSlot {
    /// Buckets by number of rows.
    buckets: HashMap<usize, Bucket>,
    /// `[T / 4, H]`: the result on the host.
    result: Pinned<f32>,
    job: Option<BatchJob>,
}

struct Bucket {
    staged: Staged,
    /// The recorded forward pass. The first run launches kernel by kernel, and the forward pass is
    /// recorded after it.
    graph: Option<Graph>,
}

impl BatchSlot {
    /// Creates a slot for batches of up to `tokens` rows.
    fn new(device: &Device, shape: &ModelShape, tokens: usize) -> Result<Self> {
        Ok(Self {
            buckets: HashMap::new(),
            result: device.alloc_pinned(max_sequences(tokens) * shape.architecture.width)?,
            job: None,
        })
    }

    /// Returns true if no batch is running, or the running one is done.
    fn is_done(&self) -> Result<bool> {
        Ok(self.job.is_none() || self.result.is_ready()?)
    }

    /// Starts `job`; the slot must not be busy. After an error the job is still in the slot.
    fn start(
        &mut self,
        job: BatchJob,
        Lane { stream, arena }: &mut Lane,
        model: &DeviceModel,
        instructions: &ModelInstructions,
    ) -> Result<()> {
        let BatchJob { batch, bucket, .. } = &*self.job.insert(job);
        let width = model.shape.architecture.width;
        let state = match self.buckets.entry(*bucket) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let staged = Staged::new(stream, *bucket, model.shape.limits())?;
                entry.insert(Bucket { staged, graph: None })
            }
        };
        state.staged.put(stream, &batch.input_ids, &batch.cu_seqlens)?;
        if let Some(graph) = &state.graph {
            graph.launch()?;
        } else {
            forward(stream, model, instructions, &state.staged, arena)?;
        }
        let values = batch.num_sequences() * width;
        stream.copy_out(&arena.embeddings, &mut self.result, values)?;
        if state.graph.is_none() {
            let record =
                |stream: &Stream| forward(stream, model, instructions, &state.staged, arena);
            state.graph = Some(stream.record(record)?);
        }
        Ok(())
    }

    /// Waits for the running batch, if there is one, and answers it. After an error the job is
    /// still in the slot.
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
