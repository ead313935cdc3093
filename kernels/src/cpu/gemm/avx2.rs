//! AVX2 micro-kernels: a panel in two halves, up to 6 x 16 sums in 12 of 16 registers.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_ps, _mm256_castsi256_ps,
    _mm256_cmpgt_epi16, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_load_ps,
    _mm256_load_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_max_epi8, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_store_ps,
    _mm256_store_si256, _mm256_sub_epi8, _mm256_testz_si256,
};

use super::micro_kernel::{CacheLine, MicroKernel, MicroKernelArgs, PANEL_LINES, WORDS, by_rows};
use crate::cpu::precision::X_MAX;

pub(super) const F32: [MicroKernel; 6] = by_rows!(f32_kernel: 1 2 3 4 5 6);
/// Needs AVX-VNNI.
pub(super) const INT8: [MicroKernel; 6] = by_rows!(int8_kernel: 1 2 3 4 5 6);
/// For CPUs without AVX-VNNI.
pub(super) const INT8_SUMS: [MicroKernel; 6] = by_rows!(int8_sums_kernel: 1 2 3 4 5 6);

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

/// # Safety
/// The CPU has AVX2 and AVX-VNNI; the pointers of `args` cover `ROWS` rows.
#[target_feature(enable = "avx2,avxvnni")]
unsafe fn int8_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    for half in 0..PANEL_LINES {
        let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            for unit in 0..args.units {
                let (a, b) = operands::<ROWS>(args, unit, half);
                for (i, sums) in sums.iter_mut().enumerate() {
                    let value = _mm256_set1_epi32(*a.add(i * WORDS));
                    sums[0] = _mm256_dpbusd_avx_epi32(sums[0], value, b[0]);
                    sums[1] = _mm256_dpbusd_avx_epi32(sums[1], value, b[1]);
                }
            }
            add(args, half, &sums);
        }
    }
}

/// Sums two, and if possible four, products in 16 bits before they are added in 32 bits.
///
/// # Safety
/// The CPU has AVX2; the pointers of `args` cover `ROWS` rows, B was made by [`in_fours`].
#[target_feature(enable = "avx2")]
unsafe fn int8_sums_kernel<const ROWS: usize>(args: &MicroKernelArgs) {
    // 8 columns at a time: 16 would take more registers than there are.
    for column in 0..2 * PANEL_LINES {
        let mut sums = [_mm256_setzero_si256(); ROWS];
        // SAFETY: all reads and writes lie within the arrays that the caller vouches for.
        unsafe {
            let lines = args.b.add(column * (1 + args.units / 2));
            let mut b = lines.add(1).cast();
            let [num_twos, places @ ..] = &*lines.cast::<[u8; size_of::<CacheLine>()]>();
            let (twos, fours) = places[..args.units / 2].split_at(usize::from(*num_twos));
            let rows = args.a.cast::<i32>();
            for &place in twos {
                add_products::<ROWS, false>(rows, place, b, &mut sums);
                b = b.add(1);
            }
            for &place in fours {
                add_products::<ROWS, true>(rows, place, b, &mut sums);
                b = b.add(1);
            }
            for (i, &sum) in sums.iter().enumerate() {
                let to = args.c.add(i * PANEL_LINES).cast::<__m256i>().add(column);
                let before =
                    if args.overwrite { _mm256_setzero_si256() } else { _mm256_load_si256(to) };
                _mm256_store_si256(to, _mm256_add_epi32(before, sum));
            }
        }
    }
}

/// Adds the products of units `2 * place` and `2 * place + 1` of the rows `a` and of 8 columns `b`;
/// with `FOURS`, the sums of the products of four values of k fit 16 bits.
///
/// # Safety
/// `a` has these units of `ROWS` rows, `b` points to two registers.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_products<const ROWS: usize, const FOURS: bool>(
    a: *const i32,
    place: u8,
    b: *const [__m256i; 2],
    sums: &mut [__m256i; ROWS],
) {
    let ones = _mm256_set1_epi16(1);
    let unit = 2 * usize::from(place);
    // SAFETY: as the caller vouches.
    let (a, b) = unsafe { (a.add(unit / WORDS * ROWS * WORDS + unit % WORDS), b.read()) };
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the words of two units of row `i`.
        let x = [0, 1].map(|word| unsafe { _mm256_set1_epi32(*a.add(i * WORDS + word)) });
        let twos = [_mm256_maddubs_epi16(x[0], b[0]), _mm256_maddubs_epi16(x[1], b[1])];
        let products = if FOURS {
            _mm256_madd_epi16(_mm256_add_epi16(twos[0], twos[1]), ones)
        } else {
            let wide = twos.map(|two| _mm256_madd_epi16(two, ones));
            _mm256_add_epi32(wide[0], wide[1])
        };
        *sum = _mm256_add_epi32(*sum, products);
    }
}

/// Rearranges `[units / 2, 2, 32]` words of B for [`int8_sums_kernel`]: for each 8 columns a line,
/// and `[units / 2, 2, 8]` words. The line's first byte is the number of pairs of units whose sums of
/// four products may exceed 16 bits; they come first, and the next bytes are the places of all pairs.
#[target_feature(enable = "avx2")]
pub(super) fn in_fours(panel: &[CacheLine], columns: &mut [CacheLine]) {
    let (pairs, _) = panel.as_chunks::<{ 2 * PANEL_LINES }>();
    for (column, lines) in columns.chunks_exact_mut(1 + pairs.len()).enumerate() {
        let Some((header, lines)) = lines.split_first_mut() else { continue };
        let mut bytes = [0; size_of::<CacheLine>()];
        let [num_twos, places @ ..] = &mut bytes;
        let (mut next_two, mut next_four) = (0, pairs.len());
        for (place, pair) in pairs.iter().enumerate() {
            let from = pair.as_ptr().cast::<__m256i>();
            // SAFETY: the two units are 8 registers.
            let b = [0, 2 * PANEL_LINES].map(|unit| unsafe { *from.add(unit + column) });
            let at = if fits(b) {
                next_four -= 1;
                next_four
            } else {
                next_two += 1;
                next_two - 1
            };
            places[at] = place as u8;
            // SAFETY: a line is two registers.
            unsafe { (&raw mut lines[at]).cast::<[__m256i; 2]>().write(b) };
        }
        *num_twos = next_two as u8;
        for (word, bytes) in header.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
}

/// Returns true if the sums of the products of two units `b` with any X fit 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn fits(b: [__m256i; 2]) -> bool {
    let (zero, ones) = (_mm256_setzero_si256(), _mm256_set1_epi8(1));
    let most = _mm256_set1_epi16((i32::from(i16::MAX) / X_MAX) as i16);
    let positive = b.map(|b| _mm256_max_epi8(b, zero));
    let negative = b.map(|b| _mm256_max_epi8(_mm256_sub_epi8(zero, b), zero));
    let exceeds = [positive, negative].map(|[first, second]| {
        let sum =
            _mm256_add_epi16(_mm256_maddubs_epi16(first, ones), _mm256_maddubs_epi16(second, ones));
        _mm256_cmpgt_epi16(sum, most)
    });
    _mm256_testz_si256(exceeds[0], exceeds[0]) + _mm256_testz_si256(exceeds[1], exceeds[1]) == 2
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
