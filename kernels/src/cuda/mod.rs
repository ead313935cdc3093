//! Operations of the encoder and of near duplicates on NVIDIA GPUs, and the small part of CUDA that
//! they need.
//!
//! ```text
//!  devices ─▶ Device ─▶ Stream ─▶ Buffer, Pinned, Staged        the data of an operation
//!                          │
//!                          ├─▶ matmul, matmul_norm, rotate, attention, glu, layer_norm, pool
//!                          └─▶ Graph: several operations, recorded once and launched together
//! ```
//!
//! The first call of [`devices`] or [`Device::open`] opens libcuda; without it every function here
//! returns an error and the rest of the crate works. The kernels come compiled inside the binary
//! (`kernels/prebuilt`); the source of each lies beside the module that launches it.
//!
//! Invariants:
//! - Every operation checks its sizes against its buffers before it launches a kernel. All indices
//!   that kernels read (token ids, positions, sequence starts) come from [`Staged`], which checks
//!   them. So safe code cannot make a kernel access memory outside its buffers.
//! - Memory is freed only when no queued work and no [`Graph`] uses it, and nothing waits for the
//!   whole GPU while a graph is recorded on it (see `recordings`).
//! - Operations of one [`Stream`] run in order. The caller orders two streams that use one buffer;
//!   if it does not, values are wrong, but memory stays safe.

#![allow(
    clippy::cast_possible_wrap,
    reason = "kernels take i32; sizes are checked to fit where they enter"
)]

mod attention;
mod device;
mod driver;
mod e4m3;
mod error;
mod glu;
mod info;
mod instructions;
mod layer_norm;
mod linear;
mod matmul;
mod matmul_norm;
mod memory;
mod module;
mod near;
mod pool;
mod recordings;
mod rotate;
mod staged;
mod stream;
mod tensor_map;

pub use attention::{HEAD_SIZES, attention, choose_attention};
pub use device::Device;
pub use driver::{devices, driver_version};
pub use e4m3::{Bound, Output};
pub use error::{CudaError, Result};
pub use glu::glu;
pub use info::DeviceInfo;
pub use instructions::{MatrixInstructions, ends, randomize};
pub use layer_norm::{Embedding, MAX_WIDTH, Norm, NormInput, layer_norm};
pub use linear::{LeftOperand, Linear, MatmulEpilogue, Operands};
pub use matmul::{matmul, rows_to_compare};
pub use matmul_norm::{has_matmul_norm, matmul_norm};
pub use memory::{Buffer, Element, Pinned};
pub use near::NearRows;
pub use pool::{PooledTokens, pool};
pub use rotate::rotate;
pub use staged::{BUCKETS, Limits, Staged, bucket_for, max_sequences};
pub use stream::{Graph, Stream};
