//! Micro-kernels for every CPU; they define what the other micro-kernels compute.

use super::micro_kernel::{MicroKernel, MicroKernelArgs, WORDS, by_rows};

pub(super) const F32: [MicroKernel; 4] = by_rows!(f32_kernel: 1 2 3 4);
pub(super) const INT8: [MicroKernel; 4] = by_rows!(int8_kernel: 1 2 3 4);

/// Columns whose sums stay in registers: 4 x 16 values fill half of NEON's registers.
const COLUMNS: usize = 16;

/// Returns A, B and the sums, which begin with zeros.
///
/// # Safety
/// The pointers of `args` cover `ROWS` rows; `T` and `S` are numbers of 32 bits.
unsafe fn slices<'a, T, S: Clone + Default, const ROWS: usize>(
    args: &MicroKernelArgs,
) -> (&'a [T], &'a [T], &'a mut [S]) {
    let a_words = args.units.div_ceil(WORDS) * ROWS * WORDS;
    // SAFETY: the caller vouches for whole groups of 16 words for each row of A, for `units` x 32
    // words of B and for ROWS x 32 sums.
    let (a, b, sums) = unsafe {
        (
            std::slice::from_raw_parts(args.a.cast(), a_words),
            std::slice::from_raw_parts(args.b.cast(), args.units * 32),
            std::slice::from_raw_parts_mut(args.c.cast::<S>(), ROWS * 32),
        )
    };
    if args.overwrite {
        sums.fill(S::default());
    }
    (a, b, sums)
}

/// # Safety
/// The pointers of `args` cover `ROWS` rows.
unsafe fn f32_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    // SAFETY: as the caller vouches.
    let (a, b, sums) = unsafe { slices::<f32, f32, ROWS>(args) };
    for first in (0..32).step_by(COLUMNS) {
        for (block, b) in b.chunks(args.chain * 32).enumerate() {
            let mut chains = [[0.0; COLUMNS]; ROWS];
            for (step, b) in b.chunks_exact(32).enumerate() {
                let step = block * args.chain + step;
                let a = &a[step / WORDS * ROWS * WORDS + step % WORDS..];
                for (i, chain) in chains.iter_mut().enumerate() {
                    for (sum, &b) in chain.iter_mut().zip(&b[first..first + COLUMNS]) {
                        *sum = a[i * WORDS].mul_add(b, *sum);
                    }
                }
            }
            for (chain, row) in chains.iter().zip(sums.chunks_exact_mut(32)) {
                for (value, sum) in row[first..].iter_mut().zip(chain) {
                    *value += sum;
                }
            }
        }
    }
}

/// # Safety
/// The pointers of `args` cover `ROWS` rows.
unsafe fn int8_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    // SAFETY: as the caller vouches.
    let (a, b, sums) = unsafe { slices::<u32, i32, ROWS>(args) };
    for first in (0..32).step_by(COLUMNS) {
        let mut totals = [[0; COLUMNS]; ROWS];
        for (unit, b) in b.chunks_exact(32).enumerate() {
            let a = &a[unit / WORDS * ROWS * WORDS + unit % WORDS..];
            for shift in [0, 8, 16, 24] {
                let mut step = [0; COLUMNS];
                for (step, b) in step.iter_mut().zip(&b[first..first + COLUMNS]) {
                    *step = (b << (24 - shift)).cast_signed() >> 24;
                }
                for (i, totals) in totals.iter_mut().enumerate() {
                    let a = (a[i * WORDS] >> shift & 0xff).cast_signed();
                    for (total, b) in totals.iter_mut().zip(step) {
                        *total += a * b;
                    }
                }
            }
        }
        for (totals, row) in totals.iter().zip(sums.chunks_exact_mut(32)) {
            for (sum, total) in row[first..].iter_mut().zip(totals) {
                *sum += total;
            }
        }
    }
}
