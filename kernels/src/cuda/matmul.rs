//! Matrix products with what comes after them, by one of several kernels.

use half::bf16;

use super::device::Device;
use super::error::{CudaError, Result, check_len};
use super::gelu::gelu;
use super::library::{LibraryEpilogue, LibraryMatmul, LibraryOperands};
use super::memory::Buffer;
use super::module::Function;
use super::quantise::{Quantised, quantise_rows};
use super::stream::{Absent, Argument, Grid, Stream};
use super::tensor_map::TensorMap;

/// Weights of a linear map, on a GPU.
pub struct Linear {
    weight: LinearWeight,
    bias: Buffer<bf16>,
}

enum LinearWeight {
    Bf16(Buffer<bf16>),
    /// A row for each output.
    Fp8(Quantised),
}

impl Linear {
    /// Copies `weight` `[N, K]` and `bias` `[N]` to the GPU, where the weights are quantised for products
    /// in fp8.
    ///
    /// # Errors
    /// [`CudaError::Shape`] if the sizes do not fit; [`CudaError::Unsupported`] if the GPU has no fp8, or
    /// not for K; as [`Device::alloc`].
    pub fn new(
        stream: &Stream,
        weight: &[bf16],
        bias: &[bf16],
        precision: MatmulPrecision,
    ) -> Result<Self> {
        const PURPOSE: &str = "the weights";
        if bias.is_empty() || !weight.len().is_multiple_of(bias.len()) {
            let reason = format!("{} weights for {} outputs", weight.len(), bias.len());
            return Err(CudaError::shape("linear", reason));
        }
        let on_device = stream.to_device(weight, PURPOSE)?;
        let weight = match precision {
            MatmulPrecision::Bf16 => LinearWeight::Bf16(on_device),
            MatmulPrecision::Fp8 => {
                let (rows, width) = (bias.len(), weight.len() / bias.len());
                let mut quantised = Quantised::new(stream.device(), rows, width, PURPOSE)?;
                quantise_rows(stream, &on_device, &mut quantised, (rows, width))?;
                LinearWeight::Fp8(quantised)
            }
        };
        Ok(Self { weight, bias: stream.to_device(bias, PURPOSE)? })
    }

    /// Width N of the result.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Width K of the input.
    pub fn inputs(&self) -> usize {
        let weights = match &self.weight {
            LinearWeight::Bf16(values) => values.len(),
            LinearWeight::Fp8(rows) => rows.values.len(),
        };
        weights / self.bias.len()
    }

    fn is_fp8(&self) -> bool {
        matches!(self.weight, LinearWeight::Fp8(_))
    }
}

/// What happens to a product before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulEpilogue {
    /// The bias is added.
    Bias,
    /// The bias is added, then GELU by erf.
    Gelu,
    /// The bias is added, then GELU in its tanh form.
    GeluTanh,
    /// The bias is added, and [`Operands::residual`].
    Residual,
}

/// Which values are multiplied; sums are f32, results bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// bf16.
    Bf16,
    /// e4m3, each row of either operand with a scale in f32.
    Fp8,
}

/// Sizes and kind of a product: two of the same shape may use each other's algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatmulShape {
    /// Rows T.
    pub tokens: usize,
    /// Width N of the result.
    pub outputs: usize,
    /// Width K of the input.
    pub inputs: usize,
    /// What comes after.
    pub epilogue: MatmulEpilogue,
    /// What is multiplied.
    pub precision: MatmulPrecision,
}

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

