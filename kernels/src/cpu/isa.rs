//! The instruction set that the kernels use, detected at run time.

use std::sync::OnceLock;

/// An instruction set that this CPU was found to have, which makes calling its code sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa {
    pub(crate) level: Level,
    pub(crate) units: Units,
    /// Size of the second-level cache in bytes.
    pub(crate) cache: usize,
}

/// Cache size if the CPU does not report it: the minimum of today's CPUs.
const CACHE: usize = 1 << 20;

#[expect(dead_code, reason = "an architecture has only some of them")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Portable,
    /// Includes FMA and F16C, which every CPU with AVX2 has.
    Avx2,
    /// Includes AVX-512 F, BW, DQ and VL.
    Avx512,
    /// Every 64-bit Arm CPU has NEON; the compiler uses it at [`Level::Portable`] too.
    Neon,
}

/// Units for matrix products that a CPU may have beyond its level.
#[expect(clippy::struct_excessive_bools, reason = "a CPU has any of them or not")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Units {
    /// Dot products of bytes: AVX-VNNI, AVX-512 VNNI or Arm's DotProd.
    pub(crate) vnni: bool,
    /// Arm's I8MM: products of matrices of bytes.
    pub(crate) i8mm: bool,
    /// AVX-512 BF16 at twice the rate of f32, or Arm's BF16: products of matrices.
    pub(crate) bf16: bool,
    /// AVX-512 FP16, or Arm's FP16.
    pub(crate) fp16: bool,
    /// AMX with BF16 and INT8, permitted by the operating system. In tests it is also true at
    /// [`Level::Portable`], where a program emulates the unit.
    pub(crate) amx: bool,
}

impl Units {
    const NONE: Self = Self { vnni: false, i8mm: false, bf16: false, fp16: false, amx: false };
}

impl Isa {
    const PORTABLE: Self = Self { level: Level::Portable, units: Units::NONE, cache: CACHE };

    /// Returns the fastest instruction set of this CPU. The CPU is asked only once: under a
    /// hypervisor the query takes as long as thousands of products.
    pub fn detect() -> Self {
        static FASTEST: OnceLock<Isa> = OnceLock::new();
        *FASTEST.get_or_init(Self::fastest)
    }

    /// Returns the fastest instruction set without what is slower than expanding to f32.
    fn fastest() -> Self {
        let best = Self::available().pop().unwrap_or(Self::PORTABLE);
        #[cfg(target_arch = "x86_64")]
        if !x86::is_amd() {
            // Intel's BF16 unit runs at half the rate of f32, so expanding to f32 is faster.
            return Self { units: Units { bf16: false, ..best.units }, ..best };
        }
        best
    }

    /// Returns every instruction set of this CPU, from the slowest to the fastest, for tests and
    /// benches. In tests of this crate, emulated AMX comes first.
    pub fn available() -> Vec<Self> {
        let amx = Self { units: Units { amx: true, ..Units::NONE }, ..Self::PORTABLE };
        let portable = if cfg!(test) { vec![amx, Self::PORTABLE] } else { vec![Self::PORTABLE] };
        #[cfg(target_arch = "x86_64")]
        return [portable, x86::all()].concat();
        #[cfg(target_arch = "aarch64")]
        return [portable, aarch64::all()].concat();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        portable
    }

