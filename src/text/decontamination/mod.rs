//! Decontamination: finds documents that contain n-grams of benchmark items.
//!
//! ```text
//!  items ──IndexBuilder──▶ BuiltIndex ──▶ benchmarks.idx ──▶ Index
//!                                                              │
//!  document ────────────────────────────────────────────────▶ scan ──▶ Hits ──▶ Rule, cut
//! ```
//!
//! A hit is certain: n-grams with equal hashes are compared token by token.

mod build;
mod character;
mod contractions;
mod datatrove;
mod hash;
mod index;
mod open_word;
mod prefilter;
mod rule;
mod scan;
mod settings;
mod tokens;
mod words;

pub use build::{BenchmarkItem, BuiltIndex, IndexBuilder};
pub use index::{Index, IndexedItem, Posting, TaskCounts};
pub use rule::{Rule, cut, cut_by_both};
pub use scan::{Hit, Hits, ItemCoverage};
pub use settings::{IndexSettings, ItemPart, Normalisation, Numbers};
