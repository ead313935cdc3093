//! Replaces `objects` in builds without the feature `remote`: every URL and hub id is an error.

#![allow(
    dead_code,
    unused_variables,
    missing_docs, // the module that it replaces has them
    clippy::needless_pass_by_value,
    reason = "what is never made is never looked at"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::{FileStamp, FirstError, NewFile, redacted};

use crate::location::{Dataset, KeyTest, Location, ObjectVersion, Snapshot};

/// Defines functions that refuse the place that their body names.
macro_rules! refused {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $made:ty { $place:expr })*) => {
        $(pub fn $name($($argument: $type),*) -> Result<$made> { without($place) })*
    };
}

/// Defines methods of a type that holds an [`Infallible`] and so is never created.
macro_rules! never {
    ($of:ty: $(fn $name:ident($($argument:ident: $type:ty),*) -> $made:ty;)*) => {
        impl $of {
            $(pub fn $name(&self, $($argument: $type),*) -> $made { match self.0 {} })*
        }
    };
}

fn without<T>(name: &str) -> Result<T> {
    Err(Error::without_feature(redacted(name), "remote"))
}

/// Does nothing, because there is no hub.
pub fn set_hub(_settings: &HubSettings) {}

refused! {
    fn check_destination(url: &str) -> () { url }
    fn stat(url: &str) -> ObjectVersion { url }
    fn put(url: &str, content: &str, replaces: bool) -> Option<Bytes> { url }
    fn upload_file(from: &Path, size: u64, url: &str) -> String { url }
    fn publish(to: &str, files: &[(&str, &FileStamp)]) -> () { to }
    fn list_published(to: &str) -> BTreeMap<String, ObjectVersion> { to }
    fn upload(path: &Path, failure: &FirstError) -> Box<dyn NewFile> { &path.to_string_lossy() }
    fn pin_revision(location: &Location) -> Dataset { &location.url() }
    fn list(at: &Location, enters: KeyTest<'_>, takes: KeyTest<'_>)
        -> BTreeMap<String, ObjectVersion> { &at.url() }
}

#[derive(Debug, Clone)]
pub struct Object(Infallible);

impl Object {
    pub fn new(url: &Path, _version: ObjectVersion) -> Result<Self> {
        without(&url.to_string_lossy())
    }
}

never! { Object:
    fn size() -> u64;
    fn read(range: Range<u64>) -> Result<Bytes>;
    fn start_read(range: Range<u64>) -> Result<Transfer<Bytes>>;
}

#[derive(Debug)]
pub struct Transfer<T>(Infallible, T);

never! { Transfer<Bytes>:
    fn wait() -> Result<Bytes>;
}

pub enum RepoType {
    Dataset,
    Model,
}

pub struct Repository<'a>(Infallible, &'a str);

impl<'a> Repository<'a> {
    pub fn new(
        _kind: RepoType,
        id: &'a str,
        _revision: Option<&'a str>,
        _settings: &'a HubSettings,
    ) -> Result<Self> {
        without(id)
    }
}

never! { Repository<'_>:
    fn get(file: &str) -> Result<Option<PathBuf>>;
    fn missing_error(file: &str) -> Error;
    fn snapshot() -> Result<Snapshot>;
    fn note_commit(commit: &str) -> Result<()>;
}
