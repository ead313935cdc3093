//! The encoder on NVIDIA GPUs, in bf16 or fp8 with f32 sums, layer norms and pooling.
//!
//! ```text
//!  encode ──▶ Queue ──▶ a thread per GPU ──▶ 2 slots of one stream
//!    ▲                        │                 │ batch ─▶ GPU, forward pass, result ─▶ host
//!    └────────── result ──────┴─────────────────┘
//! ```
//!
//! A batch is computed with the rows of the smallest of [`polysift_kernels::cuda::BUCKETS`] that
//! holds it, so that the forward pass can be recorded once and launched as a whole.
//!
//! Invariants: a caller gets the result of its own batch, whichever GPU computed it. If a GPU
//! fails, another one computes its batches; a batch that fails twice is an error.

mod forward;
mod model;
mod queue;
mod schedule;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use polysift_kernels::cuda::{BUCKETS, CudaError, Device, HEAD_SIZES, bucket_for, max_sequences};

use self::model::ModelShape;
use self::queue::{BatchJob, Queue};
use self::worker::DeviceWorker;
use super::encode::{Encoder, EncoderInfo};
use super::files::ModelFiles;
use super::weights::Blob;
use polysift_base::batch::PackedBatch;
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;
use polysift_config::{EncoderConfig, EncoderPrecision};

/// Maximum tokens of a batch unless the settings say otherwise: 16 x 4,224 fill 132 multiprocessors
/// evenly, and are 1 to 2% faster on an H200 than half as many.
const DEFAULT_BATCH_TOKENS: usize = 67_584;

/// Batches in flight per GPU: one computing, one on the GPU, one waiting, one being handed over.
const IN_FLIGHT_PER_DEVICE: usize = 4;

/// Time without a result after which a GPU counts as hung: the largest batch takes a part of a
/// second. CUDA can neither limit a wait nor end a kernel, so the caller's wait is limited.
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Part of a wait after which a stop request is looked for. A process that was stopped for longer
/// (SIGSTOP, suspended jobs) loses one part of its wait, and not all of it.
const SLICE: Duration = Duration::from_secs(1);
/// Pause between two looks whether a GPU's thread has ended.
const POLL: Duration = Duration::from_millis(1);

/// Encoder on one or more NVIDIA GPUs; see the module.
pub struct CudaEncoder {
    info: EncoderInfo,
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    /// Largest bucket that fits the allocated memory.
    largest: usize,
    longest_wait: Duration,
    /// Whether a batch had no result within `longest_wait`; its thread then never ends.
    is_hung: AtomicBool,
}

impl CudaEncoder {
    /// Loads the model onto `devices`, at least one, in the precision of `settings`: fp8 or bf16.
    pub fn load(files: &ModelFiles, settings: &EncoderConfig, devices: &[Device]) -> Result<Self> {
        let is_fp8 = settings.precision == EncoderPrecision::Fp8;
        let architecture = files.architecture.clone();
        if devices.is_empty() {
            return Err(CudaError::NoDevice { ordinal: 0, count: 0 }.into());
        }
        // The norms and the linear maps check their widths.
        let head = architecture.head_size();
        if !HEAD_SIZES.contains(&head) {
            return Err(unsupported(format!("heads of {head} values; {HEAD_SIZES:?} are")));
        }
        if architecture.layers.is_empty() {
            return Err(unsupported("0 layers".into()));
        }
        let most = BUCKETS[BUCKETS.len() - 1];
        let batch_tokens = settings.batch_tokens.unwrap_or(DEFAULT_BATCH_TOKENS).min(most);
        let chunk = files.recipe.max_tokens;
        if chunk > most {
            return Err(unsupported(format!("chunks of {chunk} tokens; up to {most} are")));
        }
        let longest = batch_tokens.max(architecture.max_tokens);
        let largest = bucket_for(longest, 0).unwrap_or(most);
        let bucket = bucket_for(batch_tokens, 0).map_or(largest, |bucket| bucket.min(largest));
        let info = EncoderInfo {
            in_flight: IN_FLIGHT_PER_DEVICE * devices.len(),
            batch_tokens: Some(batch_tokens),
            max_sequences: max_sequences(bucket),
            ..files.info(describe(devices))
        };
        let mut this = Self {
            info,
            queue: Arc::new(Queue::new(devices.len())),
            threads: Vec::new(),
            largest,
            longest_wait: LONGEST_WAIT,
            is_hung: AtomicBool::new(false),
        };
        let shape = ModelShape { architecture, pooling: files.recipe.pooling, is_fp8 };
        this.start(devices, &files.weights, &shape)?;
        Ok(this)
    }

