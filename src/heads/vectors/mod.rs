//! Unit vectors: the nearest of a set of rows, k-means clusters, and near duplicates.
//!
//! Similarities are cosines: products in f32 of rows of unit norm. A similarity does not depend on
//! the other rows of a call or on the number of threads.

mod duplicates;
mod k_means;
mod packed_rows;

pub use duplicates::{Duplicate, find_duplicates, find_duplicates_on_gpu};
pub use k_means::k_means;
pub use packed_rows::{BLOCK_ROWS, PackedRows, SearchScratch, normalised, unit_mean};
