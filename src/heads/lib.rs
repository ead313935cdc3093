//! Heads ([`head`], [`fasttext`]) score embeddings or texts; [`train`] trains them. [`vectors`]
//! finds embeddings that are close to each other.

pub mod fasttext;
pub mod head;
pub mod train;
pub mod vectors;
