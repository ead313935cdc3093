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
use super::memory::Buffer;
use super::stream::Stream;

/// Memory that an algorithm may use beside its operands.
pub const WORKSPACE_BYTES: usize = 32 << 20;

/// `CUBLAS_OP_T`.
const TRANSPOSED: i32 = 1;
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: parts of a sum are added in f32. The other schemes add
/// them in bf16.
const REDUCTION_SCHEMES: u32 = 2;

/// What cublasLt does to a product beside adding the bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LibraryEpilogue {
    None,
    GeluTanh,
    Residual,
}

/// cublasLt's description of a product.
pub(super) struct LibraryMatmul {
    device: Device,
    handle: sys::cublasLtHandle_t,
    operation: Operation,
    residual: bool,
    w: MatrixLayout,
    x: MatrixLayout,
    y: MatrixLayout,
}

/// Operands of a product on the GPU.
pub(super) struct LibraryOperands<'a> {
    pub(super) weight: &'a Buffer<bf16>,
    pub(super) bias: &'a Buffer<bf16>,
    pub(super) x: &'a Buffer<bf16>,
    /// What is added, if the epilogue says so.
    pub(super) residual: Option<&'a Buffer<bf16>>,
    pub(super) y: &'a Buffer<bf16>,
    pub(super) workspace: &'a Buffer<u8>,
}

struct Operation(sys::cublasLtMatmulDesc_t);

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: created in `LibraryMatmul::new`, destroyed once.
        let _ = unsafe { lt::destroy_matmul_desc(self.0) };
    }
}

struct MatrixLayout(sys::cublasLtMatrixLayout_t);

impl MatrixLayout {
    /// A column-major matrix without gaps.
    fn new(rows: usize, columns: usize) -> Result<Self, CublasError> {
        let bf16 = sys::cudaDataType_t::CUDA_R_16BF;
        lt::create_matrix_layout(bf16, rows as u64, columns as u64, rows as i64).map(Self)
    }
}

impl Drop for MatrixLayout {
    fn drop(&mut self) {
        // SAFETY: created in `MatrixLayout::new`, destroyed once.
        let _ = unsafe { lt::destroy_matrix_layout(self.0) };
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn set<T>(&self, attribute: PreferenceAttribute, value: &T) -> Result<(), CublasError> {
        let pointer = std::ptr::from_ref(value).cast();
        // SAFETY: the preference lives, and cublasLt copies `value`, whose type is the attribute's.
        unsafe { lt::set_matmul_pref_attribute(self.0, attribute, pointer, size_of::<T>()) }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created in `LibraryMatmul::candidates`, destroyed once.
        let _ = unsafe { lt::destroy_matmul_pref(self.0) };
    }
}

impl LibraryMatmul {
    /// The bf16 product of these sizes; `None` without cublasLt.
    pub(super) fn new(
        device: &Device,
        [tokens, outputs, inputs]: [usize; 3],
        epilogue: LibraryEpilogue,
    ) -> Result<Option<Self>> {
        let Some(handle) = device.library() else { return Ok(None) };
        let failed = |error| failed(device, "describing a matrix product", error);
        device.context().bind_to_thread().map_err(device.failed("binding the GPU"))?;
        let f32 = sys::cudaDataType_t::CUDA_R_32F;
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let this = Self {
            device: device.clone(),
            handle,
            operation: Operation(lt::create_matmul_desc(compute, f32).map_err(failed)?),
            residual: epilogue == LibraryEpilogue::Residual,
            w: MatrixLayout::new(inputs, outputs).map_err(failed)?,
            x: MatrixLayout::new(inputs, tokens).map_err(failed)?,
            y: MatrixLayout::new(outputs, tokens).map_err(failed)?,
        };
        let epilogue = if epilogue == LibraryEpilogue::GeluTanh {
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
        let preference = Preference(lt::create_matmul_pref().map_err(failed)?);
        let most = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        preference.set(most, &WORKSPACE_BYTES).map_err(failed)?;
        let schemes = PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
        preference.set(schemes, &REDUCTION_SCHEMES).map_err(failed)?;
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
        operands: &LibraryOperands<'_>,
    ) -> Result<()> {
        let LibraryOperands { weight, bias, x, residual, y, workspace } = operands;
        let device = &self.device;
        device.context().bind_to_thread().map_err(device.failed("binding the GPU"))?;
        self.set_bias(bias)?;
        let added = residual.filter(|_| self.residual).unwrap_or(y);
        stream.uses(
            [weight, bias, x, added, y].map(|b| &b.memory).into_iter().chain([&workspace.memory]),
        );
        let (alpha, beta) = (1.0f32, if self.residual { 1.0f32 } else { 0.0 });
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
