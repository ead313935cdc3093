//! The worker of a GPU, which takes batches from the queue until it is closed or the GPU fails.

use std::sync::Arc;
use std::time::Duration;

use polysift_kernels::cuda::{
    BUCKETS, CudaError, Device, Graph, Pinned, Result, Staged, Stream, max_sequences,
};

use super::super::weights::Blob;
use super::forward::{Arena, ModelInstructions, forward};
use super::model::{DeviceModel, ModelShape};
use super::queue::{BatchJob, Queue};
use super::schedule::{SLOTS, Work, run};
use polysift_base::panics::catch_panic;

pub(super) struct DeviceWorker {
    // Fields are dropped in order: the graphs of the slots before the memory that they use.
    slots: Vec<BatchSlot>,
    /// The stream computes one batch after another, in `arena`. Two streams with their own memory
    /// are slower: they take each other's cache (0.6 to 2.5% on an H200).
    stream: Stream,
    arena: Arena,
    model: DeviceModel,
    instructions: ModelInstructions,
    queue: Arc<Queue>,
}

/// A slot for one batch on a GPU: while one slot's batch is computed, the other's is prepared.
struct BatchSlot {
    buckets: Vec<Bucket>,
    /// `[T / 4, H]`: the result on the host.
    result: Pinned<f32>,
    /// The batch of the slot, which stays here after an error.
    job: Option<BatchJob>,
}

struct Bucket {
    staged: Staged,
    /// The forward pass, recorded after the first run, which launches kernel by kernel.
    graph: Option<Graph>,
}

impl DeviceWorker {
    /// Loads the model with the weights in `files` onto `device`, which will serve `queue`, and
    /// allocates all memory there that batches of up to `largest` rows need.
    pub(super) fn new(
        device: &Device,
        (files, shape): (&Arc<[Blob]>, &ModelShape),
        largest: usize,
        queue: Arc<Queue>,
    ) -> polysift_base::Result<Self> {
        let stream = device.stream()?;
        let model = DeviceModel::load(&stream, files, shape.clone())?;
        let mut arena = Arena::new(device, shape, largest)?;
        let values = max_sequences(largest) * shape.architecture.width;
        let bucket = |rows| {
            Ok(Bucket { staged: Staged::new(&stream, rows, model.shape.limits())?, graph: None })
        };
        let slot = |_| {
            let rows = BUCKETS.into_iter().take_while(|rows| *rows <= largest);
            let buckets = rows.map(bucket).collect::<Result<_>>()?;
            Ok(BatchSlot { buckets, result: device.alloc_pinned(values)?, job: None })
        };
        let slots = (0..SLOTS).map(slot).collect::<Result<_>>()?;
        let instructions = ModelInstructions::choose(&stream, &model, &mut arena, largest)?;
        Ok(Self { slots, stream, arena, model, instructions, queue })
    }

    /// Computes batches from the queue until it is closed. If the GPU fails, or this thread
    /// panics, logs the error and hands the batches back.
    pub(super) fn serve(mut self) {
        let (queue, ordinal) = (Arc::clone(&self.queue), self.stream.device().ordinal());
        let panicked = |message| Err(CudaError::Driver { ordinal, action: "computing", message });
        if let Err(error) = catch_panic(|| run(&mut self)).unwrap_or_else(panicked) {
            tracing::error!(device = ordinal, "a GPU is lost: {error}");
            let jobs = self.slots.iter_mut().filter_map(|slot| slot.job.take());
            queue.device_failed(jobs.collect(), &error);
        }
    }
}

impl Work for DeviceWorker {
    type Error = CudaError;

    fn start(&mut self, slot: usize, limit: Option<Duration>) -> Result<bool> {
        let Self { slots, stream, arena, model, instructions, queue } = self;
        let Some(job) = queue.take(limit) else { return Ok(false) };
        let BatchSlot { buckets, result, job: running } = &mut slots[slot];
        let BatchJob { batch, bucket, .. } = &*running.insert(job);
        let place = BUCKETS.partition_point(|rows| rows < bucket);
        let state = &mut buckets[place];
        let kind = model.shape.architecture.positions;
        let positions = (0..batch.num_sequences()).flat_map(|i| kind.table_rows(batch.sequence(i)));
        state.staged.put(stream, &batch.input_ids, positions, &batch.cu_seqlens)?;
        if let Some(graph) = &state.graph {
            graph.launch()?;
        } else {
            forward(stream, model, instructions, &state.staged, arena)?;
        }
        let values = batch.num_sequences() * model.shape.architecture.width;
        stream.copy_out(&arena.embeddings, result, values)?;
        if state.graph.is_none() {
            let record =
                |stream: &Stream| forward(stream, model, instructions, &state.staged, arena);
            state.graph = Some(stream.record(record)?);
        }
        Ok(true)
    }

    fn finish(&mut self, slot: usize, waits: bool) -> Result<bool> {
        let BatchSlot { result, job, .. } = &mut self.slots[slot];
        if !waits && !result.is_ready()? {
            return Ok(false);
        }
        let Some(running) = job else { return Ok(true) };
        let own = running.batch.num_sequences() * self.model.shape.architecture.width;
        let values = result.values()?[..own].to_vec();
        if let Some(job) = job.take() {
            job.answer(Ok(values));
        }
        Ok(true)
    }
}
