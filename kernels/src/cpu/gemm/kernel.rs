//! The table of micro-kernels by precision and CPU.

use std::ops::Range;

use super::micro_kernel::{
    CHAIN, CacheLine, MicroKernel, MicroKernelArgs, PANEL_LINES, UNROLL, WORDS,
};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::portable;
#[cfg(test)]
use super::tests::amx_portable;
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512};
use crate::cpu::isa::Level;
use crate::{Isa, Precision};

/// Content of a 32-bit word of packed A; B is packed in the same way.
#[allow(dead_code, reason = "some are for units that only some architectures have")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// A value in f32, rounded to the precision; a B in two bytes is unpacked to f32.
    F32(Precision),
    /// Two values of k in bf16.
    Bf16,
    /// A value in f16, twice.
    F16,
    /// Four values of k, as integers from 0 to [`X_MAX`].
    ///
    /// [`X_MAX`]: crate::cpu::precision::X_MAX
    Int8,
    /// Like [`Variant::Int8`], for sums of two or four products in 16 bits; B is in another order.
    Int8Sums,
    /// Like [`Variant::Int8`], but 128 is subtracted from the integers of A.
    Int8Signed,
    /// Like [`Variant::Int8`], rearranged to blocks of two words of two rows of A or columns of B.
    Int8Blocks,
    /// Like [`Variant::Bf16`], in blocks as in [`Variant::Int8Blocks`].
    Bf16Blocks,
}

impl Variant {
    /// Returns the number of values of k in a word.
    pub(crate) fn k_per_unit(self) -> usize {
        match self {
            Self::F32(_) | Self::F16 => 1,
            Self::Bf16 | Self::Bf16Blocks => 2,
            Self::Int8 | Self::Int8Sums | Self::Int8Signed | Self::Int8Blocks => 4,
        }
    }

    /// Returns the cache lines of `units` units of a micro-panel of B, as micro-kernels read it.
    pub(super) fn panel_lines(self, units: usize) -> usize {
        units * PANEL_LINES + self.header_lines()
    }

    /// Returns the cache lines of a block of a micro-panel of B that describe its order.
    pub(super) fn header_lines(self) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self == Self::Int8Sums {
            return 2 * PANEL_LINES * avx2::FOURS_HEADER;
        }
        0
    }

    /// Returns true if A and B are in blocks of two words of two rows or columns.
    pub(super) fn is_in_blocks(self) -> bool {
        matches!(self, Self::Int8Blocks | Self::Bf16Blocks)
    }

    pub(crate) fn is_integer(self) -> bool {
        !matches!(self, Self::F32(_) | Self::Bf16 | Self::Bf16Blocks | Self::F16)
    }
}

/// A variant with its micro-kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) variant: Variant,
    /// Micro-kernels by number of rows, in multiples of `row_step`.
    micro_kernels: &'static [MicroKernel],
    /// Number of columns of a micro-panel of B.
    pub(crate) nr: usize,
    /// A micro-panel of A has a multiple of this number of rows, padded with zeros.
    row_step: usize,
    /// The number of units of k is a multiple of this.
    unit_step: usize,
    /// Maximum units of k that are multiplied with all micro-panels of A before the next ones.
    pub(super) kc: usize,
}

/// KC units and those prefetched meanwhile take a quarter of a megabyte.
const KC: usize = 1024;
/// A pair of micro-panels of this many units of k stays in a first-level cache of 48 KB with its
/// sums: tiles are loaded faster than the second-level cache delivers them.
const KC_AMX: usize = 128;
/// The places of pairs of units fit the header, and the panel fits a first-level cache.
const KC_SUMS: usize = 192;

