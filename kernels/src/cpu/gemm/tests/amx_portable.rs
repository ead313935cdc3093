//! AMX's products for every CPU: they define what the AMX kernels compute and stand in for them.
//!
//! TDPBF16PS adds the products of 32 values of k to a sum: two chains of fused multiply-adds, of
//! the even and of the odd values, each from zero, and then their sum. Numbers below 2⁻¹²⁶ are read
//! and written as zeros; all roundings are to nearest, ties to even. TDPBUSD is exact. (Source:
//! Intel's Software Developer's Manual, volume 2, which gives them as loops.)

use super::super::micro_kernel::{MicroKernel, MicroKernelArgs, WORDS};

pub(in super::super) const BF16: [MicroKernel; 2] = [bf16_kernel::<16>, bf16_kernel::<32>];
pub(in super::super) const INT8: [MicroKernel; 2] = [int8_kernel::<16>, int8_kernel::<32>];

const COLUMNS: usize = 32;

/// # Safety
/// The pointers of `args` cover `ROWS` rows.
unsafe fn bf16_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    // SAFETY: as the caller vouches.
    unsafe {
        for_each_tile::<f32, ROWS>(args, |row, a, b| {
            let mut chains = [[0.0; COLUMNS]; 2];
            for (a, b) in a.iter().zip(b) {
                for (part, chain) in chains.iter_mut().enumerate() {
                    let value = |pair: u32| {
                        flushed(f32::from_bits(if part == 0 { pair << 16 } else { pair & !0xffff }))
                    };
                    for (sum, &b) in chain.iter_mut().zip(b) {
                        *sum = fused(value(*a), value(b), *sum);
                    }
                }
            }
            for ((sum, even), odd) in row.iter_mut().zip(chains[0]).zip(chains[1]) {
                *sum = flushed(*sum + flushed(even + odd));
            }
        });
    }
}

/// # Safety
/// The pointers of `args` cover `ROWS` rows.
unsafe fn int8_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    // SAFETY: as the caller vouches.
    unsafe {
        for_each_tile::<i32, ROWS>(args, |row, a, b| {
            for (a, b) in a.iter().zip(b) {
                for (sum, b) in row.iter_mut().zip(b) {
                    for (a, b) in a.to_le_bytes().into_iter().zip(b.to_le_bytes()) {
                        *sum = sum.wrapping_add(i32::from(a) * i32::from(b.cast_signed()));
                    }
                }
            }
        });
    }
}

/// Calls `add` per 16 units of k and row, with its sums, 16 words of A and the 16 x 32 words of B.
///
/// # Safety
/// The pointers of `args` cover `ROWS` rows, and the sums are `T`s.
unsafe fn for_each_tile<T: Copy + Default, const ROWS: usize>(
    args: &MicroKernelArgs,
    add: impl Fn(&mut [T; COLUMNS], &[u32; WORDS], &[[u32; COLUMNS]; WORDS]),
) {
    let steps = args.units / WORDS;
    // SAFETY: the caller vouches for whole steps of A and B and for the sums of all rows.
    let (a, b, c) = unsafe {
        (
            std::slice::from_raw_parts(args.a.cast::<[[u32; WORDS]; ROWS]>(), steps),
            std::slice::from_raw_parts(args.b.cast::<[[u32; COLUMNS]; WORDS]>(), steps),
            std::slice::from_raw_parts_mut(args.c.cast::<[T; COLUMNS]>(), ROWS),
        )
    };
    if args.overwrite {
        c.fill([T::default(); COLUMNS]);
    }
    for (a, b) in a.iter().zip(b) {
        for (row, a) in c.iter_mut().zip(a) {
            add(row, a, b);
        }
    }
}

/// Returns `x`, or a zero of its sign if its magnitude is below 2⁻¹²⁶.
fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0f32.copysign(x) } else { x }
}

const LARGER: f32 = 18_446_744_073_709_551_616.0;

/// Computes `a · b + sum` with one rounding, before the result is flushed to zero.
fn fused(a: f32, b: f32, sum: f32) -> f32 {
    let result = a.mul_add(b, sum);
    if result.abs() > f32::MIN_POSITIVE {
        return result;
    }
    // Rounded as if exponents had no limit: 2⁶⁴ larger. Neither factor overflows, because a small
    // result is the sum of small terms.
    let (small, other) = if a.abs() < b.abs() { (a, b) } else { (b, a) };
    let enlarged = (small * LARGER).mul_add(other, sum * LARGER);
    if enlarged.abs() < f32::MIN_POSITIVE * LARGER { 0f32.copysign(result) } else { result }
}
