//! The Huffman tree of hierarchical softmax.

use std::io;

use super::source::broken;

/// Count of a node that is not built yet; larger than all counts (C++ `1e15`).
const UNBUILT: i64 = 1_000_000_000_000_000;

/// fastText's logarithm of a probability (C++ `std_log`).
pub(super) fn std_log(probability: f32) -> f32 {
    (f64::from(probability) + 1e-5).ln() as f32
}

/// Forks of the tree over the labels, from the leaves to the root.
#[derive(Debug, Clone, Default)]
pub(super) struct LabelTree {
    num_labels: usize,
    /// Nodes below each fork. A node below `num_labels` is that label, another one the fork
    /// `node - num_labels`, which comes earlier.
    forks: Vec<[usize; 2]>,
}

impl LabelTree {
    /// Builds the tree over labels with descending `counts` (C++ `buildTree`).
    pub(super) fn new(counts: &[i64]) -> io::Result<Self> {
        let num_labels = counts.len();
        let total = counts.iter().try_fold(0_i64, |total, &count| {
            total.checked_add(count).filter(|&total| count >= 0 && total < UNBUILT)
        });
        if total.is_none() {
            return broken("has labels with impossible counts");
        }
        let mut built = counts.to_vec();
        let (mut unused_labels, mut next_fork) = (num_labels, num_labels);
        let mut forks = Vec::new();
        for _ in 1..num_labels {
            let mut rarest = || {
                let fork_count = built.get(next_fork).copied().unwrap_or(UNBUILT);
                if unused_labels > 0 && built[unused_labels - 1] < fork_count {
                    unused_labels -= 1;
                    unused_labels
                } else {
                    next_fork += 1;
                    next_fork - 1
                }
            };
            let fork = [rarest(), rarest()];
            built.push(built[fork[0]] + built[fork[1]]);
            forks.push(fork);
        }
        Ok(Self { num_labels, forks })
    }

    /// Returns the log-odds of `label`, without the constant that fastText adds to probabilities.
    /// `output` returns the output of a fork.
    pub(super) fn log_odds(&self, output: impl Fn(usize) -> f32, label: usize) -> f64 {
        let log_sigmoid = |x: f64| x.min(0.0) - (-x.abs()).exp().ln_1p();
        let (mut node, mut log_probability, mut log_rest) = (label, 0.0, f64::NEG_INFINITY);
        // The nodes below a fork come before it, so one pass goes from the label to the root.
        for (fork, [left, right]) in self.forks.iter().enumerate() {
            if node != *left && node != *right {
                continue;
            }
            let of_fork = f64::from(output(fork));
            let x = if node == *right { of_fork } else { -of_fork };
            let misses = log_probability + log_sigmoid(-x);
            let largest = log_rest.max(misses);
            log_rest = largest + ((log_rest - largest).exp() + (misses - largest).exp()).ln();
            log_probability += log_sigmoid(x);
            node = self.num_labels + fork;
        }
        log_probability - log_rest
    }

    /// Writes the log-probabilities of the labels; `output` returns that of a fork (C++ `dfs`).
    pub(super) fn log_probabilities(
        &self,
        output: impl Fn(usize) -> f32,
        log_probabilities: &mut Vec<f32>,
    ) {
        log_probabilities.resize(self.num_labels + self.forks.len(), 0.0);
        for (fork, [left, right]) in self.forks.iter().enumerate().rev() {
            let of_fork = log_probabilities[self.num_labels + fork];
            let probability = (1.0 / f64::from(1.0 + (-output(fork)).exp())) as f32;
            let rest = (1.0 - f64::from(probability)) as f32;
            log_probabilities[*left] = of_fork + std_log(rest);
            log_probabilities[*right] = of_fork + std_log(probability);
        }
        log_probabilities.truncate(self.num_labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_odds_are_those_of_the_product_of_the_forks() -> io::Result<()> {
        // Forks: [2, 1] of the rarest labels, then [that fork, 0].
        let tree = LabelTree::new(&[9, 3, 2])?;
        let outputs = [0.7_f32, -1.3];
        let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        let [p0, p1] = outputs.map(sigmoid);
        for (label, p) in [p1, (1.0 - p1) * p0, (1.0 - p1) * (1.0 - p0)].into_iter().enumerate() {
            let log_odds = tree.log_odds(|fork| outputs[fork], label);
            assert!((log_odds - (p / (1.0 - p)).ln()).abs() < 1e-12, "{label}: {log_odds}");
        }
        Ok(())
    }

    #[test]
    fn a_certain_label_has_finite_log_odds_that_grow_with_the_output() -> io::Result<()> {
        let tree = LabelTree::new(&[9, 3])?;
        let of = |output: f32| tree.log_odds(|_| output, tree.forks[0][1]);
        assert!(of(12.0) < of(12.5) && of(90.0) < of(91.0) && of(91.0).is_finite());
        Ok(())
    }
}
