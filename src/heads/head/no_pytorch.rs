//! Stand-in for PyTorch's files without the feature `train`: reading and writing are errors.

use super::weights::{HeadWeights, KnownLayers, NamedTensor};

const WITHOUT: &str = "is a file of PyTorch, and this polysift was built without the feature `train`; \
                       build it with `cargo build --release --features train`";

pub(super) fn read(_: &[u8], _: KnownLayers) -> Result<HeadWeights, String> {
    Err(WITHOUT.into())
}

pub(super) fn to_bytes(_: &[NamedTensor<'_>]) -> Result<Vec<u8>, String> {
    Err(WITHOUT.into())
}
