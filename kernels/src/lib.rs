//! Numeric kernels of polysift (matrix multiplication, attention, layer norm, GELU, pooling), on
//! the CPU and in [`cuda`] on NVIDIA GPUs.
//!
//! Contains every unsafe block of the project except file mappings and environment variables.
//! Kernels know nothing of models, files or threads: they work on slices in the calling thread.
//!
//! Invariants of the CPU kernels:
//! - Every kernel is compiled for each instruction set of [`Isa`], and all of them give the same
//!   bits: the order of operations is part of a kernel's definition, and only IEEE operations
//!   (including fused multiply-add) are used. Products in bf16 and f16 are the exception: they use
//!   what the CPU has for these formats.
//! - A row of a result depends only on the same row of the inputs, not on their number or place.
//! - Lengths that do not fit together are bugs of the caller and panic; no kernel reads or writes
//!   outside its slices.

mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub mod cuda;

pub use cpu::attention::{AttentionScratch, attention};
pub use cpu::gelu::{geglu, gelu};
pub use cpu::gemm::pack_b::PackedMatrix;
pub use cpu::gemm::{Epilogue, GemmScratch, gemm};
pub use cpu::isa::Isa;
pub use cpu::layer_norm::layer_norm;
pub use cpu::matrix::{Matrix, MatrixMut};
pub use cpu::precision::Precision;
pub use cpu::rotate::rotate;
pub use cpu::rows::{dequantize, finite_rows, linear_f64, mean_rows, raise_to_row_max, relu};
