//! The numeric kernels of polysift: matrix multiplication, attention, layer norm, GELU, pooling, on the CPU
//! and in [`cuda`] on NVIDIA GPUs.
//!
//! Owns every unsafe block of the project but one (the file mapping of the model weights). Knows
//! nothing of models, files or threads: a kernel works on its slices in the calling thread.
//!
//! Invariants of the CPU's kernels:
//! - Every kernel is compiled for each instruction set of [`Isa`], and all of them give the same
//!   bits: the order of operations is part of a kernel's definition, and only IEEE operations
//!   (fused multiply-add included) are used. Products in bf16 and f16 are the exception: they use
//!   what the CPU has for these formats.
//! - A row of a result depends on the same row of the inputs alone: neither the number of rows
//!   nor a row's place changes a bit.
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
pub use cpu::layer_norm::{add_layer_norm, layer_norm};
pub use cpu::matrix::{Matrix, MatrixMut};
pub use cpu::precision::Precision;
pub use cpu::rotate::rotate;
pub use cpu::rows::{dequantize, finite_rows, linear_f64, mean_rows, raise_to_row_max, relu};
