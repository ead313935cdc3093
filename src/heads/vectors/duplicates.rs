//! The near duplicates within a cluster.

use super::packed_rows::{BLOCK_ROWS, PACKED_BLOCK, PackedRows, SearchScratch};
use half::bf16;
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_kernels::cuda::NearRows;
use rayon::prelude::*;

/// Which row another row duplicates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Duplicate {
    /// Index of the nearest better row that is kept; of equally near rows the best.
    pub of: usize,
    /// Cosine similarity of the two.
    pub similarity: f32,
}

/// Finds the near duplicates among `rows` `[n, width]`, which have unit norm and are sorted from the
/// best row to the worst. A row is a duplicate if its similarity to a better row that is itself kept
/// is at least `least`. So each duplicate has a kept row near it: of A ~ B ~ C, where A and C are
/// not near each other, A and C stay. Holds a packed copy of the kept rows.
pub fn find_duplicates(
    rows: &[f32],
    width: usize,
    least: f32,
    stop: &Stop,
) -> Result<Vec<Option<Duplicate>>> {
    let (mut kept, mut kept_rows) = (PackedRows::new(&[], width), Vec::new());
    let mut found: Vec<Option<Duplicate>> = Vec::with_capacity(rows.len() / width);
    for block in rows.chunks(PACKED_BLOCK * width) {
        stop.check()?;
        let (start, size) = (found.len(), block.len() / width);
        let own = PackedRows::new(block, width);
        let of_block = |rows: &[f32]| {
            let (mut scratch, mut within) = (SearchScratch::default(), Vec::new());
            own.compare(rows, &mut scratch, |_, _, similarities| {
                within.extend_from_slice(similarities);
            });
            (kept.nearest(rows, &mut scratch), within)
        };
        let compared = block.par_chunks(BLOCK_ROWS * width).map(of_block);
        let (before, within): (Vec<_>, Vec<_>) = compared.unzip();
        let rows = within.iter().flat_map(|within: &Vec<f32>| within.chunks_exact(size));
        let mut kept_now = Vec::new();
        for (at, ((of, similarity), within)) in before.into_iter().flatten().zip(rows).enumerate() {
            let of = kept_rows.get(of).copied().unwrap_or_default();
            let mut nearest = Duplicate { of, similarity };
            for (other, &similarity) in within[..at].iter().enumerate() {
                if similarity > nearest.similarity && found[start + other].is_none() {
                    nearest = Duplicate { of: start + other, similarity };
                }
            }
            let is_found = nearest.similarity >= least;
            found.push(is_found.then_some(nearest));
            if !is_found {
                kept_now.extend_from_slice(&block[at * width..][..width]);
                kept_rows.push(start + at);
            }
        }
        kept.push(&kept_now);
    }
    Ok(found)
}

/// Finds what [`find_duplicates`] finds, with products on a GPU that say which rows may be near. Their
/// similarities are computed again on the CPU, so that the result is equal to the bit. `near` was
/// made for the same `width` and `least`; its rows are replaced.
pub fn find_duplicates_on_gpu(
    near: &mut NearRows,
    rows: &[f32],
    width: usize,
    least: f32,
    stop: &Stop,
) -> Result<Vec<Option<Duplicate>>> {
    let (bound, mut scratch) = (near.bound(), SearchScratch::default());
    let mut found: Vec<Option<Duplicate>> = Vec::with_capacity(rows.len() / width);
    near.clear();
    for block in rows.chunks(NearRows::BLOCK_ROWS * width) {
        stop.check()?;
        let start = found.len();
        let mut candidates = vec![Vec::new(); block.len() / width];
        near.compare(block, |first, columns, values| {
            let rows = candidates.par_iter_mut().zip(values.par_chunks_exact(columns));
            rows.enumerate().for_each(|(at, (candidates, values))| {
                let better = values.len().min(start + at - first);
                let stays = |row: &usize| found.get(*row).is_none_or(Option::is_none);
                candidates.extend(
                    indices_at_least(bound, &values[..better]).map(|at| first + at).filter(stays),
                );
            });
        })?;
        for (row, mut candidates) in block.chunks_exact(width).zip(candidates) {
            candidates.retain(|candidate| found[*candidate].is_none());
            let others: Vec<f32> =
                candidates.iter().flat_map(|at| &rows[at * width..][..width]).copied().collect();
            let others = PackedRows::new(&others, width);
            let (at, similarity) = others.nearest(row, &mut scratch)[0];
            let is_found = similarity >= least;
            found.push(is_found.then(|| Duplicate { of: candidates[at], similarity }));
        }
    }
    Ok(found)
}

/// Returns the indices of the `values` that are at least `bound`; it is fast if they are few.
fn indices_at_least(bound: f32, values: &[bf16]) -> impl Iterator<Item = usize> {
    const STEP: usize = 64;
    // The upper half of an f32 is a bf16; `to_f32` does more, for NaN.
    let is_near = move |value: &bf16| f32::from_bits(u32::from(value.to_bits()) << 16) >= bound;
    let steps = values.chunks(STEP).enumerate();
    let steps = steps.filter(move |(_, step)| step.iter().fold(false, |any, x| any | is_near(x)));
    steps.flat_map(move |(at, step)| {
        let near = step.iter().enumerate().filter(move |(_, value)| is_near(value));
        near.map(move |(own, _)| at * STEP + own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDTH: usize = 16;

    /// The rule, one row after another.
    fn naive(rows: &[f32], least: f32) -> Vec<Option<Duplicate>> {
        let row = |at: usize| &rows[at * WIDTH..][..WIDTH];
        let similarity =
            |a: usize, b: usize| row(a).iter().zip(row(b)).map(|(a, b)| a * b).sum::<f32>();
        let mut found: Vec<Option<Duplicate>> = Vec::new();
        for at in 0..rows.len() / WIDTH {
            let stay = (0..at).filter(|other| found[*other].is_none());
            let near = stay.map(|of| Duplicate { of, similarity: similarity(at, of) });
            let nearest = near.reduce(|a, b| if b.similarity > a.similarity { b } else { a });
            found.push(nearest.filter(|nearest| nearest.similarity >= least));
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Products of rows of ±1/4 are multiples of 1/8, so they are exact and many are equal.
        #[test]
        fn a_duplicate_is_near_the_nearest_better_row_that_stays(
            patterns in proptest::collection::vec(0u16..=u16::MAX, 0..80),
            repeats in 1usize..40,
            eighths in 1u8..=8,
        ) {
            let bit = |pattern: u16, at: usize| if pattern >> at & 1 == 1 { 0.25 } else { -0.25 };
            let patterns = (0..repeats).flat_map(|turn| {
                patterns.iter().map(move |pattern| pattern ^ (turn as u16).wrapping_mul(0x0421))
            });
            let rows: Vec<f32> =
                patterns.flat_map(|pattern| (0..WIDTH).map(move |at| bit(pattern, at))).collect();
            let least = f32::from(eighths) / 8.0;
            let found = find_duplicates(&rows, WIDTH, least, &Stop::default());
            prop_assert_eq!(found.ok(), Some(naive(&rows, least)));
        }
    }
}
