//! Writes safetensors files.

use std::collections::HashMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use polysift_base::error::{Error, Result};

/// Name, type, shape and little-endian values of a tensor to be written.
pub(crate) type OwnedTensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// Returns a tensor of f32.
pub(crate) fn of_floats(
    (name, shape, values): (impl Into<String>, Vec<usize>, &[f32]),
) -> OwnedTensor {
    (name.into(), Dtype::F32, shape, le_bytes(values))
}

/// Returns the little-endian bytes of `values`.
pub(crate) fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns a file of `tensors` and `metadata`. Equal tensors give equal bytes if the metadata has
/// at most one key: safetensors writes it in the order of a hash map.
///
/// # Errors
/// [`Error::Shape`], which does not happen.
pub(crate) fn to_file(
    tensors: &[OwnedTensor],
    metadata: Option<HashMap<String, String>>,
) -> Result<Vec<u8>> {
    let failed = |e: SafeTensorError| Error::shape("safetensors file", e.to_string());
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name, view))
    });
    let views = views.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    safetensors::serialize(views, metadata).map_err(failed)
}
