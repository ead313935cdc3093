//! The driver's description of a matrix and of the tiles in which a kernel copies it.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use half::bf16;

use super::error::Result;
use super::memory::{Buffer, Element, Memory};
use super::stream::Argument;

/// Tensor map, an argument of the warpgroup kernels. See `hopper.cuh`.
#[derive(Clone)]
pub(super) struct TensorMap<'a> {
    words: sys::CUtensorMap,
    memory: &'a Arc<Memory>,
}

/// Bytes per row of a tile, equal to the width of the swizzle in shared memory.
#[derive(Clone, Copy)]
pub(super) enum TileRow {
    Bytes64,
    Bytes128,
}

pub(super) trait TileElement: Element {
    const TYPE: sys::CUtensorMapDataType;
}
impl TileElement for bf16 {
    const TYPE: sys::CUtensorMapDataType =
        sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}
/// Bytes hold e4m3 values.
impl TileElement for u8 {
    const TYPE: sys::CUtensorMapDataType = sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

impl<'a> TensorMap<'a> {
    /// Describes the first `rows` rows of `columns` values of `buffer`, in tiles of `tile_rows`
    /// rows of `tile_row`; a row is a multiple of 16 bytes.
    pub(super) fn new<T: TileElement>(
        buffer: &'a Buffer<T>,
        (rows, columns): (usize, usize),
        (tile_rows, tile_row): (u32, TileRow),
    ) -> Result<Self> {
        let (row_bytes, swizzle) = match tile_row {
            TileRow::Bytes64 => (64, sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B),
            TileRow::Bytes128 => (128, sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B),
        };
        let mut words = sys::CUtensorMap { opaque: [0; 16] };
        let value_bytes = size_of::<T>();
        let sizes = [columns as u64, rows as u64];
        let strides = [(columns * value_bytes) as u64];
        let tile = [(row_bytes / value_bytes) as u32, tile_rows];
        let steps = [1u32, 1];
        // SAFETY: `words` and the arrays outlive the call, and the address is only described.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut words,
                T::TYPE,
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
