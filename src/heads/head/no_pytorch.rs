//! PyTorch's files in a build without the feature `train`: known, and neither read nor written.

use super::weights::{HeadWeights, KnownLayers, NamedTensor};

const WITHOUT: &str = "is a file of PyTorch, and this polysift was built without the feature `train`; \
                       build it with `cargo build --release --features train`";

/// Reads nothing; the error text says why.
pub(super) fn read(_: &[u8], _: KnownLayers) -> Result<HeadWeights, String> {
    Err(WITHOUT.into())
}

/// Writes nothing; the error text says why.
pub(super) fn to_bytes(_: &[NamedTensor<'_>]) -> Result<Vec<u8>, String> {
    Err(WITHOUT.into())
}
