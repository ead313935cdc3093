//! The compiled kernels: loading the right image and finding its entry points.

use std::ffi::{CString, c_void};

use cudarc::driver::{DriverError, result, sys};

use super::error::CudaError;

/// For any GPU from 8.0 on; the driver compiles it.
const PTX: &[u8] = include_bytes!("../../prebuilt/polysift_sm80.ptx");
/// For GPUs of compute capability 9.0, ready to run.
const CUBIN: &[u8] = include_bytes!("../../prebuilt/polysift_sm90a.cubin");

/// Widths of rows as the names of the kernels of layer norm have them.
pub(super) const NORM_WIDTHS: [&str; 4] = ["upto_512", "768", "1024", "upto_1024"];

/// An entry point of a loaded module.
#[derive(Clone, Copy)]
pub(super) struct Function {
    pub(super) handle: sys::CUfunction,
    /// Shared memory that its launches give it, beside what it declares.
    pub(super) shared_bytes: u32,
}

// SAFETY: a handle that the driver accepts from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Function {}

/// The kernels of a GPU.
#[derive(Clone)]
pub(super) struct Kernels {
    module: Module,
    /// For the widths of [`NORM_WIDTHS`].
    pub(super) embed_layer_norm: [Function; 4],
    /// As `embed_layer_norm`.
    pub(super) layer_norm: [Function; 4],
    /// As `embed_layer_norm`.
    pub(super) add_norm: [Function; 4],
    /// For the sizes of [`super::HEAD_SIZES`], each without a window and with one.
    pub(super) attention: [[Function; 2]; 2],
    pub(super) rotate: Function,
    /// For the variants of [`super::MatmulEpilogue`].
    pub(super) matmul: [Function; 3],
    pub(super) glu: Function,
    pub(super) pool: Function,
    hopper: Option<HopperKernels>,
}

/// The kernels with the instructions of compute capability 9.0: in the image for it alone.
#[derive(Clone)]
pub(super) struct HopperKernels {
    /// For a head size of 64, without a window and with one.
    pub(super) attention_64: [Function; 2],
    /// For the variants of [`super::MatmulEpilogue`].
    pub(super) matmul: [Function; 3],
    /// As `matmul`.
    pub(super) matmul_fp8: [Function; 3],
    /// For the widths of [`NORM_WIDTHS`].
    pub(super) embed_layer_norm_fp8: [Function; 4],
    /// As `embed_layer_norm_fp8`.
    pub(super) layer_norm_fp8: [Function; 4],
    /// As `embed_layer_norm_fp8`.
    pub(super) add_norm_fp8: [Function; 4],
    pub(super) quantise_rows: Function,
}

impl Kernels {
    /// Loads the kernels into the context that is bound to the thread.
    pub(super) fn load(compute_capability: (u32, u32)) -> Result<Self, DriverError> {
        let (module, is_hopper) = Module::load(compute_capability)?;
        Self::find(module, is_hopper).inspect_err(|_| {
            // SAFETY: loaded above, and no function of it is kept. The first error is the one to tell.
            let _ = unsafe { result::module::unload(module.0) };
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

    /// The kernels for compute capability 9.0, or [`CudaError::Unsupported`].
    pub(super) fn hopper(&self) -> Result<&HopperKernels, CudaError> {
        let reason = "this on a GPU that is not of compute capability 9.0, or whose driver did \
                      not load the kernels for it";
        self.hopper.as_ref().ok_or_else(|| CudaError::unsupported(reason))
    }

    /// Unloads the kernels; the context they were loaded into must be bound to the thread.
    ///
    /// # Safety
    /// No work that uses them may be queued, and they may not be used again.
    pub(super) unsafe fn unload(&self) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { result::module::unload(self.module.0) }
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
            embed_layer_norm_fp8: module.for_widths("embed_layer_norm_fp8")?,
            layer_norm_fp8: module.for_widths("layer_norm_fp8")?,
            add_norm_fp8: module.for_widths("add_norm_fp8")?,
            quantise_rows: module.find("quantise_rows", 0)?,
        })
    }
}

/// Size of `AttentionMemory` in attention_hopper.cu...
const ATTENTION_BYTES: u32 = 6 * 16_384;
/// ... and of `MatmulMemory` in matmul_hopper.cu: stages, boxes, and the rest in units of 1,024.
const MATMUL_BYTES: u32 = 4 * (128 + 192) * 128 + 4 * 16_384 + 3 * 1_024;

/// A loaded image.
#[derive(Clone, Copy)]
struct Module(sys::CUmodule);

// SAFETY: a handle that the driver accepts from any thread.
unsafe impl Send for Module {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Module {}

impl Module {
    /// The image for the GPU, and whether it is that for compute capability 9.0.
    fn load(compute_capability: (u32, u32)) -> Result<(Self, bool), DriverError> {
        if compute_capability == (9, 0) {
            match load_image(CUBIN) {
                Ok(module) => return Ok((module, true)),
                Err(error) => tracing::warn!(
                    "the driver does not load the kernels for compute capability 9.0 ({error}): \
                     those for any GPU take their place, which are slower"
                ),
            }
        }
        Ok((load_image(PTX)?, false))
    }

    /// The entry point `name`, whose launches give it `shared_bytes` of shared memory.
    fn find(self, name: &str, shared_bytes: u32) -> Result<Function, DriverError> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded.
        let handle = unsafe { result::module::get_function(self.0, name) }?;
        if shared_bytes > 0 {
            let most =
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = shared_bytes.cast_signed();
            // SAFETY: a function of the module.
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

/// Loads a copy of `image`, as memory of the allocator is aligned and the bytes inside the binary
/// are not; and the driver reads PTX up to a zero.
fn load_image(image: &[u8]) -> Result<Module, DriverError> {
    let image = [image, &[0]].concat();
    // SAFETY: a cubin carries its length, and a PTX ends with a zero.
    unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }.map(Module)
}
