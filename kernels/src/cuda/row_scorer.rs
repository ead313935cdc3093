//! A head on a GPU: rows of embeddings to outputs.

use std::sync::Arc;

use super::device::Device;
use super::error::{CudaError, Result};
use super::memory::{Buffer, Pinned};
use super::score::{linear_f64, linear_relu, max_similarity, prepare_rows};
use super::stream::Stream;

/// Rows of one pass: 12 MB at a width of 768, enough for every multiprocessor to have some.
const BLOCK_ROWS: usize = 4_096;
/// Similarities of a row that there is room for, each to a part of the references.
const PARTS: usize = 8;

/// Computes a head for rows of embeddings, any number of them at a time.
///
/// A row's outputs depend on the row alone.
pub struct RowScorer {
    width: usize,
    /// They take turns: while the GPU works for one, the rows of the other are copied.
    slots: [ScorerSlot; 2],
}

/// Weight `[outputs, inputs]` and bias `[outputs]`.
type LayerBuffers = (Buffer<f32>, Buffer<f32>);

/// A queue, and room for what becomes of a block of rows.
struct ScorerSlot {
    stream: Stream,
    host_rows: Pinned<f32>,
    rows: Buffer<f32>,
    prepared: Buffer<f32>,
    usable: Buffer<u8>,
    host_usable: Pinned<u8>,
    head: HeadBuffers,
    /// Rows of the block in work.
    count: usize,
}

/// The weights of a head, which both slots share, and room for its results.
enum HeadBuffers {
    Mlp {
        /// ReLU after each but the last; there is at least one.
        layers: Arc<[LayerBuffers]>,
        /// Results of each layer but the last.
        hidden: Vec<Buffer<f32>>,
        outputs: Buffer<f64>,
        host: Pinned<f64>,
    },
    Cosine {
        /// `[K, D]`.
        references: Arc<Buffer<f32>>,
        similarities: Buffer<f32>,
        host: Pinned<f32>,
    },
}

impl std::fmt::Debug for RowScorer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let device = self.slots[0].stream.device();
        write!(f, "a head for rows of {} values on {device:?}", self.width)
    }
}

impl RowScorer {
    /// A head of linear layers (weight `[outputs, inputs]` row-major, bias `[outputs]`) with ReLU
    /// between them; there is at least one.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the sizes do not fit together; as [`Device::alloc`].
    pub fn mlp(device: &Device, layers: &[(&[f32], &[f32])]) -> Result<Self> {
        let fail = |reason: String| Err(CudaError::shape("head", reason));
        let stream = device.stream()?;
        let mut width = None;
        let mut inputs = None;
        for (i, (weight, bias)) in layers.iter().enumerate() {
            let own = weight.len().checked_div(bias.len()).unwrap_or_default();
            if own == 0 || own * bias.len() != weight.len() || inputs.is_some_and(|n| n != own) {
                let (weights, outputs) = (weight.len(), bias.len());
                return fail(format!("layer {i} has {weights} weights, {outputs} outputs"));
            }
            width = width.or(Some(own));
            inputs = Some(bias.len());
        }
        let (Some(width), Some(num_outputs)) = (width, inputs) else {
            return fail("no layers".into());
        };
        let layer = |(weight, bias): &(&[f32], &[f32])| -> Result<LayerBuffers> {
            Ok((stream.to_device(weight, "a head")?, stream.to_device(bias, "a head")?))
        };
        let weights: Arc<[_]> = layers.iter().map(layer).collect::<Result<Vec<_>>>()?.into();
        let hidden = &layers[..layers.len() - 1];
        Self::new(device, width, || {
            Ok(HeadBuffers::Mlp {
                layers: Arc::clone(&weights),
                hidden: hidden
                    .iter()
                    .map(|(_, bias)| room(device, bias.len()))
                    .collect::<Result<_>>()?,
                outputs: device.alloc(BLOCK_ROWS * num_outputs, "scoring")?,
                host: device.alloc_pinned(BLOCK_ROWS * num_outputs)?,
            })
        })
    }

    /// The largest cosine similarity to any of `references` `[K, width]`, whose rows have unit norm.
    ///
    /// # Errors
    /// [`CudaError::Shape`] without references or with half a row; as [`Device::alloc`].
    pub fn cosine(device: &Device, references: &[f32], width: usize) -> Result<Self> {
        if width == 0 || references.is_empty() || !references.len().is_multiple_of(width) {
            let reason = format!("references of {} values, rows of {width}", references.len());
            return Err(CudaError::shape("head", reason));
        }
        let references = Arc::new(device.stream()?.to_device(references, "the references")?);
        Self::new(device, width, || {
            Ok(HeadBuffers::Cosine {
                references: Arc::clone(&references),
                similarities: room(device, PARTS)?,
                host: device.alloc_pinned(BLOCK_ROWS)?,
            })
        })
    }

