//! Matrix products with bias by cublasLt, and the search for the fastest algorithm.
//!
//! cublasLt counts in columns: a row-major `[rows, n]` is its column-major `n x rows`. So
//! `y [T, N] = x [T, K] w [N, K]ᵀ + b` is `D (N x T) = Wᵀ (N x K) X (K x T) + b`.

use std::ffi::c_void;

use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys;
use half::bf16;

use super::device::Device;
use super::error::{CudaError, Result, check_len};
use super::memory::Buffer;
use super::stream::Stream;

/// Memory that an algorithm may use beside its operands.
pub const WORKSPACE_BYTES: usize = 32 << 20;

/// `CUBLAS_OP_T`.
const TRANSPOSED: i32 = 1;

/// Weights of a linear map, on a card.
pub struct Linear {
    weight: Buffer<bf16>,
    bias: Buffer<bf16>,
}

impl Linear {
    /// Copies `weight` `[N, K]` and `bias` `[N]` to the card.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the sizes do not fit; as [`Device::alloc`].
    pub fn new(stream: &Stream, weight: &[bf16], bias: &[bf16]) -> Result<Self> {
        if bias.is_empty() || !weight.len().is_multiple_of(bias.len()) {
            let reason = format!("{} weights for {} outputs", weight.len(), bias.len());
            return Err(CudaError::shape("linear", reason));
        }
        let weight = stream.to_device(weight, "the weights")?;
        Ok(Self { weight, bias: stream.to_device(bias, "the weights")? })
    }

    /// Width N of the result.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Width K of the input.
    pub fn inputs(&self) -> usize {
        self.weight.len() / self.bias.len()
    }
}

/// What happens to a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulEpilogue {
    /// The bias is added.
    Bias,
    /// The bias is added, then GELU in its tanh form.
    BiasGeluTanh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) tokens: usize,
    outputs: usize,
    pub(super) inputs: usize,
    epilogue: MatmulEpilogue,
}

/// One way of computing a [`Matmul`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    shape: Shape,
    words: [u64; 8],
    workspace_bytes: usize,
}

impl Algorithm {
    /// Its name in cublasLt, which no one but cublasLt of the same version and card understands.
    pub fn words(&self) -> [u64; 8] {
        self.words
    }

    /// Memory that it needs beside its operands.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }
}

/// A matrix product of fixed sizes: `y` `[T, N]` = epilogue(`x` `[T, K]` · `w` `[N, K]`ᵀ + `b`), all bf16,
/// sums in f32.
pub struct Matmul {
    device: Device,
    pub(super) shape: Shape,
    operation: Operation,
    w: Layout,
    x: Layout,
    y: Layout,
}

struct Operation(sys::cublasLtMatmulDesc_t);

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: created in `Matmul::new`, destroyed once.
        let _ = unsafe { lt::destroy_matmul_desc(self.0) };
    }
}

struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    /// A column-major matrix without gaps.
    fn new(rows: usize, columns: usize) -> Result<Self, CublasError> {
        let bf16 = sys::cudaDataType_t::CUDA_R_16BF;
        lt::create_matrix_layout(bf16, rows as u64, columns as u64, rows as i64).map(Self)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: created in `Layout::new`, destroyed once.
        let _ = unsafe { lt::destroy_matrix_layout(self.0) };
    }
}

struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: created in `Matmul::candidates`, destroyed once.
        let _ = unsafe { lt::destroy_matmul_pref(self.0) };
    }
}

/// What a product works on: `x` `[T, K]`, `y` `[T, N]`, and [`Algorithm::workspace_bytes`].
pub struct Operands<'a> {
    /// Input.
    pub x: &'a Buffer<bf16>,
    /// Result.
    pub y: &'a mut Buffer<bf16>,
    /// Memory for the algorithm.
    pub workspace: &'a mut Buffer<u8>,
}

