//! Objects of stores, in builds with the feature `remote`.

mod client;
mod download;
mod explain;
mod file;
mod hub;
mod key;
mod list;
mod location;
mod object;
mod repository;
mod upload;
mod windows;
mod wire;

#[cfg(test)]
mod tests;

pub use client::set_hub;
pub use file::RemoteFile;
pub use hub::{Dataset, dataset};
pub use list::list;
pub use location::Location;
pub use object::{Object, create, replace, stat};
pub use repository::{RepoType, Repository};
pub use upload::{Upload, check_destination};
