//! The compiled kernels: loading the right image and finding its entry points.

use std::ffi::{CString, c_void};

use cudarc::driver::{DriverError, result, sys};

use super::error::CudaError;

/// For any card from 8.0 on; the driver compiles it.
const PTX: &[u8] = include_bytes!("../../prebuilt/polysift_sm80.ptx");
/// For cards of compute capability 9.0, ready to run.
const CUBIN: &[u8] = include_bytes!("../../prebuilt/polysift_sm90a.cubin");

/// Widths of rows as the names of the kernels of layer norm have them.
pub(super) const NORM_WIDTHS: [&str; 4] = ["upto_512", "768", "1024", "upto_1024"];

/// An entry point of a loaded module.
#[derive(Clone, Copy)]
pub(super) struct Function(pub(super) sys::CUfunction);

// SAFETY: a handle that the driver accepts from any thread.
unsafe impl Send for Function {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Function {}

/// The kernels of a card.
#[derive(Clone)]
pub(super) struct Kernels {
    module: sys::CUmodule,
    /// For the widths of [`NORM_WIDTHS`].
    pub(super) embed_layer_norm: [Function; 4],
    /// As `embed_layer_norm`.
    pub(super) add_layer_norm: [Function; 4],
    /// As `embed_layer_norm`.
    pub(super) layer_norm: [Function; 4],
    /// For the sizes of [`super::HEAD_SIZES`].
    pub(super) attention: [Function; 2],
    /// For a head size of 64; in the image for 9.0 alone.
    pub(super) attention_64_hopper: Option<Function>,
    pub(super) gelu: Function,
    pub(super) pool: Function,
    pub(super) prepare_rows: Function,
    pub(super) linear_relu: Function,
    pub(super) linear_f64: Function,
    pub(super) max_similarity: Function,
    pub(super) max_of_parts: Function,
    /// In the image for 9.0 alone.
    e4m3: Option<E4m3Kernels>,
}

/// The kernels that write rows of e4m3.
pub(super) struct E4m3Kernels {
    /// For the widths of [`NORM_WIDTHS`].
    pub(super) embed_layer_norm: [Function; 4],
    /// As `embed_layer_norm`.
    pub(super) layer_norm: [Function; 4],
    pub(super) quantise_rows: Function,
    pub(super) quantise_gelu_rows: Function,
}

// SAFETY: as for `Function`.
unsafe impl Send for Kernels {}
// SAFETY: as for `Function`.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads the kernels into the context that is bound to the thread.
    pub(super) fn load(compute_capability: (u32, u32)) -> Result<Self, DriverError> {
        let module = match compute_capability {
            // A cubin may not fit the driver; the PTX then does.
            (9, 0) => load_image(CUBIN).or_else(|_| load_image(PTX))?,
            _ => load_image(PTX)?,
        };
        let find = |name: &str| {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the module was just loaded.
            unsafe { result::module::get_function(module, name) }.map(Function)
        };
        let for_widths = |name: &str| -> Result<[Function; 4], DriverError> {
            let [a, b, c, d] = NORM_WIDTHS.map(|width| find(&format!("{name}_{width}")));
            Ok([a?, b?, c?, d?])
        };
        let e4m3 = || -> Result<E4m3Kernels, DriverError> {
            Ok(E4m3Kernels {
                embed_layer_norm: for_widths("embed_layer_norm_e4m3")?,
                layer_norm: for_widths("layer_norm_e4m3")?,
                quantise_rows: find("quantise_rows")?,
                quantise_gelu_rows: find("quantise_gelu_rows")?,
            })
        };
        let kernels = || {
            Ok(Self {
                module,
                embed_layer_norm: for_widths("embed_layer_norm")?,
                add_layer_norm: for_widths("add_layer_norm")?,
                layer_norm: for_widths("layer_norm")?,
                attention: [find("attention_32")?, find("attention_64")?],
                attention_64_hopper: find("attention_64_hopper").ok(),
                gelu: find("gelu")?,
                pool: find("pool")?,
                prepare_rows: find("prepare_rows")?,
                linear_relu: find("linear_relu")?,
                linear_f64: find("linear_f64")?,
                max_similarity: find("max_similarity")?,
                max_of_parts: find("max_of_parts")?,
                e4m3: e4m3().ok(),
            })
        };
        kernels().inspect_err(|_| {
            // SAFETY: loaded above, and no function of it is kept. The first error is the one to tell.
            let _ = unsafe { result::module::unload(module) };
        })
    }

    /// The kernels for e4m3, or [`CudaError::Unsupported`].
    pub(super) fn e4m3(&self) -> Result<&E4m3Kernels, CudaError> {
        let reason = "e4m3 on this card; cards of compute capability 9.0 are";
        self.e4m3.as_ref().ok_or_else(|| CudaError::unsupported(reason))
    }

    /// Unloads the kernels; the context they were loaded into must be bound to the thread.
    ///
    /// # Safety
    /// No work that uses them may be queued, and they may not be used again.
    pub(super) unsafe fn unload(&self) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { result::module::unload(self.module) }
    }
}

/// Loads a copy of `image`, as memory of the allocator is aligned and the bytes inside the binary
/// are not; and the driver reads PTX up to a zero.
fn load_image(image: &[u8]) -> Result<sys::CUmodule, DriverError> {
    let image = [image, &[0]].concat();
    // SAFETY: a cubin carries its length, and a PTX ends with a zero.
    unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) }
}
