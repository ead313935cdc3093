//! Matrix products with what comes after them, by one of several kernels.

use super::device::Device;
use super::error::{CudaError, Result, check_len};
use super::gelu::gelu;
use super::library::LibraryMatmul;
use super::linear::{
    Bound, LeftOperand, Linear, LinearWeight, MatmulEpilogue, MatmulPrecision, MatmulResult,
    MatmulShape, Operands,
};
use super::memory::Buffer;
use super::module::Function;
use super::stream::{Absent, Argument, Grid, Stream};
use super::tensor_map::{TensorMap, TileRow};

/// What computes a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatmulKernel {
    /// The kernel with the matrix instructions of a warp: bf16, on every GPU.
    Warp,
    /// That with those of a warpgroup: on GPUs of compute capability 9.0.
    Warpgroup,
    /// An algorithm of cublasLt, by the name that no one but cublasLt of the same version and GPU
    /// understands.
    Library([u64; 8]),
}

/// One way of computing a [`Matmul`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    shape: MatmulShape,
    kernel: MatmulKernel,
    workspace_bytes: usize,
}

impl Algorithm {
    /// What computes it.
    pub fn kernel(&self) -> MatmulKernel {
        self.kernel
    }

    /// Memory that it needs beside its operands.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }
}

/// A matrix product of fixed sizes: `y` `[T, N]` = epilogue(`x` `[T, K]` · `w` `[N, K]`ᵀ + `b`).
pub struct Matmul {
    device: Device,
    shape: MatmulShape,
    /// cublasLt's, where it is there and has products of this kind.
    library: Option<LibraryMatmul>,
}

/// Rows of a tile of y, which for the kernel for warps has as many columns...
const TILE_ROWS: usize = 128;
/// ... and for that for warpgroups these.
const TILE_OUTPUTS: usize = 192;
/// Bytes of a row of x that a step of the latter takes.
const STEP_BYTES: usize = 128;

impl Matmul {
    /// A product of the sizes and kind `shape`.
    ///
    /// # Errors
    /// [`CudaError::Unsupported`] if a width is no multiple of 8 (of 16 in fp8) or the GPU has no
    /// kernel; [`CudaError::Driver`] if cublasLt refuses.
    pub fn new(device: &Device, shape: MatmulShape) -> Result<Self> {
        let MatmulShape { tokens, outputs, inputs, precision, .. } = shape;
        let step = if precision == MatmulPrecision::Fp8 { 16 } else { 8 };
        let odd = [outputs, inputs].iter().any(|n| *n == 0 || !n.is_multiple_of(step));
        let large = [tokens, outputs, inputs].iter().any(|&n| n > 1 << 24);
        if tokens == 0 || odd || large {
            return Err(CudaError::unsupported(format!(
                "a matrix product of {tokens} x {inputs} with {outputs} x {inputs}; widths that \
                 are multiples of {step} are"
            )));
        }
        if precision == MatmulPrecision::Fp8 {
            device.kernels().hopper()?;
        }
        let library = match precision {
            MatmulPrecision::Fp8 => None,
            MatmulPrecision::Bf16 => LibraryMatmul::new(device, shape)?,
        };
        Ok(Self { device: device.clone(), shape, library })
    }

    /// Its sizes and kind.
    pub fn shape(&self) -> MatmulShape {
        self.shape
    }

    /// Our own kernels first, then up to `limit` algorithms of cublasLt, the most promising first.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if `linear` has other sizes; [`CudaError::Driver`] if cublasLt fails.
    pub fn candidates(&self, linear: &Linear, limit: usize) -> Result<Vec<Algorithm>> {
        self.check(linear)?;
        let own = [MatmulKernel::Warp, MatmulKernel::Warpgroup];
        let mut found: Vec<_> =
            own.into_iter().filter_map(|own| self.restore(linear, own)).collect();
        if let Some(library) = &self.library {
            let offered = library.candidates(&linear.bias, limit)?;
            found.extend(offered.into_iter().map(|(words, workspace_bytes)| Algorithm {
                shape: self.shape,
                kernel: MatmulKernel::Library(words),
                workspace_bytes,
            }));
        }
        Ok(found)
    }

