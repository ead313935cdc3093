//! Least squares with a penalty on the weights, solved by the normal equations in f64.

use rayon::prelude::*;

use super::super::standardisation::Standardisation;
use crate::train::samples::Samples;

const BLOCK_ROWS: usize = 256;

/// Weighted sums over samples of `D` inputs and a target, which give the optimum for any penalty.
pub(super) struct Moments {
    rows: f64,
    weight: f64,
    /// Sums of the inputs, `[D]`, and of the targets.
    inputs: Vec<f64>,
    target: f64,
    /// Sums of input products, `[D, D]`, lower triangle, and of inputs times target, `[D]`.
    products: Vec<f64>,
    with_target: Vec<f64>,
}

impl Moments {
    /// Sums the standardised embeddings and labels of `rows`; weights are divided by
    /// `mean_weight`. One thread computes each sum in the order of the rows.
    pub(super) fn of(
        samples: &Samples,
        rows: &[usize],
        standardisation: &Standardisation,
        mean_weight: f64,
    ) -> Self {
        let width = samples.hidden_size;
        let of_row =
            |&row: &usize| (samples.weight(row) / mean_weight, f64::from(samples.labels[row]));
        let mut sums = Self {
            rows: rows.len() as f64,
            weight: 0.0,
            inputs: vec![0.0; width],
            target: 0.0,
            products: vec![0.0; width * width],
            with_target: vec![0.0; width],
        };
        let inputs = |&row: &usize| standardisation.of_row(samples.embedding(row)).collect();
        for rows in rows.chunks(BLOCK_ROWS) {
            let block: Vec<Vec<f64>> = rows.par_iter().map(inputs).collect();
            let weights: Vec<(f64, f64)> = rows.iter().map(of_row).collect();
            let products = sums.products.par_chunks_mut(width.max(1)).enumerate();
            products.for_each(|(i, sums)| {
                for (inputs, (weight, _)) in block.iter().zip(&weights) {
                    let weighted = weight * inputs[i];
                    for (sum, input) in sums[..=i].iter_mut().zip(inputs) {
                        *sum += weighted * input;
                    }
                }
            });
            for (inputs, (weight, target)) in block.iter().zip(&weights) {
                for (at, input) in inputs.iter().enumerate() {
                    sums.inputs[at] += weight * input;
                    sums.with_target[at] += weight * target * input;
                }
                sums.weight += weight;
                sums.target += weight * target;
            }
        }
        sums
    }

    /// Returns the `D` weights and the bias that minimise the mean of half the squared errors plus
    /// half `penalty` times the squared weights.
    pub(super) fn solve(&self, penalty: f64) -> Vec<f64> {
        let width = self.inputs.len();
        // Centred inputs need no bias; their products are L Lᵀ (Cholesky).
        let mean: Vec<f64> = self.inputs.iter().map(|sum| sum / self.weight).collect();
        let mut factor = self.products.clone();
        for i in 0..width {
            for j in 0..=i {
                let (row, other) = (&factor[i * width..][..=j], &factor[j * width..][..=j]);
                let sum: f64 = row[..j].iter().zip(&other[..j]).map(|(a, b)| a * b).sum();
                let centred = (row[j] - self.weight * mean[i] * mean[j]) / self.rows;
                factor[i * width + j] = if i == j {
                    (centred + penalty - sum).sqrt()
                } else {
                    (centred - sum) / other[j]
                };
            }
        }
        let target = self.target / self.weight;
        let mut solution: Vec<f64> = (self.with_target.iter().zip(&mean))
            .map(|(sum, mean)| (sum - self.weight * mean * target) / self.rows)
            .collect();
        for i in 0..width {
            let row = &factor[i * width..][..=i];
            let sum: f64 = row[..i].iter().zip(&solution).map(|(a, b)| a * b).sum();
            solution[i] = (solution[i] - sum) / row[i];
        }
        for i in (0..width).rev() {
            let value = solution[i] / factor[i * width + i];
            solution[i] = value;
            for (j, above) in solution[..i].iter_mut().enumerate() {
                *above -= value * factor[i * width + j];
            }
        }
        let bias = target - solution.iter().zip(&mean).map(|(w, mean)| w * mean).sum::<f64>();
        solution.push(bias);
        solution
    }
}
