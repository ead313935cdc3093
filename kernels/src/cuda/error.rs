//! Errors of the GPU functions.

#[cfg(feature = "cuda")]
use cudarc::driver::DriverError;

use super::info::DeviceInfo;

/// Result with [`CudaError`].
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// Reason why a GPU cannot be used or has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// This build has no CUDA support.
    #[error(
        "this polysift was built without the feature `cuda`; build it with \
         `cargo build --release --features cuda`"
    )]
    NotBuilt,
    /// The machine has no CUDA driver (libcuda).
    #[error("there is no CUDA driver (libcuda) on this machine")]
    NoDriver,
    /// The driver is too old to load the kernels.
    #[error("the CUDA driver supports CUDA {}.{}; 12.0 or later is needed", found.0, found.1)]
    DriverTooOld {
        /// CUDA version that the driver supports: major and minor.
        found: (u32, u32),
    },
    /// The machine has no GPU with this number.
    #[error("there is no GPU cuda:{ordinal}; {count} found")]
    NoDevice {
        /// Requested number.
        ordinal: usize,
        /// Number of GPUs found.
        count: usize,
    },
    /// The GPU has no bf16 matrix units.
    #[error(
        "cuda:{} ({}) has compute capability {}.{}; 8.0 or later is needed",
        .0.ordinal, .0.name, .0.compute_capability.0, .0.compute_capability.1
    )]
    DeviceTooOld(DeviceInfo),
    /// The GPU has too little free memory.
    #[error(
        "cuda:{ordinal}: out of memory, {needed_bytes} bytes wanted for {purpose}; end other programs \
         on this GPU, or choose another device"
    )]
    OutOfMemory {
        /// Number of the GPU.
        ordinal: usize,
        /// Requested bytes.
        needed_bytes: u64,
        /// Purpose of the memory.
        purpose: &'static str,
    },
    /// No kernel supports the shape, or the GPU lacks the kernel: what is unsupported, and its limit.
    #[error("not supported on CUDA: {0}")]
    Unsupported(String),
    /// Buffers or sizes of an operation do not fit together.
    #[error("{0}: {1}")]
    Shape(&'static str, String),
    /// A batch has no result: a GPU hangs.
    #[error("{device}: no result in {secs} s; the GPU hangs, so reset it or take another one")]
    Hung {
        /// The GPUs that could have computed it.
        device: String,
        /// Seconds for which the result was waited for.
        secs: u64,
    },
    /// A driver call failed.
    #[error("cuda:{ordinal}: {action} failed: {message}")]
    Driver {
        /// Number of the GPU.
        ordinal: usize,
        /// Action that failed.
        action: &'static str,
        /// The driver's name and description of the failure.
        message: String,
    },
}

#[cfg(feature = "cuda")]
impl CudaError {
    /// Returns a closure for `map_err` that adds the GPU's number and the action to a driver error.
    pub(super) fn driver(
        ordinal: usize,
        action: &'static str,
    ) -> impl FnOnce(DriverError) -> Self + Copy {
        move |error| {
            let text = |c: Result<&std::ffi::CStr, DriverError>| {
                c.map_or_else(|_| "unknown".into(), |text| text.to_string_lossy().into_owned())
            };
            let message = format!("{} ({})", text(error.error_name()), text(error.error_string()));
            Self::Driver { ordinal, action, message }
        }
    }

    /// Returns [`CudaError::Shape`] for the operation `op`.
    pub(super) fn shape(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Shape(op, reason.into())
    }
}

/// Returns [`CudaError::Shape`] unless `found` is at least `needed`; `None` means an overflow.
#[cfg(feature = "cuda")]
pub(super) fn check_len(
    op: &'static str,
    name: &str,
    found: usize,
    needed: Option<usize>,
) -> Result<()> {
    // No buffer has as many values.
    let needed = needed.unwrap_or(usize::MAX);
    if found >= needed {
        return Ok(());
    }
    Err(CudaError::shape(op, format!("{name} holds {found} values, {needed} are needed")))
}