    /// The algorithm to use where none was measured: cublasLt's first, else our own kernel for the GPU.
    ///
    /// # Errors
    /// As [`Matmul::candidates`].
    pub fn first_choice(&self, linear: &Linear) -> Result<Algorithm> {
        let is_library = |a: &Algorithm| matches!(a.kernel, MatmulKernel::Library(_));
        let found = self.candidates(linear, 1)?;
        let choice = found.iter().find(|a| is_library(a)).or(found.last()).copied();
        choice.ok_or_else(|| CudaError::unsupported(format!("{:?}", self.shape)))
    }

    /// The algorithm that is computed by `kernel`, if that can be used for this product here.
    pub fn restore(&self, linear: &Linear, kernel: MatmulKernel) -> Option<Algorithm> {
        let fp8 = self.shape.precision == MatmulPrecision::Fp8;
        let workspace_bytes = match kernel {
            MatmulKernel::Warp if fp8 => return None,
            MatmulKernel::Warp => 0,
            MatmulKernel::Warpgroup => self.device.kernels().hopper().map(|_| 0).ok()?,
            MatmulKernel::Library(words) => self.library.as_ref()?.check(&linear.bias, words)?,
        };
        Some(Algorithm { shape: self.shape, kernel, workspace_bytes })
    }

    /// Puts the product with the weights `linear` into the queue.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if sizes do not fit or the algorithm is another product's;
    /// [`CudaError::Driver`] if cublasLt or the GPU fails.
    pub fn run(
        &self,
        stream: &Stream,
        algorithm: &Algorithm,
        linear: &Linear,
        operands: Operands<'_>,
    ) -> Result<()> {
        self.check(linear)?;
        self.check_operands(algorithm, &operands)?;
        let words = match algorithm.kernel {
            MatmulKernel::Warp => return self.run_warp(stream, linear, &operands),
            MatmulKernel::Warpgroup => return self.run_warpgroup(stream, linear, &operands),
            MatmulKernel::Library(words) => (words, algorithm.workspace_bytes),
        };
        let library = self.library.as_ref().ok_or_else(|| self.shape.wrong_kind())?;
        // SAFETY: the sizes were checked above.
        unsafe { library.run(stream, words, linear, &operands)? };
        match operands.y {
            // cublasLt has no GELU by erf.
            MatmulResult::Bf16(y) if self.shape.epilogue == MatmulEpilogue::Gelu => {
                gelu(stream, y, self.shape.tokens * self.shape.outputs)
            }
            _ => Ok(()),
        }
    }

    fn run_warp(&self, stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
        let (LinearWeight::Bf16(weight), LeftOperand::Bf16(x), MatmulResult::Bf16(y)) =
            (&linear.weight, operands.x, &operands.y)
        else {
            return Err(self.shape.wrong_kind());
        };
        let MatmulShape { tokens, outputs, inputs, .. } = self.shape;
        let blocks = (outputs.div_ceil(TILE_ROWS) as u32, tokens.div_ceil(TILE_ROWS) as u32);
        let function = self.of_epilogue(&self.device.kernels().matmul);
        let residual = operands.residual.map_or(&Absent as &dyn Argument, |residual| residual as _);
        let [tokens, outputs, inputs] = [tokens, outputs, inputs].map(|n| n as i32);
        let (bias, y) = (&linear.bias, &**y);
        let arguments: [&dyn Argument; 8] =
            [x, weight, bias, residual, y, &tokens, &outputs, &inputs];
        // SAFETY: the arguments of the kernels in matmul.cu; the sizes were checked in `run`.
        unsafe { stream.launch(function, Grid { blocks, threads: 128 }, &arguments) }
    }