/// The left operand `[T, K]` of a product.
#[derive(Debug, Clone, Copy)]
pub enum LeftOperand<'a> {
    /// bf16.
    Bf16(&'a Buffer<bf16>),
    /// e4m3.
    Fp8(&'a Quantised),
}

/// What a product works on.
pub struct Operands<'a> {
    /// Input.
    pub x: LeftOperand<'a>,
    /// `[T, N]`, added to the result if the epilogue is [`MatmulEpilogue::Residual`].
    pub residual: Option<&'a Buffer<bf16>>,
    /// Result `[T, N]`.
    pub y: &'a mut Buffer<bf16>,
    /// Memory for the algorithm: [`Algorithm::workspace_bytes`].
    pub workspace: &'a mut Buffer<u8>,
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
            MatmulPrecision::Bf16 => {
                let epilogue = match shape.epilogue {
                    MatmulEpilogue::GeluTanh => LibraryEpilogue::GeluTanh,
                    MatmulEpilogue::Residual => LibraryEpilogue::Residual,
                    // cublasLt has no GELU by erf: a kernel of ours comes after it.
                    MatmulEpilogue::Bias | MatmulEpilogue::Gelu => LibraryEpilogue::None,
                };
                LibraryMatmul::new(device, [tokens, outputs, inputs], epilogue)?
            }
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
        mut operands: Operands<'_>,
    ) -> Result<()> {
        self.check(linear)?;
        self.check_operands(algorithm, &operands)?;
        match algorithm.kernel {
            MatmulKernel::Warp => self.run_warp(stream, linear, &operands),
            MatmulKernel::Warpgroup => self.run_warpgroup(stream, linear, &operands),
            MatmulKernel::Library(words) => {
                self.run_library(stream, (words, algorithm.workspace_bytes), linear, &mut operands)
            }
        }
    }

    fn run_library(
        &self,
        stream: &Stream,
        algorithm: ([u64; 8], usize),
        linear: &Linear,
        operands: &mut Operands<'_>,
    ) -> Result<()> {
        let (Some(library), LinearWeight::Bf16(weight), LeftOperand::Bf16(x)) =
            (&self.library, &linear.weight, operands.x)
        else {
            return Err(self.wrong_kind());
        };
        let MatmulShape { tokens, outputs, epilogue, .. } = self.shape;
        let own = LibraryOperands {
            weight,
            bias: &linear.bias,
            x,
            residual: operands.residual,
            y: operands.y,
            workspace: operands.workspace,
        };
        // SAFETY: the sizes were checked in `run`.
        unsafe { library.run(stream, algorithm, &own)? };
        if epilogue == MatmulEpilogue::Gelu {
            gelu(stream, operands.y, tokens * outputs)
        } else {
            Ok(())
        }
    }

    fn run_warp(&self, stream: &Stream, linear: &Linear, operands: &Operands<'_>) -> Result<()> {
        let (LinearWeight::Bf16(weight), LeftOperand::Bf16(x)) = (&linear.weight, operands.x)
        else {
            return Err(self.wrong_kind());
        };
        let MatmulShape { tokens, outputs, inputs, .. } = self.shape;
        let blocks = (outputs.div_ceil(TILE_ROWS) as u32, tokens.div_ceil(TILE_ROWS) as u32);
        let function = self.of_epilogue(&self.device.kernels().matmul);
        let residual = operands.residual.map_or(&Absent as &dyn Argument, |residual| residual as _);
        let [tokens, outputs, inputs] = [tokens, outputs, inputs].map(|n| n as i32);
        let (bias, y) = (&linear.bias, &*operands.y);
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
        let (rows, columns) = (TILE_ROWS as u32, TILE_OUTPUTS as u32);
        let y = TensorMap::new(operands.y, y_sizes, rows)?;
        // A kernel without a residual does not look at the map.
        let residual = operands.residual.unwrap_or(operands.y);
        let residual = TensorMap::new(residual, y_sizes, rows)?;
        let (x, w, scales, functions) = match (&linear.weight, operands.x) {
            (LinearWeight::Bf16(w), LeftOperand::Bf16(x)) => (
                TensorMap::new(x, x_sizes, rows)?,
                TensorMap::new(w, w_sizes, columns)?,
                [&Absent as &dyn Argument, &Absent],
                &hopper.matmul,
            ),
            (LinearWeight::Fp8(w), LeftOperand::Fp8(x)) => (
                TensorMap::new(&x.values, x_sizes, rows)?,
                TensorMap::new(&w.values, w_sizes, columns)?,
                [&x.scales as &dyn Argument, &w.scales],
                &hopper.matmul_fp8,
            ),
            _ => return Err(self.wrong_kind()),
        };
        let tiles = tokens.div_ceil(TILE_ROWS) * outputs.div_ceil(TILE_OUTPUTS);
        let value_bytes = if linear.is_fp8() { 1 } else { 2 };
        let steps = (inputs * value_bytes).div_ceil(STEP_BYTES);
        let blocks = tiles.min(self.device.info().multiprocessors.max(1) as usize);
        let [tokens, outputs, steps, tiles] = [tokens, outputs, steps, tiles].map(|n| n as i32);
        let [x_scales, w_scales] = scales;
        let arguments: [&dyn Argument; 11] = [
            &x,
            &w,
            &y,
            &residual,
            &linear.bias,
            x_scales,
            w_scales,
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
        check_len(OP, "y", y.len(), tokens.checked_mul(outputs))?;
        if epilogue == MatmulEpilogue::Residual {
            let len = residual.map_or(0, Buffer::len);
            check_len(OP, "the residual", len, tokens.checked_mul(outputs))?;
        }
        check_len(OP, "the workspace", workspace.len(), Some(algorithm.workspace_bytes))
    }

    fn wrong_kind(&self) -> CudaError {
        let reason =
            format!("operands or a kernel of another kind than {:?}", self.shape.precision);
        CudaError::shape("matrix product", reason)
    }
}
