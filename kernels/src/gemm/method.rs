//! How a product is computed: by what the CPU has.

use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::Level;
use crate::matrix::Target;
use crate::packed::{Line, PANEL_LINES, WORDS};
use crate::{Isa, Precision};

/// Steps of the depth whose products are summed before they are added to the sum of all: the
/// error grows with the length of a chain.
pub(super) const BLOCK: usize = 128;
/// Most rows of a tile.
pub(crate) const MAX_TILE_ROWS: usize = 14;
/// Columns of the widest panel.
pub(super) const MAX_COLUMNS: usize = 64;

/// The sums of a tile and a panel as bits: `[rows, columns of the panel]`, f32 or (int8) i32.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [u32; MAX_TILE_ROWS * MAX_COLUMNS]);

impl Sums {
    pub(super) const ZERO: Self = Self([0; MAX_TILE_ROWS * MAX_COLUMNS]);
}

/// What a 32-bit word of packed X holds; W has the same form.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "units that x86 alone has"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A value in f32, rounded to the precision; W is expanded to f32 where it is not.
    F32(Precision),
    /// Two steps in bf16.
    Bf16,
    /// A value in f16, twice.
    F16,
    /// Four steps, as the integer + 128.
    Int8,
}

impl Form {
    /// Steps of the depth in one unit.
    pub(crate) fn steps(self) -> usize {
        match self {
            Self::F32(_) | Self::F16 => 1,
            Self::Bf16 => 2,
            Self::Int8 => 4,
        }
    }
}

/// One call of a micro-kernel: the sums of `rows` x one panel.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX-512's kernels fetch"))]
pub(crate) struct Tile {
    /// `[units / 16, rows, 16]` words, the last group padded.
    pub(super) x: *const u32,
    /// `[units, 32]` words.
    pub(super) w: *const Line,
    /// [`Sums`].
    pub(super) sums: *mut Line,
    /// The sums start with this call: what is in `sums` does not count.
    pub(super) fresh: bool,
    /// A multiple of [`crate::packed::UNROLL`].
    pub(super) units: usize,
    /// Units whose sum is added to that of all, a multiple of 16.
    pub(super) block: usize,
    /// Where the values will go, to fetch it in time.
    pub(super) to: Target,
    /// The next lines of W, to fetch `fetches` of them for 16 units; may point anywhere.
    pub(super) next: *const Line,
    pub(super) fetches: usize,
}

/// A micro-kernel for a fixed number of rows.
pub(crate) type Kernel = unsafe fn(&Tile);

/// A form with the kernels that take it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Method {
    pub(crate) form: Form,
    /// By number of rows, from one on.
    pub(crate) kernels: &'static [Kernel],
    /// Columns of a panel.
    pub(crate) panel: usize,
}

impl Method {
    pub(crate) fn new(isa: Isa, precision: Precision) -> Self {
        let (form, kernels): (_, &'static [Kernel]) = match (precision, isa.level()) {
            #[cfg(target_arch = "x86_64")]
            (Precision::Bf16, Level::Avx512) if isa.units().bf16 => (Form::Bf16, &avx512::BF16),
            #[cfg(target_arch = "x86_64")]
            (Precision::F16, Level::Avx512) if isa.units().fp16 => (Form::F16, &avx512::F16),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx512) if isa.units().vnni => (Form::Int8, &avx512::INT8),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx2) if isa.units().vnni => (Form::Int8, &avx2::INT8),
            #[cfg(target_arch = "x86_64")]
            (Precision::Int8, Level::Avx2 | Level::Avx512) => (Form::Int8, &avx2::INT8_BY_PAIRS),
            (Precision::Int8, Level::Portable) => (Form::Int8, &portable::INT8),
            #[cfg(target_arch = "x86_64")]
            (other, Level::Avx512) => (Form::F32(other), &avx512::F32),
            #[cfg(target_arch = "x86_64")]
            (other, Level::Avx2) => (Form::F32(other), &avx2::F32),
            (other, Level::Portable) => (Form::F32(other), &portable::F32),
        };
        let panel = if form == Form::F16 { 2 * PANEL_LINES * WORDS } else { PANEL_LINES * WORDS };
        Self { form, kernels, panel }
    }
}

/// A kernel for each number of rows.
macro_rules! by_rows {
    ($kernel:ident: $($rows:literal)*) => { [$($kernel::<$rows>),*] };
}
pub(super) use by_rows;
