//! Attention of one head within one sequence: `softmax(Q · Kᵀ / √head_size) · V`.
//!
//! A tile of queries (as many as a `gemm` micro-kernel takes) is multiplied with all keys, or with
//! the keys in its window. The scores stay in the first-level cache, become weights there, and are
//! multiplied with the values. Softmax's sums divide the result. Only the last panel is padded.
//!
//! A row depends on no other query. In f32 all instruction sets give the same bits.

mod softmax;

use std::ops::Range;

use self::softmax::Softmax;
use crate::cpu::gemm::kernel::{Kernel, Variant};
use crate::cpu::gemm::micro_kernel::{CHAIN, CacheLine, PANEL_LINES, WORDS};
use crate::cpu::gemm::pack_a::PackedRows;
use crate::cpu::gemm::pack_b::Channels;
use crate::cpu::isa::vectorized;
use crate::{Isa, Matrix, MatrixMut, PackedMatrix, Precision};

/// Memory that [`attention`] reuses between calls.
#[derive(Debug, Default)]
pub struct AttentionScratch {
    keys: PackedMatrix,
    values: PackedMatrix,
    queries: PackedRows,
    /// Scores; the weights made from them are stored one panel further to the front.
    scores: Vec<CacheLine>,
    sums: Vec<CacheLine>,
}

/// Computes `softmax(q · kᵀ / √head_size) · v` into `out`, all `[length, head_size]` f32. `q` and
/// `out` may have fewer rows; then only the first queries are computed.
///
/// Products are in a format that the CPU multiplies itself: [`Precision::F16`] and
/// [`Precision::Bf16`] use f32 if it does not multiply theirs; [`Precision::Int8`] uses bf16 with
/// AMX, on Arm f32, else the first of f16, bf16 and f32 that it multiplies. Softmax is in f32.
///
/// With a `window` a query meets only the keys at most `window` places before and after it. Keys
/// outside weigh at most 2^-125 of the largest weight, which no sum of a row can hold.
///
/// If scores of a row are NaN or infinite (in f16: above 65,504), the row is not finite.
///
/// Precision: in f32, see `attention_matches_f64`; else the rounding of the factors, and in f16 of
/// the sums over the head size and 128 keys (`attention_in_two_bytes_is_near_f64`).
pub fn attention(
    isa: Isa,
    precision: Precision,
    [q, k, v]: [Matrix<'_>; 3],
    window: Option<usize>,
    out: &mut MatrixMut<'_>,
    scratch: &mut AttentionScratch,
) {
    let (length, num_queries, head_size) = (k.rows(), q.rows(), q.columns());
    let fits = [k.columns(), v.columns(), out.columns] == [head_size; 3]
        && [v.rows(), out.rows] == [length, num_queries];
    assert!(fits && num_queries <= length, "the shapes differ");
    if num_queries == 0 || head_size == 0 {
        return;
    }
    let precision = product_precision(isa, precision);
    let kernel = Kernel::new(isa, precision);
    #[cfg(target_arch = "x86_64")]
    let _prepared = kernel.prepare(isa);
    let AttentionScratch { keys, values, queries, scores, sums } = scratch;
    keys.pack(isa, precision, k);
    values.pack_transposed(isa, precision, v);

    let mr = kernel.mr();
    // A window that contains all keys for every query has no effect.
    let window = window.filter(|&window| window < length - 1);
    let most_keys = window.map_or(length, |window| length.min(2 * window + mr + CHAIN));
    let panels = most_keys.div_ceil(kernel.nr) + 1;
    let gap = mr * kernel.nr / WORDS;
    scores.resize(scores.len().max((panels + 1) * gap), CacheLine::ZERO);
    sums.resize(sums.len().max(gap), CacheLine::ZERO);
    let mut softmax = Softmax::new(head_size);
    for rows in kernel.split(0..num_queries, mr) {
        let (first, end, height) = (rows.start, rows.end, kernel.height(rows.len()));
        queries.pack(isa, kernel, (q, &Channels::default()), std::iter::once(rows.clone()));
        softmax.start(height);
        let panels = window.map_or(0..length.div_ceil(kernel.nr), |window| {
            // The start is a multiple of a product's chain, so that sums do not depend on the tile.
            let start = first.saturating_sub(window) / CHAIN * CHAIN;
            start / kernel.nr..length.min(end + window).div_ceil(kernel.nr)
        });
        let tile = Tile { queries: &queries.lines, rows, panels: panels.clone(), window };
        let weights = weigh(isa, kernel, &tile, keys, scores, &mut softmax);
        let inverses = softmax.inverse_sums();
        let unit = |panel: usize| panel * kernel.nr / kernel.variant.k_per_unit();
        let units = unit(panels.start)..kernel.units(length).min(unit(panels.end));
        for p in 0..head_size.div_ceil(kernel.nr) {
            let values = &values.panel(p)[units.start * PANEL_LINES..];
            kernel.multiply(weights, values, units.len(), height, sums);
            let column = p * kernel.nr;
            for i in 0..end - first {
                let row = out.part(first + i, column, kernel.nr.min(head_size - column));
                let lines = &sums[i * kernel.nr / WORDS..];
                scale(isa, lines, inverses[i], row);
            }
        }
    }
}

/// Returns the format for the products of `precision` on this CPU; never int8.
fn product_precision(isa: Isa, precision: Precision) -> Precision {
    let native = |wanted| match Kernel::new(isa, wanted).variant {
        // Softmax does not write its weights in blocks, so these products are in f32.
        Variant::F32(_) | Variant::Bf16Blocks => Precision::F32,
        _ => wanted,
    };
    match precision {
        Precision::F32 | Precision::Bf16 | Precision::F16 => native(precision),
        // On tiles bf16 takes a fraction of the time and is more exact than other int8 products.
        Precision::Int8 if isa.units.amx => Precision::Bf16,
        // In f32, int8 embeddings on every Arm CPU equal those of the portable kernels.
        Precision::Int8 if cfg!(target_arch = "aarch64") => Precision::F32,
        Precision::Int8 => match native(Precision::F16) {
            Precision::F32 => native(Precision::Bf16),
            f16 => f16,
        },
    }
}

/// Some queries and the panels of keys that they meet.
struct Tile<'a> {
    queries: &'a [CacheLine],
    rows: Range<usize>,
    panels: Range<usize>,
    window: Option<usize>,
}

