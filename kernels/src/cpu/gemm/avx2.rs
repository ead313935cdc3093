//! AVX2 micro-kernels: up to 6 x 16 sums in 12 of 16 registers, or 8 x 8 of pairs of units in 8.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_ps, _mm256_castsi256_ps,
    _mm256_cmpgt_epi16, _mm256_dpbusd_avx_epi32, _mm256_fmadd_ps, _mm256_load_ps,
    _mm256_load_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_max_epi8, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_ps,
    _mm256_setzero_si256, _mm256_store_ps, _mm256_store_si256, _mm256_sub_epi8, _mm256_testz_si256,
};

use super::micro_kernel::{CacheLine, MicroKernel, MicroKernelArgs, PANEL_LINES, WORDS, by_rows};
use crate::cpu::precision::X_MAX;

pub(super) const F32: [MicroKernel; 6] = by_rows!(f32_kernel: 1 2 3 4 5 6);
/// Needs AVX-VNNI.
pub(super) const INT8: [MicroKernel; 6] = by_rows!(int8_kernel: 1 2 3 4 5 6);
/// For CPUs without AVX-VNNI.
pub(super) const INT8_SUMS: [MicroKernel; 8] = by_rows!(int8_sums_kernel: 1 2 3 4 5 6 7 8);

/// Lines of the header of 8 columns, see [`in_fours`].
pub(super) const FOURS_HEADER: usize = 4;

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
            for (i, sums) in sums.iter().enumerate() {
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
            let header = args.b.add(column * (FOURS_HEADER + args.units / 2));
            let mut b = header.add(FOURS_HEADER).cast();
            let pairs: &[[u8; 2]; FOURS_HEADER * size_of::<CacheLine>() / 2] = &*header.cast();
            let [[num_twos, _], pairs @ ..] = pairs;
            let (twos, fours) = pairs[..args.units / 2].split_at(usize::from(*num_twos));
            let rows = args.a.cast::<i32>();
            for &pair in twos {
                add_products::<ROWS, false>(rows, pair, b, &mut sums);
                b = b.add(1);
            }
            for &pair in fours {
                add_products::<ROWS, true>(rows, pair, b, &mut sums);
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

/// Adds the products of two units of the rows `a` and of 8 columns `b`; `at` is the units' entry in
/// the header of [`in_fours`]. With `FOURS`, the sums of four products fit 16 bits.
///
/// # Safety
/// `a` has these units of `ROWS` rows, `b` points to two registers.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_products<const ROWS: usize, const FOURS: bool>(
    a: *const i32,
    at: [u8; 2],
    b: *const [__m256i; 2],
    sums: &mut [__m256i; ROWS],
) {
    let ones = _mm256_set1_epi16(1);
    let [group, places] = at.map(usize::from);
    // SAFETY: as the caller vouches.
    let (a, b) = unsafe { (a.add(group * ROWS * WORDS), b.read()) };
    let places = [places % WORDS, places / WORDS];
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the words of two units of row `i`.
        let x = places.map(|word| unsafe { _mm256_set1_epi32(*a.add(i * WORDS + word)) });
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

/// Rearranges `[units, 32]` words of B for [`int8_sums_kernel`]: for each 8 columns a header and
/// `[units / 2, 2, 8]` words, which are pairs of units. The header is the number of pairs whose
/// sums of four products may exceed 16 bits, then where the units of each pair are in A: the index
/// of their group of 16, and in four bits each their places in it. These pairs come first.
///
/// Units are paired so that few of their sums exceed 16 bits.
#[target_feature(enable = "avx2")]
pub(super) fn in_fours(panel: &[CacheLine], columns: &mut [CacheLine]) {
    let num_pairs = panel.len() / PANEL_LINES / 2;
    let columns = columns.chunks_exact_mut(FOURS_HEADER + num_pairs);
    for (column, lines) in columns.enumerate() {
        let mut pairs = Vec::with_capacity(num_pairs);
        for (group, units) in panel.as_chunks::<{ WORDS * PANEL_LINES }>().0.iter().enumerate() {
            let units = units.as_ptr().cast::<__m256i>();
            // SAFETY: a unit is 4 registers.
            let b = std::array::from_fn(|unit| unsafe { *units.add(4 * unit + column) });
            for (fits, places) in pair_units(&b) {
                pairs.push((fits, [group, places[0] | places[1] << 4], places.map(|i| b[i])));
            }
        }
        pairs.sort_by_key(|(fits, ..)| *fits);
        let (header, lines) = lines.split_at_mut(FOURS_HEADER);
        let num_twos = pairs.iter().filter(|(fits, ..)| !fits).count();
        let mut bytes = vec![num_twos as u8, 0];
        for (line, (_, at, words)) in lines.iter_mut().zip(pairs) {
            bytes.extend(at.map(|byte| byte as u8));
            // SAFETY: a line is two registers.
            unsafe { (&raw mut *line).cast::<[__m256i; 2]>().write(words) };
        }
        bytes.resize(size_of_val(header), 0);
        for (word, bytes) in header.iter_mut().flat_map(|line| &mut line.0).zip(bytes.as_chunks().0)
        {
            *word = u32::from_le_bytes(*bytes);
        }
    }
}

/// Returns pairs of the 16 units `b`, and whether the sums of the products of their four values
/// with any X fit 16 bits. Units that fit few others are paired first.
#[target_feature(enable = "avx2")]
fn pair_units(b: &[__m256i; WORDS]) -> Vec<(bool, [usize; 2])> {
    let sums = b.map(|b| sums_by_sign(b));
    let mut partners = [0u16; WORDS];
    for j in 0..WORDS {
        for i in 0..j {
            if fit_together(sums[i], sums[j]) {
                partners[i] |= 1 << j;
                partners[j] |= 1 << i;
            }
        }
    }
    let mut free = u16::MAX;
    let mut pairs = Vec::with_capacity(WORDS / 2);
    while free != 0 {
        let units = |bits: u16| (0..WORDS).filter(move |i| bits >> i & 1 == 1);
        let partners_left = |i: &usize| (partners[*i] & free).count_ones();
        let first = units(free).filter(|i| partners_left(i) > 0).min_by_key(partners_left);
        let i = first.unwrap_or(free.trailing_zeros() as usize);
        let others = if first.is_some() { partners[i] & free } else { free & !(1 << i) };
        let Some(j) = units(others).min_by_key(partners_left) else { break };
        pairs.push((first.is_some(), [i, j]));
        free &= !(1 << i | 1 << j);
    }
    pairs
}

/// Returns the sums of neighbouring positive bytes, and of negated negative ones, in 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn sums_by_sign(b: __m256i) -> [__m256i; 2] {
    let zero = _mm256_setzero_si256();
    [b, _mm256_sub_epi8(zero, b)]
        .map(|b| _mm256_maddubs_epi16(_mm256_max_epi8(b, zero), _mm256_set1_epi8(1)))
}

/// Returns true if the sums of the products of two units with any X fit 16 bits, given the sums of
/// the units by sign.
#[inline]
#[target_feature(enable = "avx2")]
fn fit_together(x: [__m256i; 2], y: [__m256i; 2]) -> bool {
    let most = _mm256_set1_epi16((i32::from(i16::MAX) / X_MAX) as i16);
    let exceeds = [0, 1].map(|sign| _mm256_cmpgt_epi16(_mm256_add_epi16(x[sign], y[sign]), most));
    let exceeds = _mm256_or_si256(exceeds[0], exceeds[1]);
    _mm256_testz_si256(exceeds, exceeds) == 1
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
