//! The numbers of a batch on the GPU: what kernels take as an index, checked.

use super::device::Device;
use super::error::{CudaError, Result};
use super::memory::{Buffer, Pinned};
use super::staging::{Layout, Limits};
use super::stream::{Place, Stream};

/// Room on a GPU for the token ids, positions, sequences and tiles of one batch of up to
/// [`Staged::tokens`] tokens.
///
/// Its contents always obey its [`Limits`]: an empty batch at first, then what [`Staged::put`] took.
pub struct Staged {
    layout: Layout,
    limits: Limits,
    host: Pinned<i32>,
    device: Buffer<i32>,
}

impl Staged {
    /// Room for batches of up to `tokens` tokens, with an empty batch in it.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the limits are none; as [`Device::alloc`].
    pub fn new(stream: &Stream, tokens: usize, limits: Limits) -> Result<Self> {
        let layout = Layout { tokens };
        if tokens == 0 || !tokens.is_multiple_of(8) {
            return Err(CudaError::shape("batch", format!("{tokens} tokens, no multiple of 8")));
        }
        let device: &Device = stream.device();
        let mut this = Self {
            layout,
            limits,
            host: device.alloc_pinned(layout.len())?,
            device: device.alloc(layout.len(), "the numbers of a batch")?,
        };
        this.put(stream, &[], &[0])?;
        Ok(this)
    }

    /// Queues the copy of a batch to the GPU: `input_ids` `[N]`, `cu_seqlens` `[B + 1]` from 0 to N.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the batch does not fit, a sequence is empty, or a number is outside
    /// the limits; then nothing is copied. [`CudaError::Driver`] if the GPU fails.
    pub fn put(&mut self, stream: &Stream, input_ids: &[u32], cu_seqlens: &[u32]) -> Result<()> {
        let block = self.host.values_mut()?;
        self.layout.fill(block, self.limits, input_ids, cu_seqlens)?;
        let len = self.host.len();
        stream.copy_in(&mut self.host, &mut self.device, len)
    }

    /// Most tokens of a batch; the kernels compute with this many rows.
    pub fn tokens(&self) -> usize {
        self.layout.tokens
    }

    /// The limits of its numbers.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn max_tiles(&self) -> usize {
        self.layout.max_tiles()
    }

    pub(super) fn counts(&self) -> Place<'_> {
        Place::new(&self.device, 0)
    }

    pub(super) fn input_ids(&self) -> Place<'_> {
        Place::new(&self.device, self.layout.input_ids().start)
    }

    pub(super) fn position_ids(&self) -> Place<'_> {
        Place::new(&self.device, self.layout.position_ids().start)
    }

    pub(super) fn cu_seqlens(&self) -> Place<'_> {
        Place::new(&self.device, self.layout.cu_seqlens().start)
    }

    pub(super) fn tiles(&self) -> Place<'_> {
        Place::new(&self.device, self.layout.tiles().start)
    }
}
