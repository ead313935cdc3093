//! A head on GPUs, in place of the products of [`super::scorer`] on the CPU.

use std::sync::Mutex;

use polysift_kernels::cuda::{Device, RowScorer};

use super::scorer::Scorer;
use crate::error::Result;
use crate::panics::lock;

/// The weights of a head on every GPU that scores, each for one thread at a time.
#[derive(Debug)]
pub(super) struct OnGpus(Vec<Mutex<RowScorer>>);

impl OnGpus {
    /// Takes the weights of `scorer` to `devices`, of which there is at least one.
    pub(super) fn new(scorer: &Scorer, devices: &[Device]) -> Result<Self> {
        let on_gpu = |device| match scorer {
            Scorer::Mlp(layers) => {
                let layers: Vec<(&[f32], &[f32])> =
                    layers.iter().map(|l| (l.weight.as_slice(), l.bias.as_slice())).collect();
                RowScorer::mlp(device, &layers)
            }
            Scorer::Cosine(references) => {
                RowScorer::cosine(device, &references.values, references.hidden_size)
            }
        };
        let scorers = devices.iter().map(|device| on_gpu(device).map(Mutex::new));
        Ok(Self(scorers.collect::<Result<_, _>>()?))
    }

    /// As [`Scorer::outputs`], of `rows` `[n, D]`.
    pub(super) fn outputs(&self, rows: &[f32]) -> Result<Vec<f64>> {
        let gpu = rayon::current_thread_index().unwrap_or(0) % self.0.len();
        // A scorer holds no state between calls that a panic could have left half done.
        let mut scorer = lock(&self.0[gpu]);
        Ok(scorer.outputs(rows)?)
    }
}
