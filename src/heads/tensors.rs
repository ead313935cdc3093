//! Writes safetensors files.

use std::collections::HashMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

use polysift_base::error::{Error, Result};

/// Returns the little-endian bytes of `values`.
pub(crate) fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns a file of f32 tensors (names, shapes and values) and `metadata`. Equal tensors give
/// equal bytes if the metadata has at most one key: safetensors writes it in the order of a hash
/// map.
///
/// # Errors
/// [`Error::Shape`], which does not happen.
pub(crate) fn to_file(
    tensors: &[(String, Vec<usize>, &[f32])],
    metadata: HashMap<String, String>,
) -> Result<Vec<u8>> {
    let failed = |e: SafeTensorError| Error::shape("safetensors file", e.to_string());
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(.., values)| le_bytes(values)).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name, view))
    });
    let views = views.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    safetensors::serialize(views, Some(metadata)).map_err(failed)
}