    fn new(device: &Device, width: usize, head: impl Fn() -> Result<HeadBuffers>) -> Result<Self> {
        let slot = || -> Result<ScorerSlot> {
            Ok(ScorerSlot {
                stream: device.stream()?,
                host_rows: device.alloc_pinned(BLOCK_ROWS * width)?,
                rows: room(device, width)?,
                prepared: room(device, width)?,
                usable: device.alloc(BLOCK_ROWS, "scoring")?,
                host_usable: device.alloc_pinned(BLOCK_ROWS)?,
                head: head()?,
                count: 0,
            })
        };
        Ok(Self { width, slots: [slot()?, slot()?] })
    }

    /// Outputs `[n, outputs]` of `rows` `[n, D]`; NaN for a row that is not finite, or for a cosine
    /// head has no direction.
    ///
    /// # Errors
    /// [`CudaError::Shape`] for half a row; [`CudaError::Driver`] if the GPU fails.
    pub fn outputs(&mut self, rows: &[f32]) -> Result<Vec<f64>> {
        let Self { width, slots } = self;
        if !rows.len().is_multiple_of(*width) {
            let reason = format!("{} values, rows of {width}", rows.len());
            return Err(CudaError::shape("scoring", reason));
        }
        let mut outputs = Vec::new();
        // A call that failed may have left some.
        for slot in &mut *slots {
            slot.count = 0;
        }
        for block in rows.chunks(BLOCK_ROWS * *width) {
            slots[0].finish(&mut outputs)?;
            slots[0].start(block, *width)?;
            slots.swap(0, 1);
        }
        for slot in slots {
            slot.finish(&mut outputs)?;
        }
        Ok(outputs)
    }
}

impl ScorerSlot {
    /// Puts at most [`BLOCK_ROWS`] rows into the queue.
    fn start(&mut self, block: &[f32], width: usize) -> Result<()> {
        let Self { stream, host_rows, rows, prepared, usable, host_usable, head, .. } = self;
        let count = block.len() / width;
        let (to, _) = host_rows.values_mut()?.split_at_mut(block.len());
        to.copy_from_slice(block);
        stream.copy_in(host_rows, rows, block.len())?;
        let unit = matches!(head, HeadBuffers::Cosine { .. });
        prepare_rows(stream, rows, prepared, usable, (count, width), unit)?;
        stream.copy_out(usable, host_usable, count)?;
        head.queue(stream, prepared, (count, width))?;
        self.count = count;
        Ok(())
    }

    /// Waits for the block in work, if there is one, and appends its outputs.
    fn finish(&mut self, outputs: &mut Vec<f64>) -> Result<()> {
        let start = outputs.len();
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(());
        }
        match &self.head {
            HeadBuffers::Mlp { host, .. } => {
                let per_row = host.len() / BLOCK_ROWS;
                outputs.extend(host.values()?.iter().take(count * per_row));
            }
            HeadBuffers::Cosine { host, .. } => {
                outputs.extend(host.values()?.iter().take(count).copied().map(f64::from));
            }
        }
        let found = &mut outputs[start..];
        let rows = found.chunks_exact_mut(found.len() / count).zip(self.host_usable.values()?);
        for (row, _) in rows.filter(|(_, usable)| **usable == 0) {
            row.fill(f64::NAN);
        }
        Ok(())
    }
}

impl HeadBuffers {
    /// Queues the outputs of the first rows of `x`.
    fn queue(
        &mut self,
        stream: &Stream,
        x: &Buffer<f32>,
        (count, width): (usize, usize),
    ) -> Result<()> {
        match self {
            Self::Mlp { layers, hidden, outputs, host } => {
                let mut x = x;
                for ((weight, bias), y) in layers.iter().zip(hidden) {
                    linear_relu(stream, x, (weight, bias), y, count)?;
                    x = y;
                }
                let (weight, bias) = &layers[layers.len() - 1];
                linear_f64(stream, x, (weight, bias), outputs, count)?;
                stream.copy_out(outputs, host, count * bias.len())
            }
            Self::Cosine { references, similarities, host } => {
                max_similarity(stream, x, references, similarities, (count, width))?;
                stream.copy_out(similarities, host, count)
            }
        }
    }
}

/// Room on the GPU for `width` values of each row of a block.
fn room(device: &Device, width: usize) -> Result<Buffer<f32>> {
    device.alloc(BLOCK_ROWS * width, "scoring")
}
