//! The CUDA driver: whether it is present, which version it has and which GPUs it finds.

use cudarc::driver::{DriverError, result, sys};

use super::error::{CudaError, Result};
use super::info::DeviceInfo;

/// Oldest CUDA version that a driver must support; the PTX of the kernels needs it.
const OLDEST_DRIVER: (u32, u32) = (12, 0);

/// Returns all GPUs in the driver's order, including those that polysift cannot use.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    (0..count()?).map(describe).collect()
}

/// Starts the driver and returns the number of GPUs.
pub(super) fn count() -> Result<usize> {
    let version = driver_version()?;
    let found = (version / 1000, version % 1000 / 10);
    if found < OLDEST_DRIVER {
        return Err(CudaError::DriverTooOld { found });
    }
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(0),
        started => started.map_err(CudaError::driver(0, "starting the driver"))?,
    }
    let count = result::device::get_count().map_err(CudaError::driver(0, "counting the GPUs"))?;
    Ok(count as usize)
}

/// Returns the CUDA version that the driver supports, such as 13010 for 13.1.
pub fn driver_version() -> Result<u32> {
    // SAFETY: loading libcuda runs its initialisers, which are the system's own.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: libcuda is present and `version` outlives the call.
    let answer = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    answer.map_err(CudaError::driver(0, "asking the driver for its version"))?;
    Ok(version.unsigned_abs())
}

/// Describes GPU `ordinal`; the driver must be started. It creates no context, which would take
/// about a second and GPU memory, so it reports nothing that changes, such as the free memory.
pub(super) fn describe(ordinal: usize) -> Result<DeviceInfo> {
    use sys::CUdevice_attribute as Attribute;
    let failed = CudaError::driver(ordinal, "asking for the GPU's properties");
    let device = result::device::get(ordinal as i32).map_err(failed)?;
    let attribute = |which| {
        // SAFETY: the driver just returned `device`.
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
