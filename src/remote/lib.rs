//! Objects of stores: `s3://`, `gs://`, `az://`, `http(s)://`, and `hf://datasets/` on a hub.
//!
//! ```text
//!  pattern ──list──▶ URLs, sizes, versions ──plan──▶ Object ──ranges, one ahead──▶ Parquet, lines
//!                                                      Upload ◀──parts── exported files
//! ```
//!
//! Owns the clients, their configuration (environment variables of each store), retries, and how much
//! of an object is in memory. The other crates are synchronous: they wait here for a small
//! runtime that does all transfers.
//!
//! Reading is by ranges: an object is never held whole (see `file` for the bound), every answer is
//! checked against the size and the version that were planned, and one that breaks off goes on
//! where it stopped.
//!
//! ```
//! use polysift_base::hub::HubSettings;
//!
//! // The hub of `hf://datasets/` URLs, for the whole process.
//! polysift_remote::set_hub(&HubSettings::from_env(|name| std::env::var(name).ok()));
//! ```

mod listing;
#[cfg(not(feature = "remote"))]
mod no_remote;
#[cfg(feature = "remote")]
mod objects;

pub use listing::{ListedObject, ObjectFilter, ObjectVersion, Snapshot};
#[cfg(not(feature = "remote"))]
pub use no_remote::*;
#[cfg(feature = "remote")]
pub use objects::*;
