//! Clusters of unit vectors.

use rayon::prelude::*;

use super::packed_rows::{BLOCK_ROWS, PackedRows, SearchScratch, unit_mean};
use polysift_base::error::Result;
use polysift_base::progress::Stop;

/// Maximum number of iterations; the clusters only have to be near enough to keep duplicates
/// together, and change little after the first ones.
const ITERATIONS: usize = 20;

/// Returns the unit centres `[clusters, width]` of spherical k-means over `rows` `[n, width]`, which
/// have unit norm and a random order: the first ones are the centres of the first iteration. There
/// are as many clusters as rows at most. A centre that no row is nearest to stays where it is.
pub fn k_means(rows: &[f32], width: usize, clusters: usize, stop: &Stop) -> Result<Vec<f32>> {
    let mut centres = rows[..rows.len().min(clusters * width)].to_vec();
    let mut before = Vec::new();
    for _ in 0..ITERATIONS {
        stop.check()?;
        let packed = PackedRows::new(&centres, width);
        let blocks = rows.par_chunks(BLOCK_ROWS * width.max(1));
        let nearest: Vec<usize> = blocks
            .flat_map_iter(|rows| packed.nearest(rows, &mut SearchScratch::default()))
            .map(|(at, _)| at)
            .collect();
        if nearest == before {
            break;
        }
        let mut of_centres: Vec<Vec<usize>> = vec![Vec::new(); centres.len() / width];
        for (row, &centre) in nearest.iter().enumerate() {
            of_centres[centre].push(row);
        }
        centres.par_chunks_mut(width).zip(&of_centres).for_each(|(centre, own)| {
            let own: Vec<f32> =
                own.iter().flat_map(|row| &rows[row * width..][..width]).copied().collect();
            if let Some(mean) = unit_mean(&own, width) {
                centre.copy_from_slice(&mean);
            }
        });
        before = nearest;
    }
    Ok(centres)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_around_two_directions_make_two_clusters() -> Result<()> {
        // By turns around (1, 0, 0) and (0, 1, 0).
        let row = |at: usize| {
            let (near, far) = (0.1 * (at % 7) as f32, 1.0);
            if at.is_multiple_of(2) { [far, near, 0.05] } else { [near, far, -0.05] }
        };
        let rows: Vec<f32> = (0..60).filter_map(|at| unit_mean(&row(at), 3)).flatten().collect();
        let centres = k_means(&rows, 3, 2, &Stop::default())?;
        let nearest = PackedRows::new(&centres, 3).nearest(&rows, &mut SearchScratch::default());
        let clusters: Vec<usize> = nearest.into_iter().map(|(at, _)| at).collect();
        let expected: Vec<usize> = (0..60).map(|at| at % 2).collect();
        assert_eq!(clusters, expected);
        // There are no more clusters than rows.
        assert_eq!(k_means(&rows[..6], 3, 5, &Stop::default())?.len(), 6);
        assert!(k_means(&[], 3, 5, &Stop::default())?.is_empty());
        Ok(())
    }
}
