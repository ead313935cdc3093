//! Types for listings of stores. They need no network.

use std::path::PathBuf;

/// Selects keys in a listing.
pub trait ObjectFilter {
    /// Returns true if keys that begin with `folder`, which ends with a slash, may be wanted.
    fn enters(&self, folder: &str) -> bool;
    /// Returns true if `key` is wanted.
    fn takes(&self, key: &str) -> bool;
}

/// Identifies one content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Size in bytes.
    pub bytes: u64,
    /// The store's name of the content: its ETag, or else its time of change; on a hub, the commit.
    /// `None` if the store has none.
    pub tag: Option<String>,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// The object's key, from the root of the store.
    pub key: String,
    /// The object's current version.
    pub version: ObjectVersion,
}

/// A commit of a repository on a hub.
pub struct Snapshot {
    /// Hash of the commit.
    pub commit: String,
    /// Folder of the commit's files in the cache; their paths below it are as in the repository.
    pub folder: PathBuf,
    /// Paths of all files in the repository; `None` offline, when only the folder is known.
    pub files: Option<Vec<String>>,
}