    /// Returns true if the CPU has an instruction that rounds f32 to bf16. The instruction flushes
    /// numbers below 2^-126 to zero, and so do the bf16 products of such a CPU.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn rounds_to_bf16(self) -> bool {
        self.level == Level::Avx512 && (self.units.bf16 || self.units.amx)
    }

    /// Returns `portable`, `avx2`, `avx512`, `amx` or `neon`.
    pub fn name(self) -> &'static str {
        match self.level {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 if self.units.amx => "amx",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    use super::{CACHE, Isa, Level, Units};

    /// Returns the instruction sets from the slowest to the fastest; CPUs with I8MM have DotProd.
    pub(super) fn all() -> Vec<Isa> {
        let cache = second_level_cache();
        let mut all = Vec::new();
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        if avx2 {
            let vnni = Units { vnni: is_x86_feature_detected!("avxvnni"), ..Units::NONE };
            let of_level = |units| Isa { level: Level::Avx2, units, cache };
            all.extend([Units::NONE, vnni].map(of_level));
        }
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            let vnni = Units { vnni: is_x86_feature_detected!("avx512vnni"), ..Units::NONE };
            let bf16 = Units { bf16: is_x86_feature_detected!("avx512bf16"), ..vnni };
            let fp16 = Units { fp16: is_x86_feature_detected!("avx512fp16"), ..bf16 };
            let amx = Units { amx: bf16.bf16 && has_amx(), ..fp16 };
            let of_level = |units| Isa { level: Level::Avx512, units, cache };
            all.extend([Units::NONE, vnni, bf16, fp16, amx].map(of_level));
        }
        all.dedup();
        all
    }

    /// Returns true if a CPU with AVX-512 has AMX, and the operating system keeps its state.
    fn has_amx() -> bool {
        const TILE_BF16_INT8: u32 = 1 << 24 | 1 << 22 | 1 << 25;
        const CONFIG_AND_DATA: u64 = 0b11 << 17;
        if __cpuid_count(7, 0).edx & TILE_BF16_INT8 != TILE_BF16_INT8 {
            return false;
        }
        // SAFETY: a CPU whose AVX-512 is in use has XGETBV.
        let kept = unsafe { _xgetbv(0) } & CONFIG_AND_DATA == CONFIG_AND_DATA;
        let may_use = kept && request_tile_data();
        if !may_use {
            tracing::warn!("the CPU has AMX, but the operating system does not let it be used");
        }
        may_use
    }

    /// Asks Linux to save tiles for this process (Documentation/arch/x86/xstate.rst).
    fn request_tile_data() -> bool {
        #[cfg(target_os = "linux")]
        {
            const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
            const XFEATURE_XTILEDATA: libc::c_long = 18;
            // SAFETY: the call takes two numbers and writes nothing.
            let outcome = unsafe {
                libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
            };
            outcome == 0
        }
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Returns the size of the second-level cache in bytes, within limits.
    fn second_level_cache() -> usize {
        let bytes = if is_amd() {
            (__cpuid(0x8000_0006).ecx >> 16) as usize * 1024
        } else if __cpuid(0).eax >= 4 {
            let leaf = __cpuid_count(4, 2);
            let (ways, partitions) = ((leaf.ebx >> 22) + 1, (leaf.ebx >> 12 & 0x3ff) + 1);
            let (line, sets) = ((leaf.ebx & 0xfff) + 1, leaf.ecx + 1);
            [ways, partitions, line, sets].map(|n| n as usize).iter().product()
        } else {
            CACHE
        };
        // A hypervisor may report any value.
        bytes.clamp(CACHE / 4, 2 * CACHE)
    }

    pub(super) fn is_amd() -> bool {
        let vendor = __cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::is_aarch64_feature_detected;

    use super::{CACHE, Isa, Level, Units};

    /// Returns the instruction sets from the slowest to the fastest; CPUs with I8MM have DotProd.
    pub(super) fn all() -> Vec<Isa> {
        let vnni = Units { vnni: is_aarch64_feature_detected!("dotprod"), ..Units::NONE };
        let i8mm = Units { i8mm: is_aarch64_feature_detected!("i8mm"), ..vnni };
        let fp16 = Units { fp16: is_aarch64_feature_detected!("fp16"), ..i8mm };
        let bf16 = Units { bf16: is_aarch64_feature_detected!("bf16"), ..fp16 };
        let mut all = [Units::NONE, vnni, i8mm, fp16, bf16]
            .map(|units| Isa { level: Level::Neon, units, cache: CACHE })
            .to_vec();
        all.dedup();
        all
    }
}

/// Turns each `fn name(...) { body }` into a kernel `fn name(isa, ...)` with its body compiled once
/// per instruction set: the compiler vectorises it with the features of the function it is inlined
/// in. Functions that the body calls must be `#[inline(always)]` too.
macro_rules! vectorized {
    ($(
        $(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block
    )+) => {$(
        $(#[$meta])*
        $vis fn $name(isa: $crate::Isa, $($arg: $type),*) {
            #[inline(always)]
            fn portable($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $type),*) {
                    portable($($arg),*);
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) {
                    portable($($arg),*);
                }
                match isa.level {
                    // SAFETY: an `Isa` of this level exists only if the CPU has these features.
                    $crate::cpu::isa::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::cpu::isa::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    _ => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = isa;
            portable($($arg),*);
        }
    )+};
}
pub(crate) use vectorized;

/// Computes a polynomial from its coefficients, the constant first, by Horner's rule. It is
/// unrolled because a loop inside a loop over values is not vectorised.
macro_rules! horner {
    ($coefficients:ident, $x:ident, $last:literal $($i:literal)*) => {{
        let mut p = $coefficients[$last];
        $(p = p.mul_add($x, $coefficients[$i]);)*
        p
    }};
}
pub(crate) use horner;
