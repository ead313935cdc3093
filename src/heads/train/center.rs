//! Computes the mean and the whitening matrix with which a cosine head transforms embeddings.

use polysift_kernels::{Isa, linear_f64};
use rayon::prelude::*;

use super::samples::Samples;
use crate::head::Center;

/// Computes the mean of at least one row and, if `whitens`, a matrix that makes the shrunk
/// covariance the identity; `None` if all rows are equal.
pub(super) fn of_rows(samples: &Samples, rows: &[usize], whitens: bool) -> Option<Center> {
    let mut sums = vec![0.0; samples.hidden_size];
    for &row in rows {
        for (sum, &x) in sums.iter_mut().zip(samples.embedding(row)) {
            *sum += f64::from(x);
        }
    }
    let mean: Vec<f32> = sums.into_iter().map(|sum| (sum / rows.len() as f64) as f32).collect();
    let center = Center { mean, whitening: None };
    if !whitens {
        return Some(center);
    }
    let centred: Vec<Vec<f32>> =
        rows.iter().map(|&row| center.apply(samples.embedding(row))).collect();
    let whitening = Some(whitening(shrunk_covariance(&centred, samples.hidden_size)?)?);
    Some(Center { whitening, ..center })
}

/// Computes the covariance of `centred` rows, shrunk towards a multiple of the identity as far as
/// suits their number; `None` if it is zero.
///
/// # Source
/// O. Ledoit, M. Wolf: A well-conditioned estimator for large-dimensional covariance matrices,
/// 2004, lemmas 3.2 and 3.3.
fn shrunk_covariance(centred: &[Vec<f32>], width: usize) -> Option<Vec<Vec<f64>>> {
    let n = centred.len() as f64;
    let columns: Vec<f32> =
        (0..width).flat_map(|i| centred.iter().map(move |row| row[i])).collect();
    let column = |i: usize| &columns[i * centred.len()..][..centred.len()];
    let products = (0..width).into_par_iter().map(|i| {
        let mut row = vec![0.0; width];
        linear_f64(Isa::detect(), column(i), &columns, &vec![0.0; width], &mut row);
        row.into_iter().map(|product| product / n).collect()
    });
    let mut covariance: Vec<Vec<f64>> = products.collect();
    let square = |x: f64| x * x;
    let scale = (0..width).map(|i| covariance[i][i]).sum::<f64>() / width as f64;
    let all: f64 = covariance.iter().flatten().map(|&x| square(x)).sum();
    let norms = centred.iter().map(|row| row.iter().map(|&x| square(f64::from(x))).sum::<f64>());
    // Squared distances of the row products from their mean, and of the mean from the identity.
    let (noise, distance) =
        ((norms.map(square).sum::<f64>() / n - all) / n, all - width as f64 * square(scale));
    let shrinkage = if distance > noise { (noise / distance).max(0.0) } else { 1.0 };
    for (i, row) in covariance.iter_mut().enumerate() {
        for (j, x) in row.iter_mut().enumerate() {
            *x = (1.0 - shrinkage) * *x + if i == j { shrinkage * scale } else { 0.0 };
        }
    }
    (scale > 0.0).then_some(covariance)
}

/// Returns W `[D, D]`, row-major, with W · `covariance` · Wᵀ = 1: the inverse of the Cholesky
/// factor. Any other W is a rotation of it, which changes no similarity. `None` if there is none.
fn whitening(mut covariance: Vec<Vec<f64>>) -> Option<Vec<f32>> {
    let width = covariance.len();
    // Eliminates below the diagonal, with the identity at the right.
    for (i, row) in covariance.iter_mut().enumerate() {
        row.resize(2 * width, 0.0);
        row[width + i] = 1.0;
    }
    for k in 0..width {
        let (above, below) = covariance.split_at_mut(k + 1);
        let pivot = &above[k][k..=width + k];
        if pivot[0] <= 0.0 {
            return None;
        }
        below.par_iter_mut().with_min_len(64).for_each(|row| {
            let factor = row[k] / pivot[0];
            for (x, y) in row[k..=width + k].iter_mut().zip(pivot) {
                *x -= factor * y;
            }
        });
    }
    let rows = covariance.iter().enumerate().flat_map(|(i, row)| {
        let scale = row[i].sqrt();
        row[width..].iter().map(move |x| (x / scale) as f32)
    });
    Some(rows.collect())
}
