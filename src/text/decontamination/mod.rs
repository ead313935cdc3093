//! Decontamination: finds documents that contain n-grams of benchmark items.
//!
//! ```text
//!  items ──IndexBuilder──▶ benchmarks.idx ──▶ Index
//!                                               │
//!  document ─────────────────────────────────▶ scan ──▶ Hits ──▶ cut
//! ```
//!
//! A hit is certain: n-grams with equal hashes are compared token by token.

mod build;
mod character;
mod contractions;
mod cut;
mod datatrove;
mod hash;
mod index;
mod open_word;
mod prefilter;
mod scan;
mod settings;
mod tokens;
mod words;

pub use build::{BenchmarkItem, IndexBuilder};
pub use cut::{cut, cut_by_both};
pub use index::{Index, IndexedItem, Posting, TaskCounts};
pub use scan::{Hit, Hits};
pub use settings::{IndexSettings, ItemPart, Normalisation, Numbers};
