//! The operations on a GPU against f64 oracles and their CPU twins: on a real GPU, or on the
//! simulated one of `tests/cuda_sim`. Without any they are skipped, or fail where
//! `POLYSIFT_REQUIRE_CUDA=1` says that there must be one.

#[path = "cuda/attention.rs"]
mod attention;
#[path = "cuda/common.rs"]
mod common;
#[path = "cuda/e4m3.rs"]
mod e4m3;
#[path = "cuda/matmul.rs"]
mod matmul;
#[path = "cuda/matmul_norm.rs"]
mod matmul_norm;
#[path = "cuda/near.rs"]
mod near;
#[path = "cuda/rows.rs"]
mod rows;
#[path = "cuda/runtime.rs"]
mod runtime;
