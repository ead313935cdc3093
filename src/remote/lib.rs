//! Reads and writes objects at `s3://`, `gs://`, `az://`, `http(s)://` and `hf://datasets/` URLs.
//!
//! ```text
//!  pattern ──list──▶ URLs, sizes, versions ──plan──▶ Object ──ranges, one ahead──▶ Parquet, lines
//!                                                      Upload ◀──parts── exported files
//! ```
//!
//! The other crates are synchronous: they wait here for a small runtime that does all transfers.
//! Objects are read in ranges and never held whole in memory (`file` states the bound). Every
//! answer is checked against the planned size and version; an interrupted one goes on.

mod file;
mod location;
#[cfg(not(feature = "remote"))]
mod no_remote;
#[cfg(feature = "remote")]
mod objects;
mod windows;

pub use file::RemoteFile;
pub use location::{Dataset, Location, ObjectVersion, Snapshot};
#[cfg(not(feature = "remote"))]
pub use no_remote::*;
#[cfg(feature = "remote")]
pub use objects::*;

/// Maximum bytes of a window, and of a buffer that is reserved before its bytes arrive.
const LARGEST_WINDOW: u64 = 8 << 20;
