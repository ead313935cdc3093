//! One batch on a GPU: a stream with memory of its own.

use std::collections::HashMap;

use polysift_kernels::cuda::{Device, Graph, Pinned, Result, Staged, Stream, max_sequences};

use super::forward::{Arena, Plan, forward};
use super::model::{Model, Shape};
use super::queue::Job;

/// See the module.
pub(super) struct Slot {
    pub(super) stream: Stream,
    pub(super) arena: Arena,
    /// By number of rows.
    buckets: HashMap<usize, Bucket>,
    /// `[T / 4, H]`: the result on the host.
    result: Pinned<f32>,
    /// The batch that is under way.
    job: Option<Job>,
}

struct Bucket {
    staged: Staged,
    /// The forward pass, from its second run on: the first one runs kernel by kernel, as libraries
    /// load and prepare what a recording would not take.
    graph: Option<Graph>,
}

impl Slot {
    /// A slot for batches of up to `tokens` rows.
    pub(super) fn new(device: &Device, shape: Shape, tokens: usize) -> Result<Self> {
        Ok(Self {
            stream: device.stream()?,
            arena: Arena::new(device, shape, tokens)?,
            buckets: HashMap::new(),
            result: device.alloc_pinned(max_sequences(tokens) * shape.width)?,
            job: None,
        })
    }

    /// Whether no batch is under way, or the one that was is done.
    pub(super) fn is_done(&self) -> Result<bool> {
        Ok(self.job.is_none() || self.result.is_ready()?)
    }

    /// Forgets the graph for batches of `tokens` rows, as there is a better plan; the slot must not
    /// be busy.
    pub(super) fn forget(&mut self, tokens: usize) {
        if let Some(bucket) = self.buckets.get_mut(&tokens) {
            bucket.graph = None;
        }
    }

    /// The batch that is under way, taken back.
    pub(super) fn abandon(&mut self) -> Option<Job> {
        self.job.take()
    }

    /// Starts `job`; the slot must not be busy. After an error the job is still in the slot.
    pub(super) fn start(&mut self, job: Job, model: &Model, plan: &Plan) -> Result<()> {
        let Job { batch, bucket, .. } = &*self.job.insert(job);
        let width = model.shape.width;
        let state = match self.buckets.entry(*bucket) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
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
    pub(super) fn finish(&mut self, width: usize) -> Result<()> {
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
