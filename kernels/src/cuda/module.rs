//! Loads the image of compiled kernels that fits the GPU, and finds its entry points.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};

use cudarc::driver::{DriverError, result, sys};

use super::error::CudaError;

/// PTX for any GPU of compute capability 8.0 or later; the driver compiles it. Compressed by zstd.
const PTX: &[u8] = include_bytes!("../../prebuilt/polysift_sm80.ptx.zst");
/// Machine code for GPUs of compute capability 9.0. Compressed by zstd.
const CUBIN: &[u8] = include_bytes!("../../prebuilt/polysift_sm90a.cubin.zst");

/// Kernels of both images, without dynamic shared memory.
const KERNELS: &str = "attention_32 attention_64 attention_window_32 attention_window_64 \
    add_norm_768 add_norm_1024 add_norm_upto_512 add_norm_upto_1024 \
    embed_layer_norm_768 embed_layer_norm_1024 \
    embed_layer_norm_upto_512 embed_layer_norm_upto_1024 \
    layer_norm_768 layer_norm_1024 layer_norm_upto_512 layer_norm_upto_1024 \
    glu matmul_bias matmul_gelu matmul_residual pool rotate";
/// Kernels of [`CUBIN`] alone, and the size of `AttentionMemory`, `MatmulMemory` or
/// `MatmulNormMemory` of their sources: stages, boxes, and the rest in units of 1,024.
const HOPPER_KERNELS: [(&str, u32); 3] = [
    ("attention_64_hopper attention_window_64_hopper", 6 * 16_384),
    (
        "matmul_hopper_bias matmul_hopper_gelu matmul_hopper_residual \
         matmul_fp8_bias matmul_fp8_gelu matmul_fp8_residual",
        4 * (128 + 192) * 128 + 4 * 16_384 + 3 * 1_024,
    ),
    ("matmul_norm_768 matmul_norm_fp8_768", 3 * 65_536 + 2 * 8_192 + 15 * 1_024),
];

#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) handle: sys::CUfunction,
    /// Dynamic shared memory of a launch, besides what the kernel declares.
    pub(super) shared_bytes: u32,
}

pub(super) struct Kernels {
    pub(super) module: sys::CUmodule,
    functions: BTreeMap<&'static str, Function>,
    is_hopper: bool,
}

// SAFETY: the driver accepts the handles from any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above; they are never changed.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads the kernels into the context that is bound to the thread.
    pub(super) fn load(compute_capability: (u32, u32)) -> Result<Self, DriverError> {
        let cubin = (compute_capability == (9, 0)).then(|| load_image(CUBIN)).transpose();
        let cubin = cubin.unwrap_or_else(|error| {
            tracing::warn!(
                "the driver does not load the kernels for compute capability 9.0 ({error}): \
                 those for any GPU take their place, which are slower"
            );
            None
        });
        let (is_hopper, mut functions) = (cubin.is_some(), BTreeMap::new());
        let module = cubin.map_or_else(|| load_image(PTX), Ok)?;
        let hopper = if is_hopper { &HOPPER_KERNELS[..] } else { &[] };
        for &(names, shared_bytes) in [(KERNELS, 0)].iter().chain(hopper) {
            for name in names.split_whitespace() {
                functions.insert(name, find_function(module, name, shared_bytes)?);
            }
        }
        Ok(Self { module, functions, is_hopper })
    }

    /// Returns [`CudaError::Unsupported`] unless the kernels for compute capability 9.0 are loaded.
    pub(super) fn check_hopper(&self) -> Result<(), CudaError> {
        let reason = "this on a GPU that is not of compute capability 9.0, or whose driver did \
                      not load the kernels for it";
        if self.is_hopper { Ok(()) } else { Err(CudaError::Unsupported(reason.into())) }
    }

    /// Returns the kernel of this name in [`KERNELS`] or [`HOPPER_KERNELS`].
    pub(super) fn get(&self, name: &str) -> Result<Function, CudaError> {
        let function = self.functions.get(name).copied();
        function.ok_or_else(|| CudaError::Unsupported(format!("`{name}` on this GPU")))
    }
}

/// Finds the kernel `name`, which is launched with `shared_bytes` of dynamic shared memory.
fn find_function(
    module: sys::CUmodule,
    name: &str,
    shared_bytes: u32,
) -> Result<Function, DriverError> {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the module is loaded.
    let handle = unsafe { result::module::get_function(module, name) }?;
    if shared_bytes > 0 {
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = shared_bytes.cast_signed();
        // SAFETY: `handle` is a function of the module.
        unsafe { result::function::set_function_attribute(handle, most, bytes)? };
    }
    Ok(Function { handle, shared_bytes })
}

/// Loads an image that is compressed. The driver reads PTX up to a zero byte.
fn load_image(packed: &[u8]) -> Result<sys::CUmodule, DriverError> {
    let broken = |_| DriverError(sys::CUresult::CUDA_ERROR_INVALID_IMAGE);
    let mut image = zstd::decode_all(packed).map_err(broken)?;
    image.push(0);
    // SAFETY: a cubin carries its length, and a PTX ends with a zero.
    unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }
}
