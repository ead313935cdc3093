//! AVX-512 micro-kernels: up to 14 rows x two registers of sums, so 28 of 32 registers. A step
//! takes two loads, and for each row one broadcast and two multiply-adds.

use std::arch::x86_64::{
    __m256i, __m512, __m512bh, __m512h, __m512i, _MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1,
    _mm_prefetch, _mm256_load_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_castsi512_ph,
    _mm512_castsi512_ps, _mm512_cvtph_ps, _mm512_dpbf16_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ph,
    _mm512_fmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_set1_epi32, _mm512_setzero_ph,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_store_ps, _mm512_store_si512,
};
use std::mem::transmute;

use super::micro_kernel::{
    CacheLine, MicroKernel, MicroKernelArgs, PANEL_LINES, UNROLL, WORDS, by_rows,
};

/// Number of units of B to prefetch ahead.
const AHEAD: usize = 16;

/// Defines a kernel; `$step` adds the products of a word of A and 16 words of B to a register.
macro_rules! kernel {
    ($name:ident, $kernels:ident, $features:literal, $zero:ident, $step:ident, $add:ident) => {
        pub(super) const $kernels: [MicroKernel; 14] =
    by_rows!($name: 1 2 3 4 5 6 7 8 9 10 11 12 13 14);

        /// # Safety
        #[doc = concat!("The CPU has ", $features, "; the pointers of `args` cover `ROWS` rows.")]
        #[target_feature(enable = $features)]
        unsafe fn $name<const ROWS: usize>(args: &MicroKernelArgs) {
            let (mut a, mut b, mut next) = (args.a, args.b, args.next);
            let (mut left, mut row) = (args.units, 0);
            loop {
                let mut chain = left.min(args.chain);
                let first = args.overwrite && left == args.units;
                left -= chain;
                let mut sums = [[$zero(); 2]; ROWS];
                // SAFETY: all reads and writes lie within the arrays that the caller vouches for;
                // what is fetched ahead may lie outside.
                unsafe {
                    while chain > 0 {
                        if row < ROWS {
                            fetch_row(args, row);
                            row += 1;
                        }
                        for _ in 0..args.fetches {
                            _mm_prefetch::<_MM_HINT_T1>(next.cast());
                            next = next.wrapping_add(1);
                        }
                        for group in 0..chain.min(WORDS) / UNROLL {
                            for unit in 0..UNROLL {
                                fetch(b.wrapping_add(AHEAD * PANEL_LINES));
                                let columns = [
                                    _mm512_load_si512(b.cast()),
                                    _mm512_load_si512(b.add(1).cast()),
                                ];
                                b = b.add(PANEL_LINES);
                                let a = a.add(group * UNROLL + unit);
                                for (i, sums) in sums.iter_mut().enumerate() {
                                    let value =
                                        _mm512_set1_epi32((*a.add(i * WORDS)).cast_signed());
                                    sums[0] = $step(sums[0], value, columns[0]);
                                    sums[1] = $step(sums[1], value, columns[1]);
                                }
                            }
                        }
                        a = a.add(ROWS * WORDS);
                        chain -= chain.min(WORDS);
                    }
                    if first {
                        $add::<true, ROWS>(args, &sums);
                    } else {
                        $add::<false, ROWS>(args, &sums);
                    }
                }
                if left == 0 {
                    return;
                }
            }
        }
    };
}

kernel!(f32_kernel, F32, "avx512f,avx512vl", _mm512_setzero_ps, f32_step, f32_add);
kernel!(bf16_kernel, BF16, "avx512f,avx512vl,avx512bf16", _mm512_setzero_ps, bf16_step, f32_add);
kernel!(f16_kernel, F16, "avx512f,avx512vl,avx512fp16", _mm512_setzero_ph, f16_step, f16_add);
kernel!(
    int8_kernel,
    INT8,
    "avx512f,avx512vl,avx512vnni",
    _mm512_setzero_si512,
    _mm512_dpbusd_epi32,
    int8_add
);

#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
fn f32_step(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
    _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bf16")]
fn bf16_step(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
    // SAFETY: both are 512 bits.
    let pairs = |words| unsafe { transmute::<__m512i, __m512bh>(words) };
    _mm512_dpbf16_ps(sum, pairs(a), pairs(b))
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512fp16")]
fn f16_step(sum: __m512h, a: __m512i, b: __m512i) -> __m512h {
    _mm512_fmadd_ph(_mm512_castsi512_ph(a), _mm512_castsi512_ph(b), sum)
}

macro_rules! add {
    ($name:ident, $type:ty, $load:ident, $add:ident, $store:ident) => {
        /// # Safety
        /// `args` has `ROWS` rows.
        #[inline]
        #[target_feature(enable = "avx512f,avx512vl")]
        unsafe fn $name<const FIRST: bool, const ROWS: usize>(
            args: &MicroKernelArgs,
            sums: &[[$type; 2]; ROWS],
        ) {
            for (i, sums) in sums.iter().enumerate() {
                // SAFETY: the 32 values of row `i`, in two lines.
                unsafe {
                    let (low, high) = (args.c.add(2 * i).cast(), args.c.add(2 * i + 1).cast());
                    $store(low, if FIRST { sums[0] } else { $add($load(low), sums[0]) });
                    $store(high, if FIRST { sums[1] } else { $add($load(high), sums[1]) });
                }
            }
        }
    };
}
add!(f32_add, __m512, _mm512_load_ps, _mm512_add_ps, _mm512_store_ps);
add!(int8_add, __m512i, _mm512_load_si512, _mm512_add_epi32, _mm512_store_si512);

/// Adds f16 sums to C in f32, or writes them if `FIRST`. It reads a copy, so that `sums` can stay
/// in registers.
///
/// # Safety
/// `args` has `ROWS` rows of 64 columns.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512fp16")]
unsafe fn f16_add<const FIRST: bool, const ROWS: usize>(
    args: &MicroKernelArgs,
    sums: &[[__m512h; 2]; ROWS],
) {
    let copy = *sums;
    // SAFETY: as the caller says.
    unsafe { add_halves::<FIRST>(args.c, copy.as_flattened()) };
}

/// Adds f16 sums in f32. It is not inlined, because in a kernel it would take the sums' registers.
///
/// # Safety
/// `to` has two lines for each register of `sums`.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512vl,avx512fp16")]
unsafe fn add_halves<const FIRST: bool>(to: *mut CacheLine, sums: &[__m512h]) {
    for (i, sum) in sums.iter().enumerate() {
        let halves = (&raw const *sum).cast::<__m256i>();
        for half in 0..2 {
            // SAFETY: 16 of the 32 values of a register, and one line.
            unsafe {
                let value = _mm512_cvtph_ps(_mm256_load_si256(halves.add(half)));
                let to = to.add(2 * i + half).cast();
                let sum = if FIRST { value } else { _mm512_add_ps(_mm512_load_ps(to), value) };
                _mm512_store_ps(to, sum);
            }
        }
    }
}

/// Prefetches two lines that will be read.
#[inline(always)]
fn fetch(lines: *const CacheLine) {
    // SAFETY: a hint; it reads nothing.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(lines.cast());
        _mm_prefetch::<_MM_HINT_T0>(lines.wrapping_add(1).cast());
    }
}

/// Prefetches the part of C's row `row` that will be written.
#[inline(always)]
fn fetch_row(args: &MicroKernelArgs, row: usize) {
    let to = args.target.wrapping_add(row * args.target_stride);
    for column in (0..args.target_width).step_by(WORDS) {
        // SAFETY: a hint; it reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(to.wrapping_add(column).cast()) };
    }
}
