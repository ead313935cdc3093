//! NEON micro-kernels: quarters of a panel, 8 rows x 2 registers of sums, or by blocks 6 pairs x 4.
//!
//! A register of A holds four units of k of a row; its lanes are multiplied one after another.
//!
//! BFMMLA adds its products in pairs, rounds to odd and flushes numbers below 2⁻¹²⁶ to zero, so its
//! bf16 sums differ from FMLA's. On CPUs without BFMMLA, bf16 is unpacked to f32.
//!
//! There are no kernels for SVE2: with vectors of 128 bits (Neoverse V2, Grace) it saves nothing.

use std::arch::aarch64::{
    float16x8_t, float32x4_t, int32x4_t, uint32x4_t, vaddq_f32, vaddq_s32, vcvt_f32_f16,
    vcvt_high_f32_f16, vdupq_n_f32, vdupq_n_s32, vdupq_n_u32, vfmaq_laneq_f16, vfmaq_laneq_f32,
    vget_low_f16, vld1q_f32, vld1q_s32, vld1q_u32, vreinterpretq_f16_u32, vreinterpretq_f32_u32,
    vreinterpretq_f32_u64, vreinterpretq_s32_u64, vreinterpretq_u64_u32, vst1q_f32, vst1q_s32,
    vzip1q_u64, vzip2q_u64,
};
use std::arch::asm;

use super::micro_kernel::{MicroKernel, MicroKernelArgs, PANEL_LINES, UNROLL, WORDS, by_rows};

pub(super) const F32: [MicroKernel; 8] = by_rows!(f32_kernel: 1 2 3 4 5 6 7 8);
/// Needs FP16.
pub(super) const F16: [MicroKernel; 8] = by_rows!(f16_kernel: 1 2 3 4 5 6 7 8);
/// Needs DotProd.
pub(super) const INT8: [MicroKernel; 8] = by_rows!(int8_kernel: 1 2 3 4 5 6 7 8);
/// Needs I8MM.
pub(super) const INT8_BLOCKS: [MicroKernel; 6] = by_rows!(int8_blocks_kernel: 1 2 3 4 5 6);
/// Needs BF16.
pub(super) const BF16_BLOCKS: [MicroKernel; 6] = by_rows!(bf16_blocks_kernel: 1 2 3 4 5 6);

/// Words of a register.
const LANES: usize = 4;
/// Registers of a unit of B: four quarters of two.
const PANEL: usize = PANEL_LINES * WORDS / LANES;

/// Defines a kernel; `$step` adds the products of a lane of A and a register of B to a register of
/// `$columns` sums, and `$add` adds that to the sums in memory.
macro_rules! kernel {
    (
        $name:ident, $features:literal, $zero:expr, $step:ident, $add:ident, $columns:literal
    ) => {
        /// # Safety
        #[doc = concat!("The CPU has ", $features, "; the pointers of `args` cover `ROWS` rows.")]
        #[target_feature(enable = $features)]
        unsafe fn $name<const ROWS: usize>(args: &MicroKernelArgs) {
            for quarter in 0..PANEL / 2 {
                let (mut a, mut b) = (args.a, args.b.cast::<u32>());
                b = b.wrapping_add(2 * quarter * LANES);
                let mut left = args.units;
                loop {
                    let mut chain = left.min(args.chain);
                    let first = args.overwrite && left == args.units;
                    left -= chain;
                    let mut sums = [[$zero; 2]; ROWS];
                    // SAFETY: reads and writes lie within the arrays that the caller vouches for.
                    unsafe {
                        while chain > 0 {
                            for group in 0..chain.min(WORDS) / UNROLL {
                                let mut rows = [vdupq_n_u32(0); ROWS];
                                for (i, row) in rows.iter_mut().enumerate() {
                                    *row = vld1q_u32(a.add(i * WORDS + group * UNROLL));
                                }
                                unit!(0, $step, rows, b, sums);
                                unit!(1, $step, rows, b, sums);
                                unit!(2, $step, rows, b, sums);
                                unit!(3, $step, rows, b, sums);
                                b = b.wrapping_add(UNROLL * PANEL * LANES);
                            }
                            a = a.add(ROWS * WORDS);
                            chain -= chain.min(WORDS);
                        }
                        for (i, sums) in sums.iter().enumerate() {
                            let to = args.c.cast::<u32>().add((PANEL * i + 2 * quarter) * $columns);
                            $add(to, sums[0], first);
                            $add(to.add($columns), sums[1], first);
                        }
                    }
                    if left == 0 {
                        break;
                    }
                }
            }
        }
    };
}

macro_rules! unit {
    ($unit:literal, $step:ident, $rows:ident, $b:ident, $sums:ident) => {
        let from = $b.wrapping_add($unit * PANEL * LANES);
        let columns = [vld1q_u32(from), vld1q_u32(from.wrapping_add(LANES))];
        for (sums, row) in $sums.iter_mut().zip($rows) {
            sums[0] = $step::<$unit>(sums[0], row, columns[0]);
            sums[1] = $step::<$unit>(sums[1], row, columns[1]);
        }
    };
}

kernel!(f32_kernel, "neon", vdupq_n_f32(0.0), f32_step, f32_add, 4);
kernel!(int8_kernel, "neon,dotprod", vdupq_n_s32(0), int8_step, int8_add, 4);
kernel!(f16_kernel, "neon,fp16", vreinterpretq_f16_u32(vdupq_n_u32(0)), f16_step, f16_add, 8);

#[inline]
#[target_feature(enable = "neon")]
fn f32_step<const UNIT: i32>(sum: float32x4_t, a: uint32x4_t, b: uint32x4_t) -> float32x4_t {
    vfmaq_laneq_f32::<UNIT>(sum, vreinterpretq_f32_u32(b), vreinterpretq_f32_u32(a))
}

