//! Objects of stores, in builds with the feature `remote`.

mod client;
mod download;
mod explain;
mod hub;
mod key;
mod list;
mod object;
mod publish;
mod repository;
mod upload;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use client::Transfer;
pub use client::set_hub;
pub use hub::pin_revision;
pub use list::list;
pub use object::{Object, put, stat};
pub use publish::{list_published, publish, upload_file};
pub use repository::{RepoType, Repository};
pub use upload::{check_destination, upload};
