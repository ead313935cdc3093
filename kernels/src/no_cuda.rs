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

/// A head on a GPU; there is none.
#[derive(Debug)]
pub enum RowScorer {}

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

impl RowScorer {
    /// Takes no layers to a GPU.
    pub fn mlp(device: &Device, _layers: &[(&[f32], &[f32])]) -> Result<Self> {
        match *device {}
    }

    /// Takes no references to a GPU.
    pub fn cosine(device: &Device, _references: &[f32], _width: usize) -> Result<Self> {
        match *device {}
    }

    /// Outputs of rows.
    pub fn outputs(&mut self, _rows: &[f32]) -> Result<Vec<f64>> {
        match *self {}
    }
}
