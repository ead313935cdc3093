//! What every device asks of a batch.

use super::EncoderInfo;
use crate::batch::PackedBatch;
use crate::error::{Error, Result};

impl EncoderInfo {
    /// [`Error::Shape`] unless the encoder takes `batch` and `embeddings` has room for its rows.
    pub(super) fn check(&self, batch: &PackedBatch, embeddings: &[f32]) -> Result<()> {
        let fail = |reason: String| Err(Error::shape("encode", reason));
        let &Self { hidden_size, max_tokens, vocab_size, .. } = self;
        let starts = &batch.cu_seqlens;
        let whole = starts.first() == Some(&0)
            && starts.last().is_some_and(|&end| end as usize == batch.num_tokens());
        if !whole || !starts.is_sorted() {
            return fail("cu_seqlens does not run from 0 to the number of tokens".into());
        }
        let needed = batch.num_sequences() * hidden_size;
        if embeddings.len() != needed {
            return fail(format!("{} values for embeddings, not {needed}", embeddings.len()));
        }
        for i in 0..batch.num_sequences() {
            let ids = batch.sequence(i);
            if ids.is_empty() || ids.len() > max_tokens {
                let length = ids.len();
                return fail(format!("sequence {i} has {length} tokens, not 1 to {max_tokens}"));
            }
            if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
                return fail(format!("token id {id} in sequence {i}; there are {vocab_size}"));
            }
        }
        Ok(())
    }
}