impl Matmul {
    /// A product of `tokens` rows for maps from `inputs` to `outputs` values.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] if a width is no multiple of 8; [`CudaError::Driver`] if cublasLt
    /// refuses.
    pub fn new(
        device: &Device,
        tokens: usize,
        outputs: usize,
        inputs: usize,
        epilogue: MatmulEpilogue,
    ) -> Result<Self> {
        if tokens == 0 || [outputs, inputs].iter().any(|n| *n == 0 || !n.is_multiple_of(8)) {
            return Err(CudaError::unsupported(format!(
                "a matrix product of {tokens} x {inputs} with {outputs} x {inputs}; widths that \
                 are multiples of 8 are"
            )));
        }
        let failed = |error| failed(device, "describing a matrix product", error);
        device.context().bind_to_thread().map_err(device.failed("binding the card"))?;
        let f32 = sys::cudaDataType_t::CUDA_R_32F;
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let this = Self {
            device: device.clone(),
            shape: Shape { tokens, outputs, inputs, epilogue },
            operation: Operation(lt::create_matmul_desc(compute, f32).map_err(failed)?),
            w: Layout::new(inputs, outputs).map_err(failed)?,
            x: Layout::new(inputs, tokens).map_err(failed)?,
            y: Layout::new(outputs, tokens).map_err(failed)?,
        };
        let epilogue = match epilogue {
            MatmulEpilogue::Bias => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            MatmulEpilogue::BiasGeluTanh => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        };
        this.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &TRANSPOSED)?;
        this.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        Ok(this)
    }

    /// Rows T, outputs N and inputs K.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.shape.tokens, self.shape.outputs, self.shape.inputs)
    }

    /// What happens to the product before it is written.
    pub fn epilogue(&self) -> MatmulEpilogue {
        self.shape.epilogue
    }

    /// Up to `limit` algorithms that use at most [`WORKSPACE_BYTES`], the most promising first.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if `linear` has other sizes; [`CudaError::Unsupported`] if there are none.
    pub fn candidates(&mut self, linear: &Linear, limit: usize) -> Result<Vec<Algorithm>> {
        self.check(linear)?;
        // Some algorithms ask for the alignment of the bias.
        self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &linear.bias.address(0))?;
        let failed = |error| failed(&self.device, "looking for an algorithm", error);
        let preference = Preference(lt::create_matmul_pref().map_err(failed)?);
        let bytes = WORKSPACE_BYTES;
        let mut results =
            vec![std::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit(); limit];
        let mut count = 0;
        // SAFETY: all handles live, the attribute is a usize, and `results` has room for `limit`.
        let status = unsafe {
            lt::set_matmul_pref_attribute(
                preference.0,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const bytes).cast(),
                size_of_val(&bytes),
            )
            .map_err(failed)?;
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.device.matmul(),
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
            r.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS && r.workspaceSize <= bytes
        });
        let algorithms: Vec<Algorithm> =
            usable.map(|r| self.algorithm(r.algo.data, r.workspaceSize)).collect();
        if algorithms.is_empty() {
            return Err(CudaError::unsupported(format!("{:?} by this cublasLt", self.shape)));
        }
        Ok(algorithms)
    }

    /// The algorithm with these [`Algorithm::words`], if cublasLt takes it for this product.
    pub fn restore(&self, words: [u64; 8]) -> Option<Algorithm> {
        let algo = sys::cublasLtMatmulAlgo_t { data: words };
        let mut result = std::mem::MaybeUninit::uninit();
        self.device.context().bind_to_thread().ok()?;
        // SAFETY: all handles live; cublasLt checks the words, and writes `result` when it succeeds.
        let result = unsafe {
            sys::cublasLtMatmulAlgoCheck(
                self.device.matmul(),
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
        good.then(|| self.algorithm(words, result.workspaceSize))
    }

    /// Puts the product with the weights `linear` into the queue.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if sizes do not fit or the algorithm is another product's;
    /// [`CudaError::Driver`] if cublasLt or the card fails.
    pub fn run(
        &mut self,
        stream: &Stream,
        algorithm: &Algorithm,
        linear: &Linear,
        operands: Operands<'_>,
    ) -> Result<()> {
        const OP: &str = "matrix product";
        let Operands { x, y, workspace } = operands;
        let Shape { tokens, outputs, inputs, .. } = self.shape;
        self.check(linear)?;
        if algorithm.shape != self.shape {
            return Err(CudaError::shape(OP, "the algorithm is another product's"));
        }
        check_len(OP, "x", x.len(), tokens.checked_mul(inputs))?;
        check_len(OP, "y", y.len(), tokens.checked_mul(outputs))?;
        check_len(OP, "the workspace", workspace.len(), Some(algorithm.workspace_bytes))?;
        let device = &self.device;
        device.context().bind_to_thread().map_err(device.failed("binding the card"))?;
        self.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &linear.bias.address(0))?;
        let memory =
            [&linear.weight.memory, &linear.bias.memory, &x.memory, &y.memory, &workspace.memory];
        stream.uses(memory.into_iter());
        let (alpha, beta) = (1.0f32, 0.0f32);
        let algo = sys::cublasLtMatmulAlgo_t { data: algorithm.words };
        // SAFETY: all handles live, the layouts are inside the buffers as checked above, and the
        // memory lives until the queue is done with it.
        unsafe {
            lt::matmul(
                device.matmul(),
                self.operation.0,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                linear.weight.address(0) as *const c_void,
                self.w.0,
                x.address(0) as *const c_void,
                self.x.0,
                y.address(0) as *const c_void,
                self.y.0,
                y.address(0) as *mut c_void,
                self.y.0,
                &raw const algo,
                workspace.address(0) as *mut c_void,
                algorithm.workspace_bytes,
                stream.raw().cast(),
            )
        }
        .map_err(|error| failed(device, "launching a matrix product", error))
    }

    fn algorithm(&self, words: [u64; 8], workspace_bytes: usize) -> Algorithm {
        Algorithm { shape: self.shape, words, workspace_bytes }
    }

    fn check(&self, linear: &Linear) -> Result<()> {
        let Shape { outputs, inputs, .. } = self.shape;
        if (linear.outputs(), linear.inputs()) == (outputs, inputs) {
            return Ok(());
        }
        let (n, k) = (linear.outputs(), linear.inputs());
        let reason = format!("weights of {n} x {k}, not {outputs} x {inputs}");
        Err(CudaError::shape("matrix product", reason))
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

use sys::cublasLtMatmulDescAttributes_t as Attribute;

fn failed(device: &Device, action: &'static str, error: CublasError) -> CudaError {
    CudaError::Driver { ordinal: device.ordinal(), action, message: error.to_string() }
}