/// Bytes of both factors are signed.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn int8_step<const UNIT: i32>(mut sum: int32x4_t, a: uint32x4_t, b: uint32x4_t) -> int32x4_t {
    // SAFETY: the CPU has the instruction; it reads and writes registers only.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {b:v}.16b, {a:v}.4b[{unit}]",
            sum = inout(vreg) sum,
            a = in(vreg) a,
            b = in(vreg) b,
            unit = const UNIT,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

/// A word of A holds its value twice.
#[inline]
#[target_feature(enable = "neon,fp16")]
fn f16_step<const UNIT: i32>(sum: float16x8_t, a: uint32x4_t, b: uint32x4_t) -> float16x8_t {
    let (a, b) = (vreinterpretq_f16_u32(a), vreinterpretq_f16_u32(b));
    match UNIT {
        0 => vfmaq_laneq_f16::<0>(sum, b, a),
        1 => vfmaq_laneq_f16::<2>(sum, b, a),
        2 => vfmaq_laneq_f16::<4>(sum, b, a),
        _ => vfmaq_laneq_f16::<6>(sum, b, a),
    }
}

/// # Safety
/// `to` points to four f32.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn f32_add(to: *mut u32, sum: float32x4_t, first: bool) {
    // SAFETY: as the caller says.
    unsafe {
        let before = if first { vdupq_n_f32(0.0) } else { vld1q_f32(to.cast()) };
        vst1q_f32(to.cast(), vaddq_f32(before, sum));
    }
}

/// # Safety
/// `to` points to eight f32.
#[inline]
#[target_feature(enable = "neon,fp16")]
unsafe fn f16_add(to: *mut u32, sum: float16x8_t, first: bool) {
    // SAFETY: as the caller says.
    unsafe {
        f32_add(to, vcvt_f32_f16(vget_low_f16(sum)), first);
        f32_add(to.add(LANES), vcvt_high_f32_f16(sum), first);
    }
}

/// # Safety
/// `to` points to four i32.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn int8_add(to: *mut u32, sum: int32x4_t, first: bool) {
    // SAFETY: as the caller says.
    unsafe {
        let before = if first { vdupq_n_s32(0) } else { vld1q_s32(to.cast()) };
        vst1q_s32(to.cast(), vaddq_s32(before, sum));
    }
}

/// Defines a kernel by blocks: `$instruction` adds the products of two rows and two columns over
/// two words of k to a register of four sums, and `$add` adds `$sums` to the sums in memory.
macro_rules! blocks_kernel {
    ($name:ident, $features:literal, $instruction:literal, $sums:ident, $add:ident) => {
        /// # Safety
        #[doc = concat!("The CPU has ", $features, "; the pointers of `args` cover `PAIRS` pairs of rows.")]
        #[target_feature(enable = $features)]
        unsafe fn $name<const PAIRS: usize>(args: &MicroKernelArgs) {
            const BLOCKS: usize = WORDS / 2;
            for quarter in 0..2 * PANEL_LINES {
                let (mut a, mut b) = (args.a, args.b.wrapping_add(quarter));
                let mut left = args.units / 2;
                loop {
                    let mut chain = left.min(args.chain / 2);
                    let first = args.overwrite && left == args.units / 2;
                    left -= chain;
                    let mut sums = [[vdupq_n_u32(0); 4]; PAIRS];
                    // SAFETY: reads and writes lie within the arrays that the caller vouches for;
                    // the CPU has the instruction, which reads and writes registers only.
                    unsafe {
                        while chain > 0 {
                            for block in 0..chain.min(BLOCKS) {
                                let mut columns = [vdupq_n_u32(0); 4];
                                for (i, columns) in columns.iter_mut().enumerate() {
                                    *columns = vld1q_u32(b.cast::<u32>().add(i * LANES));
                                }
                                for (i, sums) in sums.iter_mut().enumerate() {
                                    let rows = vld1q_u32(a.add((i * BLOCKS + block) * LANES));
                                    for (sum, columns) in sums.iter_mut().zip(columns) {
                                        asm!(
                                            $instruction,
                                            sum = inout(vreg) *sum,
                                            a = in(vreg) rows,
                                            b = in(vreg) columns,
                                            options(pure, nomem, nostack, preserves_flags),
                                        );
                                    }
                                }
                                b = b.wrapping_add(2 * PANEL_LINES);
                            }
                            a = a.add(PAIRS * BLOCKS * LANES);
                            chain -= chain.min(BLOCKS);
                        }
                        // A register holds two columns of the first row, then those of the second.
                        for (i, sums) in sums.iter().enumerate() {
                            let to = args.c.add(2 * i * PANEL_LINES).cast::<u32>();
                            let to = to.add(quarter * 2 * LANES);
                            for half in 0..2 {
                                let left = vreinterpretq_u64_u32(sums[2 * half]);
                                let right = vreinterpretq_u64_u32(sums[2 * half + 1]);
                                let to = to.add(half * LANES);
                                $add(to, $sums(vzip1q_u64(left, right)), first);
                                let to = to.add(PANEL_LINES * WORDS);
                                $add(to, $sums(vzip2q_u64(left, right)), first);
                            }
                        }
                    }
                    if left == 0 {
                        break;
                    }
                }
            }
        }
    };
}

// Bytes of A are unsigned, those of B signed.
blocks_kernel!(
    int8_blocks_kernel,
    "neon,i8mm",
    "usmmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
    vreinterpretq_s32_u64,
    int8_add
);
blocks_kernel!(
    bf16_blocks_kernel,
    "neon,bf16",
    "bfmmla {sum:v}.4s, {a:v}.8h, {b:v}.8h",
    vreinterpretq_f32_u64,
    f32_add
);
