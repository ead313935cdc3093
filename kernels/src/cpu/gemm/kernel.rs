//! Which micro-kernels compute a product: a table by precision and CPU.

use super::micro_kernel::{CHAIN, CacheLine, MicroKernel, MicroKernelArgs, PANEL_LINES, WORDS};
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::cpu::isa::Level;
use crate::cpu::matrix::WriteTarget;
use crate::{Isa, Precision};

/// What a 32-bit word of packed A holds; B is packed alike.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "units that x86 alone has"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// A value in f32, rounded to the precision; B is unpacked to f32 where it is not.
    F32(Precision),
    /// Two values of k in bf16.
    Bf16,
    /// A value in f16, twice.
    F16,
    /// Four values of k, as integers in 0..=255.
    Int8,
}

impl Variant {
    /// Values of k in one unit.
    pub(crate) fn k_per_unit(self) -> usize {
        match self {
            Self::F32(_) | Self::F16 => 1,
            Self::Bf16 => 2,
            Self::Int8 => 4,
        }
    }
}

/// A variant with the micro-kernels that take it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) variant: Variant,
    /// By number of rows, from one on.
    pub(super) micro_kernels: &'static [MicroKernel],
    /// Columns of a micro-panel of B.
    pub(crate) nr: usize,
}

impl Kernel {
    pub(crate) fn new(isa: Isa, precision: Precision) -> Self {
        let (variant, micro_kernels): (_, &'static [MicroKernel]) = match (precision, isa.level) {
            #[cfg(target_arch = "x86_64")]
            (Precision::Bf16, Level::Avx512) if isa.units.bf16 => (Variant::Bf16, &avx512::BF16),
            #[cfg(target_arch = "x86_64")]
            (Precision::F16, Level::Avx512) if isa.units.fp16 => (Variant::F16, &avx512::F16),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx512) if isa.units.vnni => (Variant::Int8, &avx512::INT8),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx2) if isa.units.vnni => (Variant::Int8, &avx2::INT8),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx2 | Level::Avx512) => (Variant::Int8, &avx2::INT8_BY_PAIRS),
            (Precision::Int8, Level::Portable) => (Variant::Int8, &portable::INT8),
            #[cfg(target_arch = "x86_64")]
            (other, Level::Avx512) => (Variant::F32(other), &avx512::F32),
            #[cfg(target_arch = "x86_64")]
            (other, Level::Avx2) => (Variant::F32(other), &avx2::F32),
            (other, Level::Portable) => (Variant::F32(other), &portable::F32),
        };
        let lines = if variant == Variant::F16 { 2 * PANEL_LINES } else { PANEL_LINES };
        Self { variant, micro_kernels, nr: lines * WORDS }
    }

    /// Most rows of a micro-panel of A.
    pub(crate) fn mr(self) -> usize {
        self.micro_kernels.len()
    }

    /// The product of the `rows` packed rows of a micro-panel `a` and a micro-panel `b`, over `units`
    /// of k: `c` `[rows, nr]` f32. Not for int8.
    ///
    /// # Panics
    /// If an operand is too short.
    pub(crate) fn multiply(
        self,
        a: &[CacheLine],
        b: &[CacheLine],
        units: usize,
        rows: usize,
        c: &mut [CacheLine],
    ) {
        assert!(a.len() >= units.div_ceil(WORDS) * rows, "A ends early");
        assert!(b.len() >= units * PANEL_LINES, "B ends early");
        assert!(c.len() * WORDS >= rows * self.nr, "no room for the sums");
        let args = MicroKernelArgs {
            a: a.as_ptr().cast(),
            b: b.as_ptr(),
            c: c.as_mut_ptr().cast(),
            overwrite: true,
            units,
            chain: CHAIN / self.variant.k_per_unit(),
            target: WriteTarget { start: std::ptr::null(), stride: 0, width: 0 },
            next: std::ptr::null(),
            fetches: 0,
        };
        // SAFETY: the operands are as long as the arguments say (checked above), `c` has room and is
        // aligned as lines are, and the CPU has the kernel's features because `self` was made from an
        // `Isa` that has them.
        unsafe { self.micro_kernels[rows - 1](&args) };
    }
}