    /// Starts a thread for each GPU, and waits until all of them have loaded the model.
    fn start(&mut self, devices: &[Device], files: &Arc<[Blob]>, shape: &ModelShape) -> Result<()> {
        let mut starting = Vec::new();
        for device in devices {
            let (ordinal, device) = (device.ordinal(), device.clone());
            let (send, ready) = crossbeam_channel::bounded(1);
            let (files, shape) = (Arc::clone(files), shape.clone());
            let (queue, largest) = (Arc::clone(&self.queue), self.largest);
            let work = move || match DeviceWorker::new(&device, (&files, &shape), largest, queue) {
                Ok(worker) => {
                    drop(files);
                    let _ = send.send(Ok(()));
                    worker.serve();
                }
                Err(error) => {
                    let _ = send.send(Err(error));
                }
            };
            let thread = std::thread::Builder::new().name(format!("cuda:{ordinal}"));
            let thread = thread.spawn(work).map_err(|error| CudaError::Driver {
                ordinal,
                action: "starting a thread",
                message: error.to_string(),
            })?;
            self.threads.push(thread);
            starting.push((ordinal, ready));
        }
        // On an error, dropping `self` stops the other GPUs.
        let wait = |(ordinal, ready): (usize, crossbeam_channel::Receiver<_>)| {
            ready.recv().unwrap_or_else(|_| {
                let message = "its thread panicked".to_owned();
                Err(CudaError::Driver { ordinal, action: "loading the model", message }.into())
            })
        };
        starting.into_iter().try_for_each(wait)
    }
}

impl Drop for CudaEncoder {
    fn drop(&mut self) {
        self.queue.close();
        if self.is_hung.load(Ordering::Relaxed) {
            return;
        }
        // A stop may have been asked for before a hang was noticed.
        let until = Instant::now() + self.longest_wait;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(POLL);
            }
            if thread.is_finished() {
                // The panic of a thread was already reported.
                let _ = thread.join();
            }
        }
    }
}

impl Encoder for CudaEncoder {
    fn info(&self) -> &EncoderInfo {
        &self.info
    }

    fn encode(&self, batch: &PackedBatch, embeddings: &mut [f32], stop: &Stop) -> Result<()> {
        self.info.check(batch, embeddings)?;
        let hung = || {
            let (device, secs) = (self.info.device.clone(), self.longest_wait.as_secs());
            Err(CudaError::Hung { device, secs }.into())
        };
        if self.is_hung.load(Ordering::Relaxed) {
            return hung();
        }
        if batch.num_sequences() == 0 {
            return Ok(());
        }
        let (tokens, sequences) = (batch.num_tokens(), batch.num_sequences());
        let bucket = bucket_for(tokens, sequences).filter(|&bucket| bucket <= self.largest);
        let Some(bucket) = bucket else {
            let (most, most_sequences) = (self.largest, max_sequences(self.largest));
            let reason = format!(
                "{tokens} tokens in {sequences} sequences; the memory of the GPU is laid out for \
                 {most} in {most_sequences}"
            );
            return Err(Error::shape("encode", reason));
        };
        let (job, result) = BatchJob::new(batch.clone(), bucket);
        self.queue.put(job);
        let mut left = self.longest_wait;
        let values = loop {
            let slice = SLICE.min(left);
            match result.recv_timeout(slice) {
                Ok(values) => break values?,
                Err(_) if stop.is_asked() => return Err(Error::Stopped),
                Err(RecvTimeoutError::Timeout) if left > slice => left -= slice,
                Err(_) => {
                    self.is_hung.store(true, Ordering::Relaxed);
                    return hung();
                }
            }
        };
        embeddings.copy_from_slice(&values);
        Ok(())
    }
}

/// Returns the error for a model or setting that no kernel supports.
fn unsupported(reason: String) -> Error {
    CudaError::Unsupported(reason).into()
}

/// Returns a description such as `cuda:0,2 (NVIDIA H200)`.
fn describe(devices: &[Device]) -> String {
    let ordinals: Vec<String> = devices.iter().map(|gpu| gpu.ordinal().to_string()).collect();
    let mut names: Vec<&str> = devices.iter().map(|gpu| gpu.info().name.as_str()).collect();
    names.dedup();
    format!("cuda:{} ({})", ordinals.join(","), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_a_result_is_an_error_and_its_thread_is_left_alone() -> Result<()> {
        let info = EncoderInfo {
            embedding_size: 2,
            vocab_size: 9,
            max_tokens: 8,
            device: "cuda:3 (H)".to_owned(),
            ..EncoderInfo::default()
        };
        let encoder = CudaEncoder {
            info,
            queue: Arc::new(Queue::new(1)),
            threads: vec![std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            })],
            largest: BUCKETS[0],
            longest_wait: Duration::from_millis(10),
            is_hung: AtomicBool::new(false),
        };
        let mut batch = PackedBatch::default();
        batch.push(&[1, 2, 3]);
        let hung = encoder.encode(&batch, &mut [0.0; 2], &Stop::default());
        let message = hung.err().map(|error| (error.exit_code(), error.to_string()));
        let found = message.ok_or(Error::Stopped)?;
        assert!(found.0 == 71 && found.1.contains("cuda:3 (H): no result in 0 s"), "{found:?}");
        // A stop comes before the hang is noticed.
        encoder.is_hung.store(false, Ordering::Relaxed);
        let stop = Stop::default();
        stop.ask(15);
        let stopped = encoder.encode(&batch, &mut [0.0; 2], &stop);
        assert!(matches!(stopped, Err(Error::Stopped)));
        drop(encoder); // would wait for the thread for ever
        Ok(())
    }
}
