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

/// Trains the request's kind of head, if it is not linear an MLP, on the training split.
pub(super) fn train(request: &TrainingRequest<'_>, splits: &Splits) -> Result<Trained> {
    match request.config.kind {
        HeadKind::Logistic | HeadKind::Ridge => linear::train(request, splits),
        _ => mlp::train(request, splits),
    }
}
