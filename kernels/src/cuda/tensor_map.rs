//! The driver's description of a matrix and of the tiles in which a kernel copies it.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;

use super::error::Result;
use super::memory::{Buffer, Element, Memory};
use super::stream::Argument;

/// Tensor map, an argument of the warpgroup kernels. See `hopper.cuh`.
#[derive(Clone)]
pub(super) struct TensorMap<'a> {
    words: sys::CUtensorMap,
    memory: &'a Arc<Memory>,
}

impl<'a> TensorMap<'a> {
    /// Describes the first `rows` rows of `columns` values (bf16, or bytes in e4m3) of `buffer`,
    /// in tiles of `tile_rows` rows of 64 or 128 bytes, the width of the swizzle in shared memory; a
    /// row is a multiple of 16 bytes.
    pub(super) fn new<T: Element>(
        buffer: &'a Buffer<T>,
        (rows, columns): (usize, usize),
        (tile_rows, row_bytes): (u32, usize),
    ) -> Result<Self> {
        assert!(size_of::<T>() <= 2 && [64, 128].contains(&row_bytes), "a tile of another kind");
        let swizzle = match row_bytes {
            64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let value_bytes = size_of::<T>();
        let value_type = match value_bytes {
            1 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        };
        let mut words = sys::CUtensorMap { opaque: [0; 16] };
        let sizes = [columns as u64, rows as u64];
        let strides = [(columns * value_bytes) as u64];
        let tile = [(row_bytes / value_bytes) as u32, tile_rows];
        let steps = [1u32, 1];
        // SAFETY: `words` and the arrays outlive the call, and the address is only described.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut words,
                value_type,
                2,
                buffer.address(0) as *mut c_void,
                sizes.as_ptr(),
                strides.as_ptr(),
                tile.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()
        .map_err(buffer.memory.device.failed("describing a matrix"))?;
        Ok(Self { words, memory: &buffer.memory })
    }
}

impl Argument for TensorMap<'_> {
    fn value(&self) -> *const c_void {
        (&raw const self.words).cast()
    }

    fn memory(&self) -> Option<&Arc<Memory>> {
        Some(self.memory)
    }
}
