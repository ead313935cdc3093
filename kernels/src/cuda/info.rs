//! Description of a GPU.

/// Properties of a GPU, as the driver reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Number of the GPU: the N of `cuda:N`.
    pub ordinal: usize,
    /// Name, such as `NVIDIA H200`.
    pub name: String,
    /// Compute capability, major and minor: (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Total memory of the GPU in bytes.
    pub total_bytes: u64,
}
