//! Clusters of embeddings, so that each kind of text has a share in a sample.
//!
//! # Source
//! S. P. Lloyd: Least squares quantization in PCM, 1982 (k-means); D. Arthur, S. Vassilvitskii:
//! k-means++: the advantages of careful seeding, 2007 (initial centres).

use polysift_kernels::{Isa, linear_f64};
use rayon::prelude::*;

use super::draws::Draws;

const MAX_ROUNDS: usize = 10;

/// Centres of clusters of vectors of one width.
pub(super) struct Centres {
    /// `[num_clusters, D]`.
    values: Vec<f32>,
    /// `[num_clusters]`: minus half the squared length of each centre.
    offsets: Vec<f32>,
}

impl Centres {
    fn new(values: Vec<f32>, width: usize) -> Self {
        let half_square = |centre: &[f32]| {
            let square: f64 = centre.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            (-square / 2.0) as f32
        };
        let offsets = values.chunks_exact(width).map(half_square).collect();
        Self { values, offsets }
    }

    /// Finds at most `count` clusters of `points`; fewer if fewer points are distinct.
    pub(super) fn find(points: &[Vec<f32>], count: usize, draws: Draws) -> Self {
        let Some(first) = points.first() else { return Self::new(Vec::new(), 1) };
        let width = first.len().max(1);
        let mut centres = Self::new(seeds(points, count, draws), width);
        let mut clusters = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let found: Vec<usize> = points.par_iter().map(|point| centres.nearest(point)).collect();
            if found == clusters {
                break;
            }
            clusters = found;
            centres = Self::new(centres.means(points, &clusters, width), width);
        }
        centres
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns the cluster with the centre nearest to `point`; the first on ties.
    pub(super) fn nearest(&self, point: &[f32]) -> usize {
        let mut nearness = vec![0.0; self.len()];
        // |x - c|² = |x|² - 2 (x · c - |c|² / 2)
        linear_f64(Isa::detect(), point, &self.values, &self.offsets, &mut nearness);
        let mut best = 0;
        for (i, value) in nearness.iter().enumerate() {
            if *value > nearness[best] {
                best = i;
            }
        }
        best
    }

    /// Returns the mean of each cluster's points; an empty cluster keeps its centre.
    fn means(&self, points: &[Vec<f32>], clusters: &[usize], width: usize) -> Vec<f32> {
        let mut sums = vec![0.0f64; self.values.len()];
        let mut counts = vec![0u32; self.len()];
        for (point, &cluster) in points.iter().zip(clusters) {
            counts[cluster] += 1;
            let sums = &mut sums[cluster * width..][..width];
            sums.iter_mut().zip(point).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        let value = |(i, sum): (usize, f64)| match counts[i / width] {
            0 => self.values[i],
            count => (sum / f64::from(count)) as f32,
        };
        sums.into_iter().enumerate().map(value).collect()
    }
}

/// Draws the initial centres: each point with a probability proportional to its squared distance
/// from the nearest centre drawn before.
fn seeds(points: &[Vec<f32>], count: usize, draws: Draws) -> Vec<f32> {
    let mut values = Vec::new();
    let mut squares = vec![1.0f64; points.len()];
    for round in 0..count as u64 {
        let total: f64 = squares.iter().sum();
        if total <= 0.0 {
            break;
        }
        let mut left = draws.uniform(round) * total;
        let passes = |square: &f64| {
            left -= square;
            left < 0.0
        };
        let drawn = squares.iter().position(passes);
        // Rounding can make the sum smaller than the number drawn below it.
        let last = || squares.iter().rposition(|square| *square > 0.0);
        let Some(seed) = drawn.or_else(last).map(|drawn| &points[drawn]) else { break };
        values.extend_from_slice(seed);
        squares.par_iter_mut().zip(points).for_each(|(square, point)| {
            let differences = point.iter().zip(seed).map(|(&a, &b)| f64::from(a) - f64::from(b));
            let distance: f64 = differences.map(|difference| difference * difference).sum();
            *square = if round == 0 { distance } else { square.min(distance) };
        });
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_lie_apart_are_found() {
        let at = |i: usize| {
            let shift = (i / 3) as f32 * 0.001;
            [[1.0, shift], [-1.0, shift], [shift, 1.0]][i % 3].to_vec()
        };
        let points: Vec<Vec<f32>> = (0..60).map(at).collect();
        for seed in 0..5 {
            let centres = Centres::find(&points, 3, Draws::new(seed, b"", "test", "und"));
            let clusters: Vec<usize> = points.iter().map(|point| centres.nearest(point)).collect();
            let mut found = clusters[..3].to_vec();
            found.sort_unstable();
            assert_eq!(found, [0, 1, 2]);
            assert!((0..60).all(|i| clusters[i] == clusters[i % 3]), "{clusters:?}");
        }
    }

    #[test]
    fn equal_points_are_one_cluster() {
        let centres = Centres::find(&vec![vec![0.5; 4]; 9], 3, Draws::new(1, b"", "test", "und"));
        assert_eq!((centres.len(), centres.nearest(&[1.0; 4])), (1, 0));
        assert_eq!(Centres::find(&[], 3, Draws::new(1, b"", "test", "und")).len(), 0);
    }
}
