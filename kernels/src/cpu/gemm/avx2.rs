//! AVX2 micro-kernels: a panel in two halves, up to 6 x 16 sums in 12 of 16 registers.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_add_ps, _mm256_castsi256_ps, _mm256_dpbusd_avx_epi32,
    _mm256_fmadd_ps, _mm256_load_ps, _mm256_load_si256, _mm256_madd_epi16, _mm256_set1_epi32,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_store_ps, _mm256_store_si256,
};

use super::micro_kernel::{MicroKernel, MicroKernelArgs, PANEL_LINES, WORDS, by_rows};

pub(super) const F32: [MicroKernel; 6] = by_rows!(f32_kernel: 1 2 3 4 5 6);
/// Needs AVX-VNNI.
pub(super) const INT8: [MicroKernel; 6] = by_rows!(int8_kernel: 1 2 3 4 5 6);
/// Without AVX-VNNI: products of pairs of 16-bit integers.
pub(super) const INT8_BY_PAIRS: [MicroKernel; 6] = by_rows!(pairs_kernel: 1 2 3 4 5 6);

/// # Safety
/// The CPU has AVX2 and FMA; the pointers of `args` cover `ROWS` rows.
#[target_feature(enable = "avx2,fma")]
unsafe fn f32_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    for half in 0..PANEL_LINES {
        let mut done = 0;
        loop {
            let end = args.units.min(done + args.chain);
            let first = args.overwrite && done == 0;
            let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
            // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
            unsafe {
                while done < end {
                    let (a, b) = operands::<ROWS>(args, done, half);
                    let b = b.map(|b| _mm256_castsi256_ps(b));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let value = _mm256_castsi256_ps(_mm256_set1_epi32(*a.add(i * WORDS)));
                        sums[0] = _mm256_fmadd_ps(value, b[0], sums[0]);
                        sums[1] = _mm256_fmadd_ps(value, b[1], sums[1]);
                    }
                    done += 1;
                }
                for (i, sums) in sums.iter().enumerate() {
                    let to = args.c.add(i * PANEL_LINES + half).cast::<f32>();
                    let before = if first {
                        [_mm256_setzero_ps(); 2]
                    } else {
                        [_mm256_load_ps(to), _mm256_load_ps(to.add(8))]
                    };
                    _mm256_store_ps(to, _mm256_add_ps(before[0], sums[0]));
                    _mm256_store_ps(to.add(8), _mm256_add_ps(before[1], sums[1]));
                }
            }
            if done == args.units {
                break;
            }
        }
    }
}

/// Defines a kernel in int8; `$step` adds the products of a word of A and 8 words of B to 8 sums.
macro_rules! int8_kernel {
    ($name:ident, $features:literal, $step:ident) => {
        /// # Safety
        #[doc = concat!("The CPU has ", $features, "; the pointers of `args` cover `ROWS` rows.")]
        #[target_feature(enable = $features)]
        unsafe fn $name<const ROWS: usize>(args: &MicroKernelArgs) {
            for half in 0..PANEL_LINES {
                let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
                // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
                unsafe {
                    for unit in 0..args.units {
                        let (a, b) = operands::<ROWS>(args, unit, half);
                        for (i, sums) in sums.iter_mut().enumerate() {
                            let value = _mm256_set1_epi32(*a.add(i * WORDS));
                            sums[0] = $step(sums[0], value, b[0]);
                            sums[1] = $step(sums[1], value, b[1]);
                        }
                    }
                    add(args, half, &sums);
                }
            }
        }
    };
}
int8_kernel!(int8_kernel, "avx2,avxvnni", _mm256_dpbusd_avx_epi32);
int8_kernel!(pairs_kernel, "avx2", pairs_step);

#[inline]
#[target_feature(enable = "avx2")]
fn pairs_step(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
}

/// Returns a pointer to word `unit` of the first row of A, and 16 columns of B at `unit`.
///
/// # Safety
/// `unit` is less than `args.units`, `half` is 0 or 1.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn operands<const ROWS: usize>(
    args: &MicroKernelArgs,
    unit: usize,
    half: usize,
) -> (*const i32, [__m256i; 2]) {
    // SAFETY: A holds whole groups of 16 words of each row, B 32 words of each unit.
    unsafe {
        let a = args.a.add(unit / WORDS * ROWS * WORDS + unit % WORDS).cast();
        let b = args.b.add(unit * PANEL_LINES + half).cast::<__m256i>();
        (a, [_mm256_load_si256(b), _mm256_load_si256(b.add(1))])
    }
}

/// Adds `sums` to 16 columns of the sums of `args`.
///
/// # Safety
/// The sums of `args` have `ROWS` rows, `half` is 0 or 1.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add<const ROWS: usize>(args: &MicroKernelArgs, half: usize, sums: &[[__m256i; 2]; ROWS]) {
    for (i, sums) in sums.iter().enumerate() {
        // SAFETY: 16 values of row `i`, within its 32.
        unsafe {
            let to = args.c.add(i * PANEL_LINES + half).cast::<__m256i>();
            let before = if args.overwrite {
                [_mm256_setzero_si256(); 2]
            } else {
                [_mm256_load_si256(to), _mm256_load_si256(to.add(1))]
            };
            _mm256_store_si256(to, _mm256_add_epi32(before[0], sums[0]));
            _mm256_store_si256(to.add(1), _mm256_add_epi32(before[1], sums[1]));
        }
    }
}
