//! Memory of the GPU, and memory of the host that the GPU can copy from and to on its own.

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, DriverError, result, sys};
use half::bf16;

use super::device::Device;
use super::error::{CudaError, Result};

/// A value of a [`Buffer`]; any bits are a value.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {}

mod sealed {
    /// Implemented here alone: for numbers, of which any bits are a value.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty)*) => { $(impl sealed::Sealed for $type {} impl Element for $type {})* };
}
elements!(u8 i32 f32 f64 bf16);

/// One allocation on a GPU. What may still use it holds a reference: a [`Buffer`] and the graphs
/// that were recorded with it.
#[derive(Debug)]
pub(super) struct Memory {
    device: Device,
    pub(super) pointer: sys::CUdeviceptr,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let pointer = self.pointer;
        // Work that uses the memory may be queued.
        self.device.when_idle(move || {
            // SAFETY: allocated in `Device::alloc`, freed once, and no work uses it any more.
            let _ = unsafe { result::free_sync(pointer) };
        });
    }
}

/// `len` values of type `T` on a GPU.
#[derive(Debug)]
pub struct Buffer<T> {
    pub(super) memory: Arc<Memory>,
    len: usize,
    marker: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The GPU.
    pub(super) fn device(&self) -> &Device {
        &self.memory.device
    }

    /// Address of value `at`.
    pub(super) fn address(&self, at: usize) -> sys::CUdeviceptr {
        self.memory.pointer + (at * size_of::<T>()) as sys::CUdeviceptr
    }
}

impl Device {
    /// Memory for `len` values, which are anything; `purpose` is what an error says it was for.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`]; [`CudaError::Driver`] if the GPU fails.
    pub fn alloc<T: Element>(&self, len: usize, purpose: &'static str) -> Result<Buffer<T>> {
        let out_of_memory = |needed_bytes| CudaError::OutOfMemory {
            ordinal: self.ordinal(),
            needed_bytes,
            purpose,
        };
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(out_of_memory(u64::MAX))?;
        self.context().bind_to_thread().map_err(self.failed("allocating memory"))?;
        // SAFETY: the values are anything, and any bits are a value of an `Element`.
        let pointer =
            unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|error| match error {
                DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) => out_of_memory(bytes as u64),
                error => self.failed("allocating memory")(error),
            })?;
        let memory = Arc::new(Memory { device: self.clone(), pointer });
        Ok(Buffer { memory, len, marker: PhantomData })
    }

    /// Page-locked memory of the host for `len` values, all of them zero bits.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the driver refuses.
    pub fn alloc_pinned<T: Element>(&self, len: usize) -> Result<Pinned<T>> {
        let failed = self.failed("allocating page-locked memory");
        // The thread that waits for it sleeps.
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

/// `len` values of the host in page-locked memory, which the GPU copies while the host goes on.
///
/// Reading or writing the values waits for the last copy from or to them.
#[derive(Debug)]
pub struct Pinned<T> {
    device: Device,
    pointer: *mut T,
    len: usize,
    /// Recorded after each copy.
    event: CudaEvent,
}

// SAFETY: it owns its memory, as a Vec does.
unsafe impl<T: Send> Send for Pinned<T> {}
// SAFETY: as above: a shared reference only reads.
unsafe impl<T: Sync> Sync for Pinned<T> {}

impl<T: Element> Pinned<T> {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The values, once the last copy is done.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the GPU failed.
    pub fn values(&self) -> Result<&[T]> {
        self.wait()?;
        // SAFETY: `len` values, all of them written, and no copy is under way: one would need
        // `&mut self` to be queued.
        Ok(unsafe { std::slice::from_raw_parts(self.pointer, self.len) })
    }

    /// The values to write to, once the last copy is done.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the GPU failed.
    pub fn values_mut(&mut self) -> Result<&mut [T]> {
        self.wait()?;
        // SAFETY: as in `values`, and the reference is the only one.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) })
    }

    /// Whether the last copy is done; does not wait for it.
    ///
    /// # Errors
    /// [`CudaError::Driver`] if the GPU failed.
    pub fn is_ready(&self) -> Result<bool> {
        let bound = self.device.context().bind_to_thread();
        let is_over = bound.and_then(|()| self.event.try_is_complete());
        is_over.map_err(self.device.failed("asking for a copy"))
    }

    fn wait(&self) -> Result<()> {
        self.event.synchronize().map_err(self.device.failed("waiting for a copy"))
    }

    /// Address of the values, for a copy that is queued and then marked with the event.
    pub(super) fn parts(&mut self) -> (*mut T, &CudaEvent) {
        (self.pointer, &self.event)
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        let address = self.pointer.expose_provenance();
        // A copy may be under way.
        self.device.when_idle(move || {
            let pointer = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: allocated in `alloc_pinned`, freed once, and no copy uses it any more.
            let _ = unsafe { result::free_host(pointer) };
        });
    }
}
