//! The module `cuda` of a build without that feature: there are no GPUs, and why is an error.

#![allow(clippy::missing_errors_doc, reason = "it is always `CudaError::NotBuilt`")]

#[path = "cuda/error.rs"]
mod error;
#[path = "cuda/info.rs"]
mod info;

pub use error::{CudaError, Result};
pub use info::DeviceInfo;

/// A GPU; there is none.
#[derive(Debug, Clone)]
pub enum Device {}

/// No GPUs.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(CudaError::NotBuilt)
}

impl Device {
    /// Opens no GPU.
    pub fn open(_ordinal: usize) -> Result<Self> {
        Err(CudaError::NotBuilt)
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        match *self {}
    }

    /// Memory that nobody uses now.
    pub fn free_bytes(&self) -> Result<u64> {
        match *self {}
    }
}