impl Kernel {
    /// Returns the fastest kernel; without units for `precision`, one for rounded values in f32.
    pub(crate) fn new(isa: Isa, precision: Precision) -> Self {
        let (variant, micro_kernels): (_, &'static [MicroKernel]) = match (precision, isa.level) {
            #[cfg(target_arch = "x86_64")]
            (Precision::Bf16, Level::Avx512) if isa.units.amx => (Variant::Bf16, &amx::BF16),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx512) if isa.units.amx => (Variant::Int8, &amx::INT8),
            #[cfg(test)]
            (Precision::Bf16, Level::Portable) if isa.units.amx => {
                (Variant::Bf16, &amx_portable::BF16)
            }
            #[cfg(test)]
            (Precision::Int8, Level::Portable) if isa.units.amx => {
                (Variant::Int8, &amx_portable::INT8)
            }
            #[cfg(target_arch = "x86_64")]
            (Precision::Bf16, Level::Avx512) if isa.units.bf16 => (Variant::Bf16, &avx512::BF16),
            #[cfg(target_arch = "x86_64")]
            (Precision::F16, Level::Avx512) if isa.units.fp16 => (Variant::F16, &avx512::F16),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx512) if isa.units.vnni => (Variant::Int8, &avx512::INT8),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx2) if isa.units.vnni => (Variant::Int8, &avx2::INT8),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx2 | Level::Avx512) => (Variant::Int8Sums, &avx2::INT8_SUMS),
            #[cfg(target_arch = "aarch64")]
            (Precision::F16, Level::Neon) if isa.units.fp16 => (Variant::F16, &neon::F16),
            #[cfg(target_arch = "aarch64")]
            (Precision::Bf16, Level::Neon) if isa.units.bf16 => {
                (Variant::Bf16Blocks, &neon::BF16_BLOCKS)
            }
            #[cfg(target_arch = "aarch64")]
            (Precision::Int8, Level::Neon) if isa.units.i8mm => {
                (Variant::Int8Blocks, &neon::INT8_BLOCKS)
            }
            #[cfg(target_arch = "aarch64")]
            (Precision::Int8, Level::Neon) if isa.units.vnni => (Variant::Int8Signed, &neon::INT8),
            (Precision::Int8, _) => (Variant::Int8, &portable::INT8),
            #[cfg(target_arch = "aarch64")]
            (other, Level::Neon) => (Variant::F32(other), &neon::F32),
            #[cfg(target_arch = "x86_64")]
            (other, Level::Avx512) => (Variant::F32(other), &avx512::F32),
            #[cfg(target_arch = "x86_64")]
            (other, Level::Avx2) => (Variant::F32(other), &avx2::F32),
            (other, _) => (Variant::F32(other), &portable::F32),
        };
        let lines = if variant == Variant::F16 { 2 * PANEL_LINES } else { PANEL_LINES };
        let on_tiles = isa.units.amx && matches!(variant, Variant::Bf16 | Variant::Int8);
        let (row_step, unit_step, kc) = match variant {
            _ if on_tiles => (WORDS, WORDS, KC_AMX),
            Variant::Int8Sums => (1, WORDS, KC_SUMS),
            _ if variant.is_in_blocks() => (2, UNROLL, KC),
            _ => (1, UNROLL, KC),
        };
        Self { variant, micro_kernels, nr: lines * WORDS, row_step, unit_step, kc }
    }

    /// Returns the size in bytes of a block of packed rows of A: half of the second-level cache.
    /// CPUs with AVX2 alone have a small one, which holds so few long rows that B would be read too
    /// often; their third-level cache delivers A fast enough.
    pub(super) fn block_bytes(self, isa: Isa) -> usize {
        if isa.level == Level::Avx2 && !isa.units.vnni {
            return 8 * isa.cache / self.variant.k_per_unit();
        }
        isa.cache / 2
    }

    /// Returns the maximum rows of a micro-panel of A.
    pub(crate) fn mr(self) -> usize {
        self.micro_kernels.len() * self.row_step
    }

    /// Returns the rows of a micro-panel of A that holds `rows` rows.
    pub(crate) fn height(self, rows: usize) -> usize {
        rows.next_multiple_of(self.row_step)
    }

    /// Returns the micro-kernel for micro-panels of A of `height` rows, a multiple of the step.
    pub(super) fn micro_kernel(self, height: usize) -> MicroKernel {
        self.micro_kernels[height / self.row_step - 1]
    }

    /// Returns the units of `k` values of k, padded to whole steps.
    pub(crate) fn units(self, k: usize) -> usize {
        k.div_ceil(self.variant.k_per_unit()).next_multiple_of(self.unit_step)
    }

    /// Splits `rows` into as few parts as possible of at most `most` rows (a multiple of the step)
    /// and of nearly equal length; all parts but the last are multiples of the step.
    pub(crate) fn split(
        self,
        rows: Range<usize>,
        most: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let steps = rows.len().div_ceil(self.row_step);
        let parts = steps.div_ceil(most / self.row_step);
        let start =
            move |part: usize| rows.end.min(rows.start + part * steps / parts * self.row_step);
        (0..parts).map(move |part| start(part)..start(part + 1))
    }

    /// Prepares the calling thread for the micro-kernels, which may run while the value lives.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn prepare(self, isa: Isa) -> Option<amx::Tiles> {
        let on_unit = self.row_step == WORDS && isa.level == Level::Avx512;
        // SAFETY: kernels with this step at this level are those of AMX, and an `Isa` with AMX
        // exists only if the process may use it.
        on_unit.then(|| unsafe { amx::Tiles::new() })
    }

    /// Multiplies the `rows` packed rows of a micro-panel `a` with a micro-panel `b` over `units`
    /// units of k: `c` `[rows, nr]` f32. Not for int8, and only while [`Kernel::prepare`]d.
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
        assert!(
            self.height(rows) == rows && units.is_multiple_of(self.unit_step),
            "parts of steps"
        );
        let args = MicroKernelArgs {
            a: a.as_ptr().cast(),
            b: b.as_ptr(),
            c: c.as_mut_ptr().cast(),
            overwrite: true,
            units,
            chain: CHAIN / self.variant.k_per_unit(),
            target: std::ptr::null(),
            target_width: 0,
            target_stride: 0,
            next: std::ptr::null(),
            fetches: 0,
        };
        // SAFETY: operands are as long as the arguments say and `c` has room (checked above), lines
        // are aligned, and `self` was made from an `Isa` with the features that the kernel needs.
        unsafe { self.micro_kernel(rows)(&args) };
    }
}
