//! AMX micro-kernels: 1 x 2 or 2 x 2 tiles of sums, each 16 rows x 16 columns, over 16 units of k
//! at a time. A micro-panel of A is a column of tiles, one of B a column of pairs of tiles.
//!
//! `tests/amx_portable.rs` defines the products.

use std::arch::asm;

use super::micro_kernel::{MicroKernel, MicroKernelArgs, WORDS};

pub(super) const BF16: [MicroKernel; 2] = [bf16_of_16, bf16_of_32];
pub(super) const INT8: [MicroKernel; 2] = [int8_of_16, int8_of_32];

/// AMX with tiles of 16 rows of 64 bytes until dropped: tiles make a thread slower to interrupt.
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
        // SAFETY: `new` has configured the unit.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Operand of LDTILECFG.
#[derive(Default)]
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

/// Defines a micro-kernel of `$rows` rows from the code that zeroes, resumes and stores the sums
/// and adds a step of 16 units of k, which also prefetches lines of the next micro-panel of B.
macro_rules! kernel {
    ($name:ident, $rows:literal, [$($zero:expr),*], [$($resume:expr),*], [$($step:expr),*], [$($store:expr),*]) => {
        /// # Safety
        #[doc = concat!("[`Tiles`] live; the pointers of `args` cover ", $rows, " rows.")]
        unsafe fn $name(args: &MicroKernelArgs) {
            // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
            unsafe {
                asm!(
                    $($zero,)*
                    "test {first}, {first}",
                    "jnz 2f",
                    $($resume,)*
                    "2:",
                    "test {steps}, {steps}",
                    "jz 4f",
                    "3:",
                    $($step,)*
                    // In a burst before the loop, these would wait for each other.
                    "mov {left}, {fetches}",
                    "test {left}, {left}",
                    "jz 6f",
                    "5:",
                    "prefetcht1 [{next}]",
                    "add {next}, 64",
                    "dec {left}",
                    "jnz 5b",
                    "6:",
                    concat!("add {a}, 64 * ", $rows),
                    "add {b}, 2048",
                    "dec {steps}",
                    "jnz 3b",
                    "4:",
                    $($store,)*
                    a = inout(reg) args.a => _,
                    b = inout(reg) args.b => _,
                    c = in(reg) args.c,
                    steps = inout(reg) args.units / WORDS => _,
                    first = in(reg) u64::from(args.overwrite),
                    next = inout(reg) args.next => _,
                    fetches = in(reg) args.fetches,
                    left = out(reg) _,
                    a_stride = in(reg) 64_u64,
                    b_stride = in(reg) 128_u64,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

macro_rules! kernels {
    ($one:ident, $two:ident, $product:literal) => {
        kernel!(
            $one,
            "16",
            ["tilezero tmm0", "tilezero tmm1"],
            ["tileloadd tmm0, [{c} + {b_stride}]", "tileloadd tmm1, [{c} + {b_stride} + 64]"],
            [
                "tileloadd tmm4, [{a} + {a_stride}]",
                "tileloadd tmm6, [{b} + {b_stride}]",
                "tileloadd tmm7, [{b} + {b_stride} + 64]",
                concat!($product, " tmm0, tmm4, tmm6"),
                concat!($product, " tmm1, tmm4, tmm7")
            ],
            ["tilestored [{c} + {b_stride}], tmm0", "tilestored [{c} + {b_stride} + 64], tmm1"]
        );
        kernel!(
            $two,
            "32",
            ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
            [
                "tileloadd tmm0, [{c} + {b_stride}]",
                "tileloadd tmm1, [{c} + {b_stride} + 64]",
                "tileloadd tmm2, [{c} + {b_stride} + 2048]",
                "tileloadd tmm3, [{c} + {b_stride} + 2112]"
            ],
            [
                "tileloadd tmm4, [{a} + {a_stride}]",
                "tileloadd tmm6, [{b} + {b_stride}]",
                "tileloadd tmm7, [{b} + {b_stride} + 64]",
                "tileloadd tmm5, [{a} + {a_stride} + 1024]",
                concat!($product, " tmm0, tmm4, tmm6"),
                concat!($product, " tmm1, tmm4, tmm7"),
                concat!($product, " tmm2, tmm5, tmm6"),
                concat!($product, " tmm3, tmm5, tmm7")
            ],
            [
                "tilestored [{c} + {b_stride}], tmm0",
                "tilestored [{c} + {b_stride} + 64], tmm1",
                "tilestored [{c} + {b_stride} + 2048], tmm2",
                "tilestored [{c} + {b_stride} + 2112], tmm3"
            ]
        );
    };
}
kernels!(bf16_of_16, bf16_of_32, "tdpbf16ps");
kernels!(int8_of_16, int8_of_32, "tdpbusd");