    fn run_warpgroup(
        &self,
        stream: &Stream,
        linear: &Linear,
        operands: &Operands<'_>,
    ) -> Result<()> {
        let hopper = self.device.kernels().hopper()?;
        let MatmulShape { tokens, outputs, inputs, .. } = self.shape;
        let (x_sizes, w_sizes, y_sizes) = ((tokens, inputs), (outputs, inputs), (tokens, outputs));
        let rows = (TILE_ROWS as u32, TileRow::Bytes128);
        let columns = (TILE_OUTPUTS as u32, TileRow::Bytes128);
        let (y, y_scales) = match &operands.y {
            MatmulResult::Bf16(y) => {
                (TensorMap::new(&**y, y_sizes, rows)?, &Absent as &dyn Argument)
            }
            MatmulResult::Fp8(y) => {
                let rows = (TILE_ROWS as u32, TileRow::Bytes64);
                (TensorMap::new(&y.values, y_sizes, rows)?, &y.scales as &dyn Argument)
            }
        };
        let residual = match operands.residual {
            Some(residual) => TensorMap::new(residual, y_sizes, rows)?,
            None => y.clone(), // a kernel without a residual does not look at it
        };
        let (x, w, scales, Bound { factor, least }, functions) = match (&linear.weight, operands.x)
        {
            (LinearWeight::Bf16(w), LeftOperand::Bf16(x)) => (
                TensorMap::new(x, x_sizes, rows)?,
                TensorMap::new(w, w_sizes, columns)?,
                [&Absent as &dyn Argument, &Absent],
                Bound { factor: 0.0, least: 0.0 },
                &hopper.matmul,
            ),
            (LinearWeight::Fp8 { rows: w, bound }, LeftOperand::Fp8(x)) => (
                TensorMap::new(&x.values, x_sizes, rows)?,
                TensorMap::new(&w.values, w_sizes, columns)?,
                [&x.scales as &dyn Argument, &w.scales],
                *bound,
                &hopper.matmul_fp8,
            ),
            _ => return Err(self.shape.wrong_kind()),
        };
        let tiles = tokens.div_ceil(TILE_ROWS) * outputs.div_ceil(TILE_OUTPUTS);
        let value_bytes = if linear.is_fp8() { 1 } else { 2 };
        let steps = (inputs * value_bytes).div_ceil(STEP_BYTES);
        let blocks = tiles.min(self.device.info().multiprocessors.max(1) as usize);
        let [tokens, outputs, steps, tiles] = [tokens, outputs, steps, tiles].map(|n| n as i32);
        let [x_scales, w_scales] = scales;
        let arguments: [&dyn Argument; 14] = [
            &x,
            &w,
            &y,
            &residual,
            &linear.bias,
            x_scales,
            w_scales,
            y_scales,
            &factor,
            &least,
            &tokens,
            &outputs,
            &steps,
            &tiles,
        ];
        let grid = Grid::line(blocks as u32, 384);
        // SAFETY: the arguments of the kernels in matmul_hopper.cu; the sizes were checked in `run`.
        unsafe { stream.launch(self.of_epilogue(functions), grid, &arguments) }
    }

    fn of_epilogue(&self, functions: &[Function; 4]) -> Function {
        functions[match self.shape.epilogue {
            MatmulEpilogue::Bias => 0,
            MatmulEpilogue::Gelu => 1,
            MatmulEpilogue::GeluTanh => 2,
            MatmulEpilogue::Residual => 3,
        }]
    }

    fn check(&self, linear: &Linear) -> Result<()> {
        let MatmulShape { outputs, inputs, precision, .. } = self.shape;
        let fits = (linear.outputs(), linear.inputs()) == (outputs, inputs);
        if fits && linear.is_fp8() == (precision == MatmulPrecision::Fp8) {
            return Ok(());
        }
        let (n, k) = (linear.outputs(), linear.inputs());
        let reason = format!("weights of {n} x {k}, not {outputs} x {inputs} in {precision:?}");
        Err(CudaError::shape("matrix product", reason))
    }

    fn check_operands(&self, algorithm: &Algorithm, operands: &Operands<'_>) -> Result<()> {
        const OP: &str = "matrix product";
        let Operands { x, residual, y, workspace } = operands;
        let MatmulShape { tokens, outputs, inputs, epilogue, .. } = self.shape;
        if algorithm.shape != self.shape {
            return Err(CudaError::shape(OP, "the algorithm is another product's"));
        }
        let x_len = match x {
            LeftOperand::Bf16(values) => values.len(),
            LeftOperand::Fp8(rows) => {
                check_len(OP, "the scales", rows.scales.len(), Some(tokens))?;
                rows.values.len()
            }
        };
        check_len(OP, "x", x_len, tokens.checked_mul(inputs))?;
        match y {
            MatmulResult::Bf16(y) if !self.shape.writes_fp8() => {
                check_len(OP, "y", y.len(), tokens.checked_mul(outputs))?;
            }
            MatmulResult::Fp8(y) if self.shape.writes_fp8() => y.check(OP, tokens, outputs)?,
            _ => return Err(self.shape.wrong_kind()),
        }
        if epilogue == MatmulEpilogue::Residual {
            let len = residual.map_or(0, Buffer::len);
            check_len(OP, "the residual", len, tokens.checked_mul(outputs))?;
        }
        check_len(OP, "the workspace", workspace.len(), Some(algorithm.workspace_bytes))
    }
}
