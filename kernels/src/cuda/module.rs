//! Loads the image of compiled kernels that fits the GPU, and finds its entry points.

use std::ffi::{CString, c_void};

use cudarc::driver::{DriverError, result, sys};

use super::error::CudaError;

/// PTX for any GPU of compute capability 8.0 or later; the driver compiles it. Compressed by zstd.
const PTX: &[u8] = include_bytes!("../../prebuilt/polysift_sm80.ptx.zst");
/// Machine code for GPUs of compute capability 9.0. Compressed by zstd.
const CUBIN: &[u8] = include_bytes!("../../prebuilt/polysift_sm90a.cubin.zst");

/// Row widths as they appear in the names of the layer norm kernels.
pub(super) const NORM_WIDTHS: [&str; 4] = ["upto_512", "768", "1024", "upto_1024"];

#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) handle: sys::CUfunction,
    /// Dynamic shared memory of a launch, besides what the kernel declares.
    pub(super) shared_bytes: u32,
}

// SAFETY: the driver accepts the handle from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Function {}

pub(super) struct Kernels {
    pub(super) module: Module,
    /// The layer norms have one kernel per width of [`NORM_WIDTHS`].
    pub(super) embed_layer_norm: [Function; 4],
    pub(super) layer_norm: [Function; 4],
    pub(super) add_norm: [Function; 4],
    /// For each size of [`super::HEAD_SIZES`], one kernel without a window and one with it.
    pub(super) attention: [[Function; 2]; 2],
    pub(super) rotate: Function,
    /// Kernels in the order of the variants of [`super::MatmulEpilogue`].
    pub(super) matmul: [Function; 3],
    pub(super) glu: Function,
    pub(super) pool: Function,
    hopper: Option<HopperKernels>,
}

/// Kernels that use the instructions of compute capability 9.0; only [`CUBIN`] has them.
pub(super) struct HopperKernels {
    /// Kernels for head size 64, without a window and with it.
    pub(super) attention_64: [Function; 2],
    /// Both products have their kernels in the order of [`super::MatmulEpilogue`].
    pub(super) matmul: [Function; 3],
    pub(super) matmul_fp8: [Function; 3],
    pub(super) matmul_norm: Function,
    pub(super) matmul_norm_fp8: Function,
}

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
        let module = cubin.map_or_else(|| load_image(PTX), Ok)?;
        Self::find(module, cubin.is_some()).inspect_err(|_| {
            // SAFETY: loaded above, and no function of it is kept. The first error is returned.
            let _ = unsafe { module.unload() };
        })
    }

    fn find(module: Module, is_hopper: bool) -> Result<Self, DriverError> {
        Ok(Self {
            module,
            embed_layer_norm: module.for_widths("embed_layer_norm")?,
            layer_norm: module.for_widths("layer_norm")?,
            add_norm: module.for_widths("add_norm")?,
            attention: [
                [module.find("attention_32", 0)?, module.find("attention_window_32", 0)?],
                [module.find("attention_64", 0)?, module.find("attention_window_64", 0)?],
            ],
            rotate: module.find("rotate", 0)?,
            matmul: module.for_epilogues("matmul", 0)?,
            glu: module.find("glu", 0)?,
            pool: module.find("pool", 0)?,
            hopper: if is_hopper { Some(HopperKernels::find(module)?) } else { None },
        })
    }

    /// Returns the kernels for compute capability 9.0, or [`CudaError::Unsupported`].
    pub(super) fn hopper(&self) -> Result<&HopperKernels, CudaError> {
        let reason = "this on a GPU that is not of compute capability 9.0, or whose driver did \
                      not load the kernels for it";
        self.hopper.as_ref().ok_or_else(|| CudaError::unsupported(reason))
    }
}

impl HopperKernels {
    fn find(module: Module) -> Result<Self, DriverError> {
        Ok(Self {
            attention_64: [
                module.find("attention_64_hopper", ATTENTION_BYTES)?,
                module.find("attention_window_64_hopper", ATTENTION_BYTES)?,
            ],
            matmul: module.for_epilogues("matmul_hopper", MATMUL_BYTES)?,
            matmul_fp8: module.for_epilogues("matmul_fp8", MATMUL_BYTES)?,
            matmul_norm: module.find("matmul_norm_768", MATMUL_NORM_BYTES)?,
            matmul_norm_fp8: module.find("matmul_norm_fp8_768", MATMUL_NORM_BYTES)?,
        })
    }
}

/// Size of `AttentionMemory` in attention_hopper.cu.
const ATTENTION_BYTES: u32 = 6 * 16_384;
/// Size of `MatmulMemory` in matmul_hopper.cu: stages, boxes, and the rest in units of 1,024.
const MATMUL_BYTES: u32 = 4 * (128 + 192) * 128 + 4 * 16_384 + 3 * 1_024;
/// Size of `MatmulNormMemory` in matmul_norm_hopper.cu, in the same way.
const MATMUL_NORM_BYTES: u32 = 3 * 65_536 + 2 * 8_192 + 15 * 1_024;

#[derive(Clone, Copy)]
pub(super) struct Module(sys::CUmodule);

// SAFETY: the driver accepts the handle from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Module {}

impl Module {
    /// Unloads the kernels; the context they were loaded into must be bound to the thread.
    ///
    /// # Safety
    /// No queued work may use the kernels, and they may not be used again.
    pub(super) unsafe fn unload(self) -> Result<(), DriverError> {
        // SAFETY: the caller promises it.
        unsafe { result::module::unload(self.0) }
    }

    /// Finds the kernel `name`, which is launched with `shared_bytes` of dynamic shared memory.
    fn find(self, name: &str, shared_bytes: u32) -> Result<Function, DriverError> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded.
        let handle = unsafe { result::module::get_function(self.0, name) }?;
        if shared_bytes > 0 {
            let most =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = shared_bytes.cast_signed();
            // SAFETY: `handle` is a function of the module.
            unsafe { result::function::set_function_attribute(handle, most, bytes)? };
        }
        Ok(Function { handle, shared_bytes })
    }

    fn for_widths(self, name: &str) -> Result<[Function; 4], DriverError> {
        let [a, b, c, d] = NORM_WIDTHS.map(|width| self.find(&format!("{name}_{width}"), 0));
        Ok([a?, b?, c?, d?])
    }

    fn for_epilogues(self, name: &str, shared_bytes: u32) -> Result<[Function; 3], DriverError> {
        let [a, b, c] = ["bias", "gelu", "residual"]
            .map(|epilogue| self.find(&format!("{name}_{epilogue}"), shared_bytes));
        Ok([a?, b?, c?])
    }
}

/// Loads an image that is compressed. The driver reads PTX up to a zero byte.
fn load_image(packed: &[u8]) -> Result<Module, DriverError> {
    let broken = |_| DriverError(sys::CUresult::CUDA_ERROR_INVALID_IMAGE);
    let mut image = zstd::decode_all(packed).map_err(broken)?;
    image.push(0);
    // SAFETY: a cubin carries its length, and a PTX ends with a zero.
    unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }.map(Module)
}
