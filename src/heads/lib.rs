//! Heads ([`head`]) score embeddings or texts; [`train`] trains them. [`vectors`] finds embeddings
//! that are close to each other.

pub mod head;
pub mod train;
pub mod vectors;
