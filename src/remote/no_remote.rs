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
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::{FileStamp, FirstError, redacted};

use crate::location::{Dataset, ListedObject, Location, ObjectFilter, ObjectVersion, Snapshot};

/// No upload is ever made, so that any file will do for one.
pub use polysift_base::io::AtomicFile as Upload;

/// Defines methods of a type that holds an [`Infallible`] and so is never created.
macro_rules! never {
    ($of:ty: $(fn $name:ident($($argument:ident: $type:ty),*) -> $made:ty;)*) => {
        impl $of {
            $(pub fn $name(&self, $($argument: $type),*) -> $made { match self.never {} })*
        }
    };
}

fn without<T>(name: &str) -> Result<T> {
    Err(Error::without_feature(redacted(name), "remote"))
}

/// Does nothing, because there is no hub.
pub fn set_hub(_settings: &HubSettings) {}

pub fn check_destination(url: &str) -> Result<()> {
    without(url)
}

pub fn stat(url: &str) -> Result<ObjectVersion> {
    without(url)
}

pub fn create(url: &str, _content: &str) -> Result<Option<Bytes>> {
    without(url)
}

pub fn replace(url: &str, _content: &str) -> Result<()> {
    without(url)
}

pub fn upload_file(_from: &Path, _size: u64, url: &str) -> Result<String> {
    without(url)
}

pub fn publish<'a>(to: &str, _files: impl Iterator<Item = (&'a str, &'a FileStamp)>) -> Result<()> {
    without(to)
}

pub fn published(to: &str) -> Result<BTreeMap<String, ObjectVersion>> {
    without(to)
}

pub fn upload(path: &Path, _failure: &FirstError) -> Result<Upload> {
    without(&path.to_string_lossy())
}

pub fn pinned(location: &Location) -> Result<Dataset> {
    without(&location.url())
}

pub fn list(location: &Location, _filter: &dyn ObjectFilter) -> Result<Vec<ListedObject>> {
    without(&location.url())
}

#[derive(Debug, Clone)]
pub struct Object {
    never: Infallible,
}

impl Object {
    pub fn new(url: &Path, _version: ObjectVersion) -> Result<Self> {
        without(&url.to_string_lossy())
    }
}

never! { Object:
    fn size() -> u64;
    fn read(range: Range<u64>) -> Result<Bytes>;
    fn begin(range: Range<u64>) -> Result<Transfer<Bytes>>;
}

#[derive(Debug)]
pub struct Transfer<T> {
    never: Infallible,
    of: PhantomData<T>,
}

never! { Transfer<Bytes>:
    fn wait() -> Result<Bytes>;
}

pub enum RepoType {
    Dataset,
    Model,
}

pub struct Repository<'a> {
    never: Infallible,
    of: PhantomData<&'a str>,
}

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
    fn missing(file: &str) -> Error;
    fn snapshot() -> Result<Snapshot>;
    fn note(commit: &str) -> Result<()>;
}
