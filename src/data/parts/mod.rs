//! Part files: the embeddings ([`EmbeddingRows`]), scores ([`ScoreRows`]) and filter verdicts
//! ([`VerdictRows`]) that a run stores for documents.
//!
//! Invariants: a file gets its final name only when all its bytes are on disk. The rows of a part
//! are in the order of the input. Equal rows give equal bytes.
//!
//! ```
//! use polysift_data::input::DocumentInfo;
//! use polysift_data::parts::{ScoreRows, read_scores, write_scores};
//!
//! let folder = tempfile::tempdir()?;
//! let document = |row, id, num_bytes| {
//!     DocumentInfo { row, id, language: "deu_Latn", num_bytes, num_tokens: None }
//! };
//! let rows = ScoreRows {
//!     documents: [document(0, "a", 7), document(1, "b", 0)].into_iter().collect(),
//!     logits: vec![Some(0.0), None],
//!     scores: vec![Some(0.5), None], // the second has no text
//! };
//! let part = folder.path().join("part-00000.parquet");
//! write_scores(&part, &rows, 3)?;
//! assert_eq!(read_scores(&part)?, rows);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit;
mod checked;
mod documents;
mod embeddings;
mod scores;
mod verdicts;

pub use audit::{PiiRow, write_pii};
pub use checked::MAKE_AGAIN;
pub use documents::{PartReader, read_documents};
pub use embeddings::{EmbeddingRows, EmbeddingWriter, read_embeddings, round_to};
pub use embeddings::{EmbeddingScan, embeddings_array, embeddings_type};
pub use scores::{PartBatch, PartBatches};
pub use scores::{ScoreRows, read_scores, write_refined_scores, write_scores};
pub use verdicts::{VerdictAction, VerdictRows, read_verdicts, write_verdicts};
