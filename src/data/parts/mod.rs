//! Part files: the embeddings, scores and filter verdicts that a run stores for documents.
//!
//! This module owns their files ([`EmbeddingRows`], [`ScoreRows`], [`VerdictRows`]) and checksums.
//! The path of a part, its shard and whether it is done are the business of the run directory.
//!
//! Invariants: a file gets its final name only when all its bytes are on disk. The rows of a part
//! are in the order of the input. Equal rows give equal bytes, and reading returns what was
//! written.
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

use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::input::Content;
use polysift_base::error::{Error, Result};

pub use audit::{PiiRow, write_pii};
pub use checked::MAKE_AGAIN;
pub use documents::{PartReader, read_documents};
pub use embeddings::{EmbeddingRows, EmbeddingWriter, read_embeddings, round_to};
pub use embeddings::{EmbeddingScan, embeddings_array, embeddings_type};
pub use scores::{PartBatch, PartBatches};
pub use scores::{ScoreRows, read_scores, write_refined_scores, write_scores};
pub use verdicts::{VerdictAction, VerdictRows, read_verdicts, write_verdicts};

/// Returns the number of rows of a Parquet file or object, from its footer.
pub fn parquet_rows(path: &Path) -> Result<u64> {
    let content = Content::open_now(path)?;
    let failure = content.failure();
    let reader = SerializedFileReader::new(content)
        .map_err(|e| failure.or(Error::decode(path, "parquet", Box::new(e))))?;
    // The reader rejects a footer with a negative count.
    Ok(reader.metadata().file_metadata().num_rows().unsigned_abs())
}
