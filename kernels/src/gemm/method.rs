//! How a product is computed: by what the CPU has.

#[cfg(target_arch = "x86_64")]
use super::{bf16_avx512, f16_avx512};
use super::{fma, int8};
use crate::packed::{PANEL_LINES, WORDS};
use crate::{Arithmetic, Isa};

/// Steps of the depth whose products are summed before they are added to the sum of all: the
/// error grows with the length of a chain.
pub(super) const BLOCK: usize = 128;
/// Most rows of a tile.
pub(crate) const MAX_TILE_ROWS: usize = 14;
/// Columns of the widest panel.
pub(super) const MAX_COLUMNS: usize = 64;

/// The sums of a tile and a panel as bits: `[rows, columns of the panel]`, f32 or (int8) i32.
#[repr(C, align(64))]
pub(super) struct Sums(pub(super) [u32; MAX_TILE_ROWS * MAX_COLUMNS]);

impl Sums {
    pub(super) const ZERO: Self = Self([0; MAX_TILE_ROWS * MAX_COLUMNS]);
}

/// What a 32-bit word of packed X holds; W has the same form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A value in f32, rounded to the arithmetic; W is expanded to f32 where it is not.
    F32(Arithmetic),
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
pub(crate) struct Tile {
    /// `[units / 16, rows, 16]` words, the last group padded.
    pub(super) x: *const u32,
    /// `[units, 32]` words, aligned to 64 bytes.
    pub(super) w: *const u32,
    /// The array of [`Sums`]; only written.
    pub(super) sums: *mut f32,
    pub(super) units: usize,
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
    pub(crate) fn new(isa: Isa, arithmetic: Arithmetic) -> Self {
        let units = isa.units();
        let (form, kernels): (_, &'static [Kernel]) = match arithmetic {
            #[cfg(target_arch = "x86_64")]
            Arithmetic::Bf16 if units.bf16 => (Form::Bf16, &bf16_avx512::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Arithmetic::F16 if units.fp16 => (Form::F16, &f16_avx512::KERNELS),
            Arithmetic::Int8 => (Form::Int8, int8::kernels(isa)),
            other => (Form::F32(other), fma::kernels(isa)),
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
