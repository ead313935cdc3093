//! Logistic regression of classes and ridge regression of grades, as heads and as baselines.

use argmin::core::{CostFunction, Error as ArgminError, Executor, Gradient, State};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;
use rayon::prelude::*;

use super::standardisation::Standardisation;
use crate::head::{Scorer, TrainingRecord};
use crate::train::request::{Trained, TrainingRequest};
use crate::train::samples::{Samples, Splits};
use polysift_base::error::Result;
use polysift_base::metrics::rounded;
use polysift_config::LabelKind;

/// Penalty strengths to choose from: scikit-learn's C, or 1 / alpha of ridge regression. The
/// penalty is |w|² / 2C, added to the sum of the losses.
const INVERSE_PENALTIES: [f64; 6] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
const DEFAULT_INVERSE_PENALTY: f64 = 0.1;
const BLOCK_ROWS: usize = 1024;
const MOMENT_ROWS: usize = 256;
/// Number of pairs of steps and gradients that L-BFGS keeps, and its maximum iterations.
const MEMORY: usize = 10;
const MAX_ITERATIONS: u64 = 1_000;
/// Maximum norm of a gradient of the mean loss that counts as zero.
const TOLERANCE: f64 = 1e-6;

/// Fits the training split with the penalty of the lowest validation loss.
pub(super) fn train(request: &TrainingRequest<'_>, splits: &Splits) -> Result<Trained> {
    let mut objective = Objective::new(request.samples, &splits.train, request.config.label_kind());
    let default = [DEFAULT_INVERSE_PENALTY];
    let tried = if splits.validation.is_empty() { &default[..] } else { &INVERSE_PENALTIES };
    let mut parameters = vec![0.0; request.samples.hidden_size + 1];
    let mut best: Option<(Option<f64>, f64, Scorer)> = None;
    for &inverse_penalty in tried {
        request.stop.check()?;
        objective.penalty = 1.0 / (inverse_penalty * splits.train.len() as f64);
        parameters = objective.minimise(parameters).map_err(|e| request.error(e.to_string()))?;
        let scorer = objective.scorer(&parameters);
        let metrics = request.metrics(&scorer, &splits.validation);
        let loss = metrics.and_then(|metrics| metrics.loss);
        // Without a loss, as with weights of 0, the default is as good as another penalty.
        let is_better = |lowest: Option<f64>| match (loss, lowest) {
            (Some(loss), Some(lowest)) => loss < lowest,
            (None, None) => inverse_penalty == DEFAULT_INVERSE_PENALTY,
            (loss, _) => loss.is_some(),
        };
        if best.as_ref().is_none_or(|(lowest, ..)| is_better(*lowest)) {
            best = Some((loss, inverse_penalty, scorer));
        }
    }
    let (loss, inverse_penalty, scorer) =
        best.ok_or_else(|| request.error("no penalty is to be tried"))?;
    let kept_loss = loss.filter(|_| !splits.validation.is_empty()).map(rounded);
    let inverse_penalty = Some(inverse_penalty);
    let record = TrainingRecord { inverse_penalty, kept_loss, ..TrainingRecord::default() };
    Ok(Trained { scorer, record, references: None })
}

/// Weighted mean loss of standardised samples plus penalty, as a function of the `D` weights and
/// the bias. Grades have a closed optimum; L-BFGS minimises the objective of classes.
struct Objective<'a> {
    samples: &'a Samples,
    rows: &'a [usize],
    standardisation: Standardisation,
    /// Moments for grades, with half the squared error as loss; classes have the cross-entropy.
    moments: Option<Moments>,
    mean_weight: f64,
    /// Factor of half the sum of the squared weights, added to the mean loss.
    penalty: f64,
}

impl<'a> Objective<'a> {
    /// Prepares the training on `rows`, at first without a penalty.
    fn new(samples: &'a Samples, rows: &'a [usize], kind: LabelKind) -> Self {
        let standardisation = Standardisation::of(samples, rows);
        let mean_weight = samples.total_weight(rows) / rows.len().max(1) as f64;
        let moments = (kind == LabelKind::Grades)
            .then(|| Moments::of(samples, rows, &standardisation, mean_weight));
        Self { samples, rows, standardisation, moments, mean_weight, penalty: 0.0 }
    }

    /// Returns the parameters of the lowest value, searched from `start`.
    fn minimise(&self, start: Vec<f64>) -> Result<Vec<f64>, ArgminError> {
        if let Some(moments) = &self.moments {
            return Ok(moments.solve(self.penalty));
        }
        let search = MoreThuenteLineSearch::new();
        let solver = LBFGS::new(search, MEMORY).with_tolerance_grad(TOLERANCE)?;
        let executor = Executor::new(self, solver)
            .configure(|state| state.param(start.clone()).max_iters(MAX_ITERATIONS));
        let result = executor.run()?;
        Ok(result.state().get_best_param().cloned().unwrap_or(start))
    }

    fn scorer(&self, parameters: &[f64]) -> Scorer {
        let (weight, bias) = parameters.split_at(self.samples.hidden_size);
        Scorer::mlp(vec![self.standardisation.fold(weight, bias)])
    }

    /// Returns the weights and the bias for embeddings as they are.
    fn fold(&self, parameters: &[f64]) -> (Vec<f64>, f64) {
        let Standardisation { mean, scale } = &self.standardisation;
        let (weight, bias) = parameters.split_at(mean.len());
        let weight: Vec<f64> = weight.iter().zip(scale).map(|(w, scale)| w / scale).collect();
        let shift: f64 = weight.iter().zip(mean).map(|(w, mean)| w * mean).sum();
        (weight, bias[0] - shift)
    }

