//! What can go wrong on a GPU.

#[cfg(feature = "cuda")]
use cudarc::driver::DriverError;

/// Result with [`CudaError`].
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// Why a GPU cannot be used, or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The program has no code for it.
    #[error(
        "this polysift was built without the feature `cuda`; build it with \
         `cargo build --release --features cuda`"
    )]
    NotBuilt,
    /// libcuda is not there.
    #[error("there is no CUDA driver (libcuda) on this machine")]
    NoDriver,
    /// The driver is older than the oldest that the kernels load on.
    #[error("the CUDA driver supports CUDA {}.{}; {}.{} or later is needed", found.0, found.1, needed.0, needed.1)]
    DriverTooOld {
        /// Version that the driver supports, major and minor.
        found: (u32, u32),
        /// Oldest version that would do.
        needed: (u32, u32),
    },
    /// There is no such GPU.
    #[error("there is no GPU cuda:{ordinal}; {count} found")]
    NoDevice {
        /// Number that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The GPU has no bf16 matrix units.
    #[error(
        "cuda:{ordinal} ({name}) has compute capability {}.{}; 8.0 or later is needed",
        compute_capability.0, compute_capability.1
    )]
    DeviceTooOld {
        /// Its number.
        ordinal: usize,
        /// Its name.
        name: String,
        /// Its compute capability.
        compute_capability: (u32, u32),
    },
    /// The GPU's memory does not suffice.
    #[error("cuda:{ordinal}: out of memory, {needed_bytes} bytes wanted for {purpose}")]
    OutOfMemory {
        /// Number of the GPU.
        ordinal: usize,
        /// Bytes that were asked for.
        needed_bytes: u64,
        /// What they were for.
        purpose: &'static str,
    },
    /// The kernels do not cover the shape.
    #[error("not supported on CUDA: {reason}")]
    Unsupported {
        /// The limit and the value.
        reason: String,
    },
    /// Buffers or sizes do not fit together.
    #[error("{op}: {reason}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// A call of the driver failed.
    #[error("cuda:{ordinal}: {action} failed: {message}")]
    Driver {
        /// Number of the GPU.
        ordinal: usize,
        /// What was being done.
        action: &'static str,
        /// The driver's name of the failure.
        message: String,
    },
}

#[cfg(feature = "cuda")]
impl CudaError {
    /// A closure for `map_err` that names the GPU and what was being done.
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

    /// [`CudaError::Shape`] of `op`.
    pub(super) fn shape(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Shape { op, reason: reason.into() }
    }

    /// [`CudaError::Unsupported`].
    pub(super) fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported { reason: reason.into() }
    }
}

/// [`CudaError::Shape`] unless `name` of `op` has at least `needed` values.
#[cfg(feature = "cuda")]
pub(super) fn check_len(
    op: &'static str,
    name: &str,
    found: usize,
    needed: Option<usize>,
) -> Result<()> {
    match needed {
        Some(needed) if found >= needed => Ok(()),
        Some(needed) => {
            Err(CudaError::shape(op, format!("{name} holds {found} values, {needed} are needed")))
        }
        None => Err(CudaError::shape(op, format!("{name} would have too many values"))),
    }
}
