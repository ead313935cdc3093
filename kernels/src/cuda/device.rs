//! An open GPU with its kernels loaded.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, DriverError, result};

use super::driver;
use super::error::{CudaError, Result};
use super::info::DeviceInfo;
use super::module::Kernels;
use super::recordings::Recordings;

/// Oldest compute capability with bf16 matrix instructions.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// About the memory that a context takes.
const CONTEXT_BYTES: u64 = 500_000_000;

/// A GPU with its kernels loaded; clones refer to the same GPU.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    info: DeviceInfo,
    context: Arc<CudaContext>,
    kernels: Kernels,
    recordings: &'static Recordings,
}

impl Device {
    /// Opens GPU `ordinal` and loads the kernels.
    pub fn open(ordinal: usize) -> Result<Self> {
        let count = driver::count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let info = driver::describe(ordinal)?;
        if info.compute_capability < OLDEST_CAPABILITY {
            return Err(CudaError::DeviceTooOld(info));
        }
        let failed = CudaError::driver(ordinal, "opening the GPU");
        let context = CudaContext::new(ordinal).map_err(|error| match error {
            DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                let (needed_bytes, purpose) = (CONTEXT_BYTES, "opening the GPU");
                CudaError::OutOfMemory { ordinal, needed_bytes, purpose }
            }
            error => failed(error),
        })?;
        // SAFETY: the buffers are not cudarc's: `memory` keeps them from being freed too early, and
        // the caller orders streams (see the module `cuda`).
        unsafe { context.disable_event_tracking() };
        let loaded = Kernels::load(info.compute_capability);
        let kernels = loaded.map_err(CudaError::driver(ordinal, "loading the kernels"))?;
        let recordings = Recordings::on_device(ordinal);
        Ok(Self(Arc::new(Inner { info, context, kernels, recordings })))
    }

    /// Returns the properties of the GPU.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// Returns the GPU's number: the N of `cuda:N`.
    pub fn ordinal(&self) -> usize {
        self.0.info.ordinal
    }

    /// Returns the free memory of the GPU in bytes.
    pub fn free_bytes(&self) -> Result<u64> {
        let (free, _) = self.0.context.mem_get_info().map_err(self.failed("asking for memory"))?;
        Ok(free as u64)
    }

    pub(super) fn recordings(&self) -> &Recordings {
        self.0.recordings
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.0.context
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.0.kernels
    }

    /// Returns a closure for `map_err` that adds this GPU and the `action` to a driver error.
    pub(super) fn failed(
        &self,
        action: &'static str,
    ) -> impl FnOnce(DriverError) -> CudaError + Copy {
        CudaError::driver(self.ordinal(), action)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let address = self.kernels.module.expose_provenance();
        self.recordings.when_idle(&self.context, move || {
            let module = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: nothing runs on the GPU, and nobody else has these kernels.
            let _ = unsafe { result::module::unload(module) };
        });
    }
}
