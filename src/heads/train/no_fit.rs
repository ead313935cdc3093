//! Stand-in for training on embeddings without the feature `train`: an error that names it.

use super::request::{Trained, TrainingRequest};
use super::samples::Splits;
use polysift_base::error::{Error, Result};
use polysift_base::progress::Stop;

pub(super) fn train(request: &TrainingRequest<'_>, _: &Splits, _: &Stop) -> Result<Trained> {
    Err(Error::without_feature(format!("heads.{}.kind", request.name), "train"))
}
