//! int8 micro-kernels: exact sums in i32 of u8 (X) times i8 (W).

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
    match (isa.level(), isa.units().vnni) {
        (Level::Portable, _) => &portable::KERNELS,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, true) => &avx512::KERNELS,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, true) => &avx2::VNNI_KERNELS,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2 | Level::Avx512, _) => &avx2::KERNELS,
    }
}
