//! Heads ([`head`], [`fasttext`], [`lexical`]) score embeddings or texts; [`train`] trains them.

pub mod fasttext;
pub mod head;
pub mod lexical;
mod tensors;
pub mod train;
