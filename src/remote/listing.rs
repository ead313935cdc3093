//! What a store is asked for and what it has. No network.

use std::path::PathBuf;

/// Which keys a search is after.
pub(crate) trait ObjectFilter {
    /// Whether keys that begin with `folder`, which ends with a slash, may be wanted.
    fn enters(&self, folder: &str) -> bool;
    /// Whether `key` is wanted.
    fn takes(&self, key: &str) -> bool;
}

/// What identifies one content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectVersion {
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// The store's name of the content (its ETag, else when it was changed; the commit on a hub);
    /// `None` where it has none.
    pub(crate) tag: Option<String>,
}

/// An object that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedObject {
    /// Its key, from the root of the store on.
    pub(crate) key: String,
    /// Its version now.
    pub(crate) version: ObjectVersion,
}

/// One commit of a repository of a hub.
pub(crate) struct Snapshot {
    /// Its hash.
    pub(crate) commit: String,
    /// Where the cache has its files, with the same paths below.
    pub(crate) folder: PathBuf,
    /// Paths of all files of the repository; `None` offline, when only the folder is known.
    #[cfg_attr(not(feature = "datasets"), allow(dead_code, reason = "data sets need it"))]
    pub(crate) files: Option<Vec<String>>,
}
