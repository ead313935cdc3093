//! Arguments of a micro-kernel: operands packed in cache lines, and a tile of sums.
//!
//! As in BLIS a product is `C = A · B`: A is X, packed in micro-panels of up to [`MR`] rows; B is
//! Wᵀ, packed in micro-panels of 32 columns (64 in f16). A *unit* of k is the part of k in one
//! 32-bit word: one value (f32, f16), two (bf16) or four (int8).

/// Number of 32-bit words in a cache line.
pub(crate) const WORDS: usize = 16;
/// Number of cache lines of a micro-panel of B for one unit of k.
pub(crate) const PANEL_LINES: usize = 2;
/// Micro-kernels other than AMX's take a multiple of this number of units of k.
pub(crate) const UNROLL: usize = 4;
/// Maximum rows of a micro-tile.
pub(crate) const MR: usize = 32;
/// Maximum columns of a micro-tile.
pub(super) const NR: usize = 64;
/// Number of values of k whose products are summed apart: errors grow with the length of a chain.
pub(crate) const CHAIN: usize = 128;

/// One cache line; loads of a micro-panel must not straddle two.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct CacheLine(pub(crate) [u32; WORDS]);

impl CacheLine {
    pub(crate) const ZERO: Self = Self([0; WORDS]);
}

/// Sums as bits: `[rows, columns of a micro-panel of B]`, f32 or (int8) i32.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct MicroTile(pub(super) [u32; MICRO_TILE]);

/// Words of the largest tile: 32 x 32 (AMX), or 14 x 64.
const MICRO_TILE: usize = 1024;

impl MicroTile {
    pub(super) const ZERO: Self = Self([0; MICRO_TILE]);
}

/// One call of a micro-kernel: the products of a micro-panel of A and one of B.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only kernels for AVX-512 and AMX fetch")
)]
pub(crate) struct MicroKernelArgs {
    /// `[units / 16, rows, 16]` words, padded; by blocks, two rows share blocks of two words.
    pub(super) a: *const u32,
    /// `[units, 32]` words; by blocks `[units / 2, 32, 2]`.
    pub(super) b: *const CacheLine,
    /// Points to a [`MicroTile`].
    pub(super) c: *mut CacheLine,
    /// Whether the sums start with this call; the contents of `c` are then ignored.
    pub(super) overwrite: bool,
    /// A multiple of the units that the kernel takes at a time.
    pub(super) units: usize,
    /// Units of a [`CHAIN`], a multiple of 16. AMX has chains of its own.
    pub(super) chain: usize,
    /// Destination of the values in rows of `target_width`, to prefetch it: never read or written.
    pub(super) target: *const f32,
    pub(super) target_width: usize,
    /// Values from one row of the destination to the next.
    pub(super) target_stride: usize,
    /// The next lines of B: `fetches` lines are prefetched per 16 units. May point anywhere.
    pub(super) next: *const CacheLine,
    pub(super) fetches: usize,
}

/// A micro-kernel for a fixed number of rows.
pub(crate) type MicroKernel = unsafe fn(&MicroKernelArgs);

macro_rules! by_rows {
    ($kernel:ident: $($rows:literal)*) => { [$($kernel::<$rows>),*] };
}
pub(super) use by_rows;
