//! Micro-kernels on AMX: 1 or 2 x 2 tiles of sums, each 16 rows x 16 columns, over 16 units of k at once.
//! A micro-panel of A is a column of tiles as it is packed, one of B a column of pairs of tiles.
//!
//! What a product is, says [`super::amx_portable`].

use std::arch::asm;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::micro_kernel::{MicroKernel, MicroKernelArgs, WORDS};

pub(super) const BF16: [MicroKernel; 2] = [bf16::one, bf16::two];
pub(super) const INT8: [MicroKernel; 2] = [int8::one, int8::two];

/// The unit with all tiles 16 rows of 64 bytes, as long as it lives: a thread that has tiles in use takes
/// longer to be interrupted.
pub(crate) struct Tiles;

impl Tiles {
    /// # Safety
    /// The CPU has AMX, and the operating system lets this process use it.
    pub(super) unsafe fn new() -> Self {
        let mut config = Config { palette: 1, ..Config::default() };
        config.bytes_per_row[..8].fill(64);
        config.rows[..8].fill(16);
        // SAFETY: the instruction reads the 64 bytes of `config`.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `new` found the unit.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// What LDTILECFG reads.
#[derive(Default)]
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

macro_rules! kernels {
    ($name:ident, $product:literal) => {
        mod $name {
            use super::*;

            /// # Safety
            /// [`Tiles`] live; the pointers of `args` cover 16 rows.
            pub(super) unsafe fn one(args: &MicroKernelArgs) {
                fetch_next(args);
                // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
                unsafe {
                    asm!(
                        "tilezero tmm0",
                        "tilezero tmm1",
                        "test {first}, {first}",
                        "jnz 2f",
                        "tileloadd tmm0, [{c} + {b_stride}]",
                        "tileloadd tmm1, [{c} + {b_stride} + 64]",
                        "2:",
                        "test {steps}, {steps}",
                        "jz 4f",
                        "3:",
                        "tileloadd tmm4, [{a} + {a_stride}]",
                        "tileloadd tmm6, [{b} + {b_stride}]",
                        "tileloadd tmm7, [{b} + {b_stride} + 64]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        concat!($product, " tmm1, tmm4, tmm7"),
                        "add {a}, 1024",
                        "add {b}, 2048",
                        "dec {steps}",
                        "jnz 3b",
                        "4:",
                        "tilestored [{c} + {b_stride}], tmm0",
                        "tilestored [{c} + {b_stride} + 64], tmm1",
                        a = inout(reg) args.a => _,
                        b = inout(reg) args.b => _,
                        c = in(reg) args.c,
                        steps = inout(reg) args.units / WORDS => _,
                        first = in(reg) u64::from(args.overwrite),
                        a_stride = in(reg) 64_u64,
                        b_stride = in(reg) 128_u64,
                        out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            }

            /// # Safety
            /// [`Tiles`] live; the pointers of `args` cover 32 rows.
            pub(super) unsafe fn two(args: &MicroKernelArgs) {
                fetch_next(args);
                // SAFETY: all reads and writes lie within the arrays that the caller vouches for; what
                // is fetched ahead may lie outside.
                unsafe {
                    asm!(
                        "tilezero tmm0",
                        "tilezero tmm1",
                        "tilezero tmm2",
                        "tilezero tmm3",
                        "test {first}, {first}",
                        "jnz 2f",
                        "tileloadd tmm0, [{c} + {b_stride}]",
                        "tileloadd tmm1, [{c} + {b_stride} + 64]",
                        "tileloadd tmm2, [{c} + {b_stride} + 2048]",
                        "tileloadd tmm3, [{c} + {b_stride} + 2112]",
                        "2:",
                        "test {steps}, {steps}",
                        "jz 4f",
                        "3:",
                        "tileloadd tmm4, [{a} + {a_stride}]",
                        "tileloadd tmm6, [{b} + {b_stride}]",
                        "tileloadd tmm7, [{b} + {b_stride} + 64]",
                        "tileloadd tmm5, [{a} + {a_stride} + 1024]",
                        concat!($product, " tmm0, tmm4, tmm6"),
                        concat!($product, " tmm1, tmm4, tmm7"),
                        concat!($product, " tmm2, tmm5, tmm6"),
                        concat!($product, " tmm3, tmm5, tmm7"),
                        "add {a}, 2048",
                        "add {b}, 2048",
                        "dec {steps}",
                        "jnz 3b",
                        "4:",
                        "tilestored [{c} + {b_stride}], tmm0",
                        "tilestored [{c} + {b_stride} + 64], tmm1",
                        "tilestored [{c} + {b_stride} + 2048], tmm2",
                        "tilestored [{c} + {b_stride} + 2112], tmm3",
                        a = inout(reg) args.a => _,
                        b = inout(reg) args.b => _,
                        c = in(reg) args.c,
                        steps = inout(reg) args.units / WORDS => _,
                        first = in(reg) u64::from(args.overwrite),
                        a_stride = in(reg) 64_u64,
                        b_stride = in(reg) 128_u64,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack),
                    );
                }
            }
        }
    };
}
kernels!(bf16, "tdpbf16ps");
kernels!(int8, "tdpbusd");

/// Fetches the share of the next micro-panel of B that `args` asks for.
fn fetch_next(args: &MicroKernelArgs) {
    for line in 0..args.fetches * args.units.div_ceil(WORDS) {
        // SAFETY: a hint; it reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(args.next.wrapping_add(line).cast()) };
    }
}
