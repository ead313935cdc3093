//! What a GPU is.

/// A GPU, as the driver describes it.
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
    /// Memory of the GPU.
    pub total_bytes: u64,
}
