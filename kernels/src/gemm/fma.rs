//! f32 micro-kernels: chains of fused multiply-adds.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::method::Kernel;
use crate::Isa;
use crate::isa::Level;

/// The kernels of `isa` by number of rows.
pub(super) fn kernels(isa: Isa) -> &'static [Kernel] {
    match isa.level() {
        Level::Portable => &portable::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &avx2::KERNELS,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &avx512::KERNELS,
    }
}
