//! Part files: the embeddings ([`EmbeddingRows`]), scores ([`ScoreRows`]) and filter verdicts
//! ([`VerdictRows`]) that a run stores for documents.
//!
//! Invariants: a file gets its final name only when all its bytes are on disk. The rows of a part
//! are in the order of the input. Equal rows give equal bytes.

mod checked;
mod documents;
mod embeddings;
mod findings;
mod scores;

pub use checked::MAKE_AGAIN;
pub use documents::{PartReader, read_documents};
pub use embeddings::{EmbeddingRows, EmbeddingWriter, is_finite_in, read_embeddings, round_to};
pub use embeddings::{EmbeddingScan, embeddings_array, embeddings_type};
pub use findings::{FoundRow, VerdictRows, read_verdicts, write_verdicts};
pub use findings::{PiiRow, write_pii};
pub use scores::{DocumentScore, PartBatch, PartBatches, ScoreRows, read_scores, write_scores};