    /// Sums the losses and their gradients by the folded weights and bias. Threads sum blocks of
    /// rows, whose sums are added in order, so that the number of threads changes nothing.
    fn sum_losses(&self, parameters: &[f64]) -> (f64, Vec<f64>) {
        let (weight, bias) = self.fold(parameters);
        let block = |rows: &[usize]| {
            let (mut loss, mut gradient) = (0.0, vec![0.0; weight.len() + 1]);
            for &row in rows {
                let inputs = self.samples.embedding(row);
                let products = inputs.iter().zip(&weight).map(|(&x, w)| f64::from(x) * w);
                let logit = products.sum::<f64>() + bias;
                let target = f64::from(self.samples.labels[row]);
                let share = self.samples.weight(row) / self.mean_weight;
                let own = logit.max(0.0) - target * logit + (-logit.abs()).exp().ln_1p();
                loss += share * own;
                let residual = share * (1.0 / (1.0 + (-logit).exp()) - target);
                for (sum, &x) in gradient.iter_mut().zip(inputs) {
                    *sum += residual * f64::from(x);
                }
                gradient[weight.len()] += residual;
            }
            (loss, gradient)
        };
        let blocks: Vec<_> = self.rows.par_chunks(BLOCK_ROWS).map(block).collect();
        let mut sums = (0.0, vec![0.0; weight.len() + 1]);
        for (loss, gradient) in blocks {
            sums.0 += loss;
            for (sum, value) in sums.1.iter_mut().zip(gradient) {
                *sum += value;
            }
        }
        sums
    }
}

impl CostFunction for &Objective<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, parameters: &Vec<f64>) -> Result<f64, ArgminError> {
        let weights = &parameters[..self.samples.hidden_size];
        let squares: f64 = weights.iter().map(|w| w * w).sum();
        Ok(self.sum_losses(parameters).0 / self.rows.len() as f64 + self.penalty * squares / 2.0)
    }
}

impl Gradient for &Objective<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, parameters: &Vec<f64>) -> Result<Vec<f64>, ArgminError> {
        let (_, mut gradient) = self.sum_losses(parameters);
        let (count, width) = (self.rows.len() as f64, self.samples.hidden_size);
        let Standardisation { mean, scale } = &self.standardisation;
        let residuals = gradient[width];
        for (i, value) in gradient[..width].iter_mut().enumerate() {
            let standardised = (*value - mean[i] * residuals) / scale[i];
            *value = standardised / count + self.penalty * parameters[i];
        }
        gradient[width] /= count;
        Ok(gradient)
    }
}

/// Weighted sums over samples, which give the optimum of least squares for any penalty on the
/// weights, by the normal equations in f64.
struct Moments {
    rows: f64,
    /// Number of inputs, `D`.
    width: usize,
    /// Sums of the products of any two of 1, the inputs and the target, `[D + 2, D + 2]`, lower
    /// triangle.
    sums: Vec<f64>,
}

impl Moments {
    /// Sums the standardised embeddings and labels of `rows`; weights are divided by
    /// `mean_weight`. One thread computes each sum in the order of the rows.
    fn of(
        samples: &Samples,
        rows: &[usize],
        standardisation: &Standardisation,
        mean_weight: f64,
    ) -> Self {
        let size = samples.hidden_size + 2;
        let mut sums = vec![0.0; size * size];
        let weighted = |&row: &usize| -> (f64, Vec<f64>) {
            let inputs = standardisation.standardise(samples.embedding(row));
            let target = f64::from(samples.labels[row]);
            let values = [1.0].into_iter().chain(inputs).chain([target]).collect();
            (samples.weight(row) / mean_weight, values)
        };
        for rows in rows.chunks(MOMENT_ROWS) {
            let block: Vec<(f64, Vec<f64>)> = rows.par_iter().map(weighted).collect();
            sums.par_chunks_mut(size).enumerate().for_each(|(i, sums)| {
                for (weight, values) in &block {
                    let weighted = weight * values[i];
                    for (sum, value) in sums[..=i].iter_mut().zip(values) {
                        *sum += weighted * value;
                    }
                }
            });
        }
        Self { rows: rows.len() as f64, width: samples.hidden_size, sums }
    }

    /// Returns the `D` weights and the bias that minimise the mean of half the squared errors plus
    /// half `penalty` times the squared weights.
    fn solve(&self, penalty: f64) -> Vec<f64> {
        let width = self.width;
        let sum = |i: usize, j: usize| self.sums[i * (width + 2) + j];
        let weight = sum(0, 0);
        // Centred inputs need no bias; their products are L Lᵀ (Cholesky).
        let mean: Vec<f64> = (1..=width).map(|i| sum(i, 0) / weight).collect();
        let mut factor = vec![0.0; width * width];
        for i in 0..width {
            for j in 0..=i {
                let (row, other) = (&factor[i * width..][..j], &factor[j * width..][..=j]);
                let known: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                let centred = (sum(i + 1, j + 1) - weight * mean[i] * mean[j]) / self.rows;
                factor[i * width + j] = if i == j {
                    (centred + penalty - known).sqrt()
                } else {
                    (centred - known) / other[j]
                };
            }
        }
        let target = sum(width + 1, 0) / weight;
        let with_target =
            |i: usize| (sum(width + 1, i + 1) - weight * mean[i] * target) / self.rows;
        let mut solution: Vec<f64> = (0..width).map(with_target).collect();
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

#[cfg(test)]
mod tests;
