//! The same operations on NVIDIA cards, and the little of CUDA that they need.
//!
//! libcuda and libcublasLt are opened when [`devices`] or [`Device::open`] is first called; without
//! them every function here returns an error and the rest of the crate works.

mod error;

pub use error::{CudaError, Result};

/// A card, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number: the N of `cuda:N`.
    pub ordinal: usize,
    /// Such as `NVIDIA H200`.
    pub name: String,
    /// Major and minor: (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Memory of the card.
    pub total_bytes: u64,
    /// Memory that nobody uses now.
    pub free_bytes: u64,
}

/// All cards, whether polysift can use them or not, in the driver's order.
///
/// # Errors
/// [`CudaError::NoDriver`] or [`CudaError::DriverTooOld`]; [`CudaError::Driver`] if the driver fails.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    Err(CudaError::NoDriver)
}
