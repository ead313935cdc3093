//! Trains heads on embeddings: MLPs, and logistic and ridge regression.

mod linear;
mod loss;
mod mlp;
mod network;
mod standardisation;

use super::request::{Trained, TrainingRequest};
use super::samples::Splits;
use polysift_base::error::Result;
use polysift_config::HeadKind;

/// Trains a logistic or ridge head if the request is for one, else an MLP, on the training split.
pub(super) fn train(request: &TrainingRequest<'_>, splits: &Splits) -> Result<Trained> {
    match request.config.kind {
        HeadKind::Logistic | HeadKind::Ridge => linear::train(request, splits),
        _ => mlp::train(request, splits),
    }
}
