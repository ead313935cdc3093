//! PyTorch's files in a build without the feature `train`: known, and neither read nor written.

use std::convert::Infallible;

use super::weights::{NamedTensor, Stored, TensorFile};

const WITHOUT: &str = "is a file of PyTorch, and this polysift was built without the feature `train`; \
                       build it with `cargo build --release --features train`";

/// Whether `bytes` are those of a zip file.
pub(super) fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

/// Whether `bytes` are a file of PyTorch's older format; those are not told apart here.
pub(super) fn is_legacy(_bytes: &[u8]) -> bool {
    false
}

/// The tensors of a PyTorch file; there are none.
pub(super) struct StateDict(Infallible);

impl StateDict {
    /// Reads nothing; the error text says why.
    pub(super) fn open(_bytes: &[u8]) -> Result<Self, String> {
        Err(WITHOUT.into())
    }
}

impl<'a> TensorFile<'a> for StateDict {
    fn names(&self) -> Vec<String> {
        match self.0 {}
    }

    fn stored(&mut self, _name: &str) -> Result<Option<Stored<'a>>, String> {
        match self.0 {}
    }
}

/// Writes nothing; the error text says why.
pub(super) fn to_bytes(_tensors: &[NamedTensor<'_>]) -> Result<Vec<u8>, String> {
    Err(WITHOUT.into())
}
