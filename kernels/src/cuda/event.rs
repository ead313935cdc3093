//! A mark in a queue that the host can wait for.

use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::stream::Stream;

/// See the module. cudarc's own takes one flag, and this one needs two: the thread that waits
/// sleeps, and no time is noted, which would cost some.
pub(super) struct Event {
    context: Arc<CudaContext>,
    raw: sys::CUevent,
}

// SAFETY: the driver takes an event from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that is over until it is recorded.
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        use sys::CUevent_flags::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING};
        context.bind_to_thread()?;
        let mut raw = std::ptr::null_mut();
        let flags = CU_EVENT_BLOCKING_SYNC as u32 | CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: `raw` outlives the call.
        unsafe { sys::cuEventCreate(&raw mut raw, flags) }.result()?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Marks the end of what is in `stream` now.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: both live.
        unsafe { result::event::record(self.raw, stream.raw()) }
    }

    /// Whether the GPU is past the mark.
    pub(super) fn is_over(&self) -> Result<bool, DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: the event lives.
        match unsafe { result::event::query(self.raw) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// Waits until the GPU is past the mark.
    pub(super) fn wait(&self) -> Result<(), DriverError> {
        self.context.bind_to_thread()?;
        // SAFETY: the event lives.
        unsafe { result::event::synchronize(self.raw) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        // SAFETY: created in `new`, destroyed once; the driver lets work that uses it go on.
        let _ = unsafe { result::event::destroy(self.raw) };
    }
}
