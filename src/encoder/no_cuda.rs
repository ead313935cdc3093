//! The encoder on GPUs of a build without the feature `cuda`: there is none.

use std::convert::Infallible;

use polysift_kernels::cuda::{CudaError, Device};

use super::{Encoder, EncoderInfo, ModelFiles};
use crate::batch::PackedBatch;
use crate::config::EncoderConfig;
use crate::error::Result;
use crate::progress::Stop;

/// See the module.
pub struct CudaEncoder(Infallible);

impl CudaEncoder {
    /// Loads no model.
    ///
    /// # Errors
    /// [`CudaError::NotBuilt`].
    pub fn load(_: &ModelFiles, _: &EncoderConfig, _: &[Device]) -> Result<Self> {
        Err(CudaError::NotBuilt.into())
    }
}

impl Encoder for CudaEncoder {
    fn info(&self) -> &EncoderInfo {
        match self.0 {}
    }

    fn encode(&self, _: &PackedBatch, _: &mut [f32], _: &Stop) -> Result<()> {
        match self.0 {}
    }
}
