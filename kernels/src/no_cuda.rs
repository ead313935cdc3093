//! The module `cuda` without that feature: there are no GPUs, only `CudaError::NotBuilt`.

#![allow(clippy::missing_errors_doc, reason = "it is always `CudaError::NotBuilt`")]

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
    /// Maximum rows of a block.
    pub const BLOCK_ROWS: usize = 1;

    /// Returns no rows, as there is no GPU.
    pub fn new(device: &Device, _width: usize, _least: f32) -> Result<Self> {
        match *device {}
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        match *self {}
    }

    /// Appends a block.
    pub fn push(&mut self, _rows: &[f32]) -> Result<()> {
        match *self {}
    }

    /// Compares the last block with all blocks.
    pub fn compare(&mut self, _n: usize, _: impl FnMut(usize, usize, &[bf16])) -> Result<()> {
        match *self {}
    }

    /// Returns a lower bound of the values for near rows.
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
