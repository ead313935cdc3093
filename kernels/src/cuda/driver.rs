//! The driver itself: whether it is there, how old it is, which GPUs it knows.

use cudarc::driver::{DriverError, result, sys};

use super::error::{CudaError, Result};
use super::info::DeviceInfo;

/// Oldest version of CUDA that a driver has to support: the PTX of the kernels needs it.
const OLDEST_DRIVER: (u32, u32) = (12, 0);

/// All GPUs, whether polysift can use them or not, in the driver's order.
///
/// # Errors
/// [`CudaError::NoDriver`] or [`CudaError::DriverTooOld`]; [`CudaError::Driver`] if the driver fails.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    (0..count()?).map(describe).collect()
}

/// Starts the driver and counts the GPUs.
pub(super) fn count() -> Result<usize> {
    let version = version()?;
    let found = (version / 1000, version % 1000 / 10);
    if found < OLDEST_DRIVER {
        return Err(CudaError::DriverTooOld { found, needed: OLDEST_DRIVER });
    }
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        started => started.map_err(CudaError::driver(0, "starting the driver"))?,
    }
    let count = result::device::get_count().map_err(CudaError::driver(0, "counting the GPUs"))?;
    Ok(count as usize)
}

/// Version of CUDA that the driver supports: 13010 for 13.1.
pub(super) fn version() -> Result<u32> {
    if !is_present() {
        return Err(CudaError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: libcuda is there and `version` outlives the call.
    match unsafe { sys::cuDriverGetVersion(&raw mut version) }.result() {
        // No driver says so; what stands in for it where it was linked without being there does.
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => Err(CudaError::NoDriver),
        answer => answer
            .map_err(CudaError::driver(0, "asking the driver for its version"))
            .map(|()| version.unsigned_abs()),
    }
}

#[cfg(not(feature = "cuda-linked"))]
fn is_present() -> bool {
    // SAFETY: loading libcuda runs its initialisers, which are the system's own.
    unsafe { sys::is_culib_present() }
}

/// Without its libraries, a program that is linked with them does not start.
#[cfg(feature = "cuda-linked")]
fn is_present() -> bool {
    true
}

/// Describes GPU `ordinal`; the driver must be started. Makes no context, which would take the GPU
/// about a second and memory: so nothing is said of what changes, such as the memory that is free.
pub(super) fn describe(ordinal: usize) -> Result<DeviceInfo> {
    use sys::CUdevice_attribute as Attribute;
    let failed = CudaError::driver(ordinal, "asking for the GPU's properties");
    let device = result::device::get(ordinal as i32).map_err(failed)?;
    let attribute = |which| {
        // SAFETY: `device` was just given by the driver.
        let value = unsafe { result::device::get_attribute(device, which) };
        value.map(i32::unsigned_abs).map_err(failed)
    };
    // SAFETY: as above.
    let total_bytes = unsafe { result::device::total_mem(device) }.map_err(failed)? as u64;
    Ok(DeviceInfo {
        ordinal,
        name: result::device::get_name(device).map_err(failed)?,
        compute_capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        total_bytes,
    })
}
