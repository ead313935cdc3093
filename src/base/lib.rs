//! The lowest crate of polysift, which every other one uses: the error type, progress and stops, files that appear
//! whole or not at all, metrics, samples and names of languages.
//!
//! ```text
//!  error  panics  progress      what goes wrong, and how a process stops
//!  io  hub  sample              files, settings of the hub, samples that do not depend on the order
//!  batch  metrics  language     packing of sequences, measures of classifiers, names of languages
//! ```

pub mod batch;
pub mod error;
pub mod hub;
pub mod io;
pub mod language;
pub mod metrics;
pub mod panics;
pub mod progress;
pub mod sample;

pub use error::{Error, Result};
