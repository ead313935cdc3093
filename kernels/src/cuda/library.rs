//! Matrix products by cublasLt, where it is there.
//!
//! cublasLt counts in columns: a row-major `[rows, n]` is its column-major `n x rows`. So
//! `y [T, N] = x [T, K] w [N, K]ᵀ + b` is `D (N x T) = Wᵀ (N x K) X (K x T) + b`.

use std::ffi::c_void;

use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys;
use half::bf16;
use sys::cublasLtMatmulDescAttributes_t as Attribute;
use sys::cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute;

use super::device::Device;
use super::error::{CudaError, Result};
use super::linear::{
    LeftOperand, Linear, LinearWeight, MatmulEpilogue, MatmulResult, MatmulShape, Operands,
};
use super::memory::Buffer;
use super::stream::Stream;

/// Memory that an algorithm may use beside its operands.
pub const WORKSPACE_BYTES: usize = 32 << 20;

/// `CUBLAS_OP_T`.
const TRANSPOSED: i32 = 1;
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: parts of a sum are added in f32. The other schemes add
/// them in bf16.
const REDUCTION_SCHEMES: u32 = 2;

/// A product as cublasLt describes it, which depends on its sizes alone.
pub(super) struct LibraryMatmul {
    device: Device,
    handle: sys::cublasLtHandle_t,
    shape: MatmulShape,
    operation: Owned<sys::cublasLtMatmulDesc_t>,
    w: Layout,
    x: Layout,
    y: Layout,
}

type Layout = Owned<sys::cublasLtMatrixLayout_t>;

/// What cublasLt made, and what destroys it.
struct Owned<T: Copy>(T, unsafe fn(T) -> Result<(), CublasError>);

impl<T: Copy> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by cublasLt and owned here alone, so destroyed once.
        let _ = unsafe { (self.1)(self.0) };
    }
}

/// A column-major matrix without gaps.
fn layout(rows: usize, columns: usize) -> Result<Layout, CublasError> {
    let bf16 = sys::cudaDataType_t::CUDA_R_16BF;
    let made = lt::create_matrix_layout(bf16, rows as u64, columns as u64, rows as i64)?;
    Ok(Owned(made, lt::destroy_matrix_layout))
}