impl Tile<'_> {
    /// Returns true if all queries meet all keys of `panel`; there are `keys` keys.
    fn meets_all(&self, panel: &Range<usize>, keys: usize) -> bool {
        let Range { start, end } = self.rows;
        let within = |window| panel.start + window + 1 >= end && panel.end <= start + window + 1;
        panel.end <= keys && self.window.is_none_or(within)
    }

    /// Returns the columns of `panel` that are keys which the query `row` meets.
    fn columns(&self, row: usize, panel: &Range<usize>, keys: usize) -> Range<usize> {
        let from = self.window.map_or(0, |window| row.saturating_sub(window));
        let to = self.window.map_or(keys, |window| keys.min(row + window + 1));
        let column = |key: usize| key.clamp(panel.start, panel.end) - panel.start;
        column(from)..column(to)
    }
}

/// Computes the weights of the queries of `tile`, not yet divided by their sums, as rows of A.
fn weigh<'a>(
    isa: Isa,
    kernel: Kernel,
    tile: &Tile<'_>,
    keys: &PackedMatrix,
    scores: &'a mut [CacheLine],
    softmax: &mut Softmax,
) -> &'a [CacheLine] {
    let rows = kernel.height(tile.rows.len());
    let gap = rows * kernel.nr / WORDS;
    let units = kernel.units(keys.k());
    for (p, scores) in tile.panels.clone().zip(scores[gap..].chunks_exact_mut(gap)) {
        kernel.multiply(tile.queries, keys.panel(p), units, rows, scores);
        let panel = p * kernel.nr..(p + 1) * kernel.nr;
        if !tile.meets_all(&panel, keys.outputs()) {
            for (row, scores) in tile.rows.clone().zip(scores.chunks_exact_mut(kernel.nr / WORDS)) {
                mask(scores, tile.columns(row, &panel, keys.outputs()));
            }
        }
        softmax::raise_lanes(isa, scores, softmax);
    }
    softmax.find_largest();
    let made = gap / kernel.variant.k_per_unit();
    let panels = tile.panels.len();
    for p in 0..panels {
        let (before, scores) = scores.split_at_mut((p + 1) * gap);
        let weights = &mut before[p * made..][..made];
        match kernel.variant {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Variant::F16 => softmax::weigh_f16(isa, &scores[..gap], weights, softmax),
            Variant::Bf16 => softmax::weigh_bf16(isa, &scores[..gap], weights, softmax),
            _ => softmax::weigh_f32(isa, &scores[..gap], weights, softmax),
        }
    }
    &scores[..panels * made]
}

/// Sets the scores of a row outside `columns` to minus infinity.
fn mask(scores: &mut [CacheLine], columns: Range<usize>) {
    for (i, line) in scores.iter_mut().enumerate() {
        for (j, word) in line.0.iter_mut().enumerate() {
            if !columns.contains(&(i * WORDS + j)) {
                *word = f32::NEG_INFINITY.to_bits();
            }
        }
    }
}

vectorized! {
    /// Writes the f32 values of `lines`, times `factor`, to `row`.
    fn scale(lines: &[CacheLine], factor: f32, row: &mut [f32]) {
        for (row, line) in row.chunks_mut(WORDS).zip(lines) {
            for (value, &word) in row.iter_mut().zip(&line.0) {
                *value = f32::from_bits(word) * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests;
