//! Objects of stores: `s3://`, `gs://`, `az://`, `http(s)://`, and `hf://datasets/` on a hub.
//!
//! ```text
//!  pattern ──list──▶ URLs, sizes, versions ──plan──▶ Object ──ranges, one ahead──▶ Parquet, lines
//!                                                      Upload ◀──parts── exported files
//! ```
//!
//! Owns the clients, their configuration (environment variables of each store), retries, and how much
//! of an object is in memory. The rest of the crate is synchronous: it waits here for a small
//! runtime that does all transfers.
//!
//! Reading is by ranges: an object is never held whole (see `file` for the bound), every answer is
//! checked against the size and the version that were planned, and one that breaks off goes on
//! where it stopped.
//!
//! ```
//! use polysift::{hub::HubSettings, remote};
//!
//! // The hub of `hf://datasets/` URLs, for the whole process.
//! remote::set_hub(&HubSettings::from_env(|name| std::env::var(name).ok()));
//! ```

mod client;
mod download;
mod explain;
mod file;
mod hub;
mod key;
mod list;
mod listing;
mod location;
mod object;
mod repository;
mod upload;
mod windows;
mod wire;

#[cfg(test)]
mod tests;

pub use client::set_hub;
pub(crate) use file::RemoteFile;
pub(crate) use hub::{Dataset, dataset};
pub(crate) use list::list;
#[cfg(feature = "datasets")]
pub(crate) use listing::Snapshot;
pub(crate) use listing::{ListedObject, ObjectFilter, ObjectVersion};
pub(crate) use location::Location;
pub(crate) use object::{Object, create, replace, stat};
pub(crate) use repository::{RepoType, Repository};
pub(crate) use upload::{Upload, check_destination};
