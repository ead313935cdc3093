//! The module `cuda` without that feature: there are no GPUs, only `CudaError::NotBuilt`.

#![allow(missing_docs, reason = "the module that it stands for has them")]

#[path = "cuda/error.rs"]
mod error;
#[path = "cuda/info.rs"]
mod info;

use half::bf16;

pub use error::{CudaError, Result};
pub use info::DeviceInfo;

/// Rows of unit norm on a GPU; the type has no values in this build.
#[derive(Debug)]
pub enum NearRows {}

impl NearRows {
    pub const BLOCK_ROWS: usize = 1;

    pub fn new(device: &Device, _width: usize, _least: f32) -> Result<Self> {
        match *device {}
    }

    pub fn clear(&mut self) {
        match *self {}
    }

    pub fn compare(&mut self, _rows: &[f32], _: impl FnMut(usize, usize, &[bf16])) -> Result<()> {
        match *self {}
    }

    pub fn bound(&self) -> f32 {
        match *self {}
    }
}

/// A GPU; the type has no values in this build.
#[derive(Debug, Clone)]
pub enum Device {}

/// Returns [`CudaError::NotBuilt`].
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(CudaError::NotBuilt)
}

impl Device {
    pub fn open(_ordinal: usize) -> Result<Self> {
        Err(CudaError::NotBuilt)
    }

    pub fn ordinal(&self) -> usize {
        match *self {}
    }

    pub fn free_bytes(&self) -> Result<u64> {
        match *self {}
    }
}
