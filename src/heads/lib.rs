//! Heads ([`head`], [`fasttext`]) score embeddings or texts; [`train`] trains them.

pub mod fasttext;
pub mod head;
mod tensors;
pub mod train;
