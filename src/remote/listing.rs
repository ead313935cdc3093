//! What a store is asked for and what it has. No network.

use std::path::PathBuf;

/// Which keys a search is after.
pub trait ObjectFilter {
    /// Whether keys that begin with `folder`, which ends with a slash, may be wanted.
    fn enters(&self, folder: &str) -> bool;
    /// Whether `key` is wanted.
    fn takes(&self, key: &str) -> bool;
}

/// What identifies one content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Size in bytes.
    pub bytes: u64,
    /// The store's name of the content (its ETag, else when it was changed; the commit on a hub);
    /// `None` where it has none.
    pub tag: Option<String>,
}

/// An object that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key, from the root of the store on.
    pub key: String,
    /// Its version now.
    pub version: ObjectVersion,
}

/// One commit of a repository of a hub.
pub struct Snapshot {
    /// Its hash.
    pub commit: String,
    /// Where the cache has its files, with the same paths below.
    pub folder: PathBuf,
    /// Paths of all files of the repository; `None` offline, when only the folder is known.
    pub files: Option<Vec<String>>,
}
