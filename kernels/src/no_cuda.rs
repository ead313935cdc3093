//! The module `cuda` of a build without that feature: there are no GPUs, and why is an error.

use std::convert::Infallible;

#[path = "cuda/error.rs"]
mod error;
#[path = "cuda/info.rs"]
mod info;

pub use error::{CudaError, Result};
pub use info::DeviceInfo;

/// A GPU; there is none.
#[derive(Debug, Clone)]
pub struct Device(Infallible);

/// A head on a GPU; there is none.
#[derive(Debug)]
pub struct RowScorer(Infallible);

/// No GPUs.
///
/// # Errors
/// [`CudaError::NotBuilt`].
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(CudaError::NotBuilt)
}

impl Device {
    /// Opens no GPU.
    ///
    /// # Errors
    /// [`CudaError::NotBuilt`].
    pub fn open(_ordinal: usize) -> Result<Self> {
        Err(CudaError::NotBuilt)
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        match self.0 {}
    }

    /// Memory that nobody uses now.
    ///
    /// # Errors
    /// None.
    pub fn free_bytes(&self) -> Result<u64> {
        match self.0 {}
    }
}

impl RowScorer {
    /// Takes no layers to a GPU.
    ///
    /// # Errors
    /// None.
    pub fn mlp(device: &Device, _layers: &[(&[f32], &[f32])]) -> Result<Self> {
        match device.0 {}
    }

    /// Takes no references to a GPU.
    ///
    /// # Errors
    /// None.
    pub fn cosine(device: &Device, _references: &[f32], _width: usize) -> Result<Self> {
        match device.0 {}
    }

    /// Outputs of rows.
    ///
    /// # Errors
    /// None.
    pub fn outputs(&mut self, _rows: &[f32]) -> Result<Vec<f64>> {
        match self.0 {}
    }
}
