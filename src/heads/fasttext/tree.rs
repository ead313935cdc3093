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
    /// Builds the tree over labels with these `counts`, in descending order (C++
    /// `HierarchicalSoftmaxLoss::buildTree`).
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

    /// Writes the logarithm of each label's probability to `log_probabilities`. `output` returns the
    /// output of a fork (C++ `HierarchicalSoftmaxLoss::dfs`).
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