impl LibraryMatmul {
    /// The bf16 product of `shape`, but for [`MatmulEpilogue::Gelu`], which it leaves out; `None` without
    /// cublasLt.
    pub(super) fn new(device: &Device, shape: MatmulShape) -> Result<Option<Self>> {
        let MatmulShape { tokens, outputs, inputs, epilogue, .. } = shape;
        let Some(handle) = device.library() else { return Ok(None) };
        let failed = |error| failed(device, "describing a matrix product", error);
        device.context().bind_to_thread().map_err(device.failed("binding the GPU"))?;
        let f32 = sys::cudaDataType_t::CUDA_R_32F;
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let this = Self {
            device: device.clone(),
            handle,
            shape,
            operation: Owned(
                lt::create_matmul_desc(compute, f32).map_err(failed)?,
                lt::destroy_matmul_desc,
            ),
            w: layout(inputs, outputs).map_err(failed)?,
            x: layout(inputs, tokens).map_err(failed)?,
            y: layout(outputs, tokens).map_err(failed)?,
        };
        let epilogue = if epilogue == MatmulEpilogue::GeluTanh {
            sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS
        } else {
            sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS
        };
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &TRANSPOSED)?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        Ok(Some(this))
    }

    /// Words and workspace of up to `limit` algorithms, the most promising first.
    pub(super) fn candidates(
        &self,
        bias: &Buffer<bf16>,
        limit: usize,
    ) -> Result<Vec<([u64; 8], usize)>> {
        self.set_bias(bias)?;
        let failed = |error| failed(&self.device, "looking for an algorithm", error);
        let preference = Owned(lt::create_matmul_pref().map_err(failed)?, lt::destroy_matmul_pref);
        let set = |attribute, pointer, size| {
            // SAFETY: the preference lives, and cublasLt copies the value, whose type is the attribute's.
            unsafe { lt::set_matmul_pref_attribute(preference.0, attribute, pointer, size) }
        };
        let most = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        set(most, std::ptr::from_ref(&WORKSPACE_BYTES).cast(), size_of::<usize>())
            .map_err(failed)?;
        let schemes = PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        set(schemes, std::ptr::from_ref(&REDUCTION_SCHEMES).cast(), size_of::<u32>())
            .map_err(failed)?;
        let mut results =
            vec![std::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit(); limit];
        let mut count = 0;
        // SAFETY: all handles live, and `results` has room for `limit`.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                self.operation.0,
                self.w.0,
                self.x.0,
                self.y.0,
                self.y.0,
                preference.0,
                i32::try_from(limit).unwrap_or(i32::MAX),
                results.as_mut_ptr().cast(),
                &raw mut count,
            )
        };
        if status != sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED {
            status.result().map_err(failed)?;
        }
        // SAFETY: cublasLt has written the first `count`.
        let found = results.iter().take(count as usize).map(|r| unsafe { r.assume_init_ref() });
        let usable = found.filter(|r| {
            r.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
                && r.workspaceSize <= WORKSPACE_BYTES
        });
        Ok(usable.map(|r| (r.algo.data, r.workspaceSize)).collect())
    }

    /// The workspace of the algorithm with these words, if cublasLt takes it for this product.
    pub(super) fn check(&self, bias: &Buffer<bf16>, words: [u64; 8]) -> Option<usize> {
        let algo = sys::cublasLtMatmulAlgo_t { data: words };
        let mut result = std::mem::MaybeUninit::uninit();
        self.device.context().bind_to_thread().ok()?;
        self.set_bias(bias).ok()?;
        // SAFETY: all handles live; cublasLt checks the words, and writes `result` when it succeeds.
        let result = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                self.handle,
                self.operation.0,
                self.w.0,
                self.x.0,
                self.y.0,
                self.y.0,
                &raw const algo,
                result.as_mut_ptr(),
            )
            .result()
            .ok()?;
            result.assume_init()
        };
        let good = result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
            && result.workspaceSize <= WORKSPACE_BYTES;
        good.then_some(result.workspaceSize)
    }

    /// Puts the product into the queue.
    ///
    /// # Safety
    /// The operands must hold as many values as the product's sizes say, and the workspace as many
    /// bytes as the algorithm needs.
    pub(super) unsafe fn run(
        &self,
        stream: &Stream,
        (words, workspace_bytes): ([u64; 8], usize),
        linear: &Linear,
        operands: &Operands<'_>,
    ) -> Result<()> {
        let (Linear { weight: LinearWeight::Bf16(weight), bias }, LeftOperand::Bf16(x)) =
            (linear, operands.x)
        else {
            return Err(self.shape.wrong_kind());
        };
        let Operands { residual, workspace, .. } = operands;
        let MatmulResult::Bf16(y) = &operands.y else { return Err(self.shape.wrong_kind()) };
        let y = &**y;
        let device = &self.device;
        device.context().bind_to_thread().map_err(device.failed("binding the GPU"))?;
        self.set_bias(bias)?;
        let residual = residual.filter(|_| self.shape.epilogue == MatmulEpilogue::Residual);
        let added = residual.unwrap_or(y);
        stream.uses(
            [weight, bias, x, added, y].map(|b| &b.memory).into_iter().chain([&workspace.memory]),
        );
        let (alpha, beta) = (1.0f32, if residual.is_some() { 1.0f32 } else { 0.0 });
        let algo = sys::cublasLtMatmulAlgo_t { data: words };
        // SAFETY: all handles live, the layouts are inside the buffers by the caller's promise, and the
        // memory lives until the queue is done with it.
        unsafe {
            lt::matmul(
                self.handle,
                self.operation.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                weight.address(0) as *const c_void,
                self.w.0,
                x.address(0) as *const c_void,
                self.x.0,
                added.address(0) as *const c_void,
                self.y.0,
                y.address(0) as *mut c_void,
                self.y.0,
                &raw const algo,
                workspace.address(0) as *mut c_void,
                workspace_bytes,
                stream.raw().cast(),
            )
        }
        .map_err(|error| failed(device, "launching a matrix product", error))
    }

    /// Some algorithms ask for the alignment of the bias: it is set before they are looked for,
    /// checked or run.
    fn set_bias(&self, bias: &Buffer<bf16>) -> Result<()> {
        self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.address(0))
    }

    fn set<T>(&self, attribute: Attribute, value: &T) -> Result<()> {
        let pointer = std::ptr::from_ref(value).cast();
        // SAFETY: the operation lives, and cublasLt copies `value`, whose type is the attribute's.
        let set = unsafe {
            lt::set_matmul_desc_attribute(self.operation.0, attribute, pointer, size_of::<T>())
        };
        set.map_err(|error| failed(&self.device, "describing a matrix product", error))
    }
}

fn failed(device: &Device, action: &'static str, error: CublasError) -> CudaError {
    CudaError::Driver { ordinal: device.ordinal(), action, message: error.to_string() }
}
