//! GPU memory, and page-locked host memory that the GPU copies from and to without the host.

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, DriverError, result, sys};
use half::bf16;

use super::device::Device;
use super::error::{CudaError, Result};

/// Type of the values of a [`Buffer`].
///
/// # Safety
/// Every bit pattern must be a valid value.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

macro_rules! elements {
    // SAFETY: these are numbers.
    ($($type:ty)*) => { $(unsafe impl Element for $type {})* };
}
elements!(u8 i32 f32 f64 bf16);

/// One allocation on a GPU. Its [`Buffer`] and the graphs recorded with it hold references to it.
pub(super) struct Memory {
    pub(super) device: Device,
    pub(super) pointer: sys::CUdeviceptr,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let pointer = self.pointer;
        // Queued work may still use the memory.
        self.device.recordings().when_idle(self.device.context(), move || {
            // SAFETY: allocated in `Device::alloc`, freed once, and no work uses it any more.
            let _ = unsafe { result::free_sync(pointer) };
        });
    }
}

/// Buffer of `len` values of type `T` on a GPU.
pub struct Buffer<T> {
    pub(super) memory: Arc<Memory>,
    len: usize,
    marker: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of value `at` on the GPU.
    pub(super) fn address(&self, at: usize) -> sys::CUdeviceptr {
        self.memory.pointer + (at * size_of::<T>()) as sys::CUdeviceptr
    }
}

impl Device {
    /// Allocates memory for `len` values with undefined contents; an error names the `purpose`.
    pub fn alloc<T: Element>(&self, len: usize, purpose: &'static str) -> Result<Buffer<T>> {
        let out_of_memory = |needed_bytes| CudaError::OutOfMemory {
            ordinal: self.ordinal(),
            needed_bytes,
            purpose,
        };
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(out_of_memory(u64::MAX))?;
        self.context().bind_to_thread().map_err(self.failed("allocating memory"))?;
        // SAFETY: the contents are undefined, and every bit pattern is a valid `Element`.
        let pointer =
            unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|error| match error {
                DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) => out_of_memory(bytes as u64),
                error => self.failed("allocating memory")(error),
            })?;
        let memory = Arc::new(Memory { device: self.clone(), pointer });
        Ok(Buffer { memory, len, marker: PhantomData })
    }

    /// Allocates page-locked host memory for `len` values and sets all their bits to zero.
    pub fn alloc_pinned<T: Element>(&self, len: usize) -> Result<Pinned<T>> {
        let failed = self.failed("allocating page-locked memory");
        // A thread that waits for the event sleeps.
        let blocking = sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        let event = self.context().new_event(Some(blocking)).map_err(failed)?;
        let bytes = len.saturating_mul(size_of::<T>()).max(1);
        // SAFETY: the values are written before anyone reads them.
        let pointer = unsafe { result::malloc_host(bytes, 0) }.map_err(failed)?;
        // SAFETY: `bytes` were just allocated.
        unsafe { std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes) };
        Ok(Pinned { device: self.clone(), pointer: pointer.cast(), len, event })
    }
}

/// Page-locked host memory of `len` values, which the GPU copies while the host continues.
///
/// Reading or writing the values waits for the last copy from or to them.
pub struct Pinned<T> {
    device: Device,
    pub(super) pointer: *mut T,
    pub(super) len: usize,
    /// Event that has to be recorded after each queued copy.
    pub(super) event: CudaEvent,
}

// SAFETY: the value owns its memory, as a Vec does.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above: a shared reference only reads.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Element> Pinned<T> {
    /// Waits for the last copy and returns the values.
    pub fn values(&self) -> Result<&[T]> {
        self.wait()?;
        // SAFETY: all `len` values are written; queueing a copy meanwhile would need `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer, self.len) })
    }

    /// Waits for the last copy and returns the values for writing.
    pub fn values_mut(&mut self) -> Result<&mut [T]> {
        self.wait()?;
        // SAFETY: as in `values`, and the reference is the only one.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) })
    }

    /// Returns true if the last copy is done, without waiting for it.
    pub fn is_ready(&self) -> Result<bool> {
        let bound = self.device.context().bind_to_thread();
        let is_over = bound.and_then(|()| self.event.try_is_complete());
        is_over.map_err(self.device.failed("asking for a copy"))
    }

    /// Waits for the last copy from or to the values.
    fn wait(&self) -> Result<()> {
        self.event.synchronize().map_err(self.device.failed("waiting for a copy"))
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        let address = self.pointer.expose_provenance();
        // A copy may be under way.
        self.device.recordings().when_idle(self.device.context(), move || {
            let pointer = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: allocated in `alloc_pinned`, freed once, and no copy uses it any more.
            let _ = unsafe { result::free_host(pointer) };
        });
    }
}
