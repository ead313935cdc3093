//! What a run leaves on disk: whole files with their digests, and the two kinds of part files.
//!
//! Owns atomic writing ([`AtomicFile`]), the embedding parts ([`EmbeddingRows`]) and the score
//! parts ([`ScoreRows`]). Does not know where a part lies, which shard it belongs to or whether it
//! is done: that is the run directory's business.
//!
//! Invariants: a file has its final name only when all its bytes are on disk; the rows of a part
//! are in the order of the input; the same rows give the same bytes.

mod atomic;
mod columns;
mod embeddings;
mod scores;

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::error::{Error, Result};

pub use atomic::{AtomicFile, FileStamp, remove_temporaries, stamp, write_atomic};
pub use embeddings::{
    EmbeddingRow, EmbeddingRows, EmbeddingWriter, read_embeddings, round_to, write_embeddings,
};
pub(crate) use embeddings::{embeddings_array, embeddings_type};
pub use scores::{
    ScoreBlock, ScoreRows, read_scores, scan_scores, write_refined_scores, write_scores,
};

/// Rows of a Parquet file, from its footer.
pub fn parquet_rows(path: &Path) -> Result<u64> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let reader =
        SerializedFileReader::new(file).map_err(|e| Error::decode(path, "parquet", Box::new(e)))?;
    // A negative count cannot come out of a footer that was accepted.
    Ok(reader.metadata().file_metadata().num_rows().unsigned_abs())
}
