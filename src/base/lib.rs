//! Base crate of polysift, which all others but the kernels and the suffix list use.
//!
//! ```text
//!  error  panics  progress      what goes wrong, and how a process stops
//!  io  hub  sample              files, settings of the hub, samples independent of the order
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
