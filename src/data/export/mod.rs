//! The export: every input column, unchanged, beside embeddings, scores and retention rates.
//! Callers pass record batches that hold only the rows to export.
//!
//! Invariants: no input column is lost or changes its type. The bytes of the files depend on the
//! rows and the settings, not on how the rows were split into batches.

mod columns;
mod writer;

pub use columns::{EMBEDDINGS, ExportColumns, ExportSpec, PII_COUNT, PROVENANCE};
pub use writer::{ExportWriter, ExportedFile, WriterOptions};
