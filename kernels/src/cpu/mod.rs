//! The CPU kernels: one file per operation, and [`gemm`] for matrix products.

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls must land in the function with the CPU features"
)]
#![allow(clippy::missing_panics_doc, reason = "lengths that do not fit panic; see the crate")]

pub(crate) mod attention;
pub(crate) mod gelu;
pub(crate) mod gemm;
pub(crate) mod isa;
pub(crate) mod layer_norm;
pub(crate) mod matrix;
pub(crate) mod precision;
pub(crate) mod rotate;
pub(crate) mod rows;
