//! The module `cuda` without that feature: there are no GPUs, only `CudaError::NotBuilt`.

#![allow(clippy::missing_errors_doc, reason = "it is always `CudaError::NotBuilt`")]

#[path = "cuda/error.rs"]
mod error;
#[path = "cuda/info.rs"]
mod info;

pub use error::{CudaError, Result};
pub use info::DeviceInfo;

/// A GPU; never exists in this build.
#[derive(Debug, Clone)]
pub enum Device {}

/// Returns [`CudaError::NotBuilt`].
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(CudaError::NotBuilt)
}

impl Device {
    /// Returns [`CudaError::NotBuilt`].
    pub fn open(_ordinal: usize) -> Result<Self> {
        Err(CudaError::NotBuilt)
    }

    /// Returns the number of the GPU.
    pub fn ordinal(&self) -> usize {
        match *self {}
    }

    /// Returns the free memory in bytes.
    pub fn free_bytes(&self) -> Result<u64> {
        match *self {}
    }
}
