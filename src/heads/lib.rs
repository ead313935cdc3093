//! Heads, which score embeddings or texts ([`head`], [`fasttext`], [`lexical`]), and their training ([`train`]).

pub mod fasttext;
pub mod head;
pub mod lexical;
pub mod train;
