//! Replaces `objects` in builds without the feature `remote`: every URL and hub id is an error.

#![allow(
    dead_code,
    unused_variables,
    missing_docs, // the module that it replaces has them
    clippy::len_without_is_empty,
    clippy::return_self_not_must_use,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "what is never made is never looked at"
)]

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use polysift_base::error::{Error, Result};
use polysift_base::hub::HubSettings;
use polysift_base::io::{FileStamp, FirstError, redacted};

use crate::listing::{ListedObject, ObjectFilter, ObjectVersion, Snapshot};

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

/// Refuses every destination.
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

#[derive(Debug, Clone)]
pub struct Location {
    pub key: String,
    never: Infallible,
}

impl Location {
    pub fn parse(url: &str) -> Result<Self> {
        without(url)
    }
}

never! { Location:
    fn is_on_hub() -> bool;
    fn can_be_searched() -> bool;
    fn with_key(key: impl Into<String>) -> Self;
    fn url() -> String;
}

pub enum Dataset {
    Online(Location),
    Cached(PathBuf),
}

pub fn dataset(location: &Location) -> Result<Dataset> {
    match location.never {}
}

pub fn list(location: &Location, _filter: &dyn ObjectFilter) -> Result<Vec<ListedObject>> {
    match location.never {}
}

#[derive(Debug)]
pub struct Object {
    never: Infallible,
}

impl Object {
    pub fn new(url: &Path, _version: ObjectVersion) -> Result<Self> {
        without(&url.to_string_lossy())
    }
}

#[derive(Debug, Clone)]
pub struct RemoteFile {
    never: Infallible,
}

impl RemoteFile {
    pub fn open(object: Object) -> Result<Self> {
        match object.never {}
    }

    pub fn sequential(object: Object) -> Self {
        match object.never {}
    }
}

never! { RemoteFile:
    fn ahead(streams: &[Vec<Range<u64>>]) -> Self;
    fn len() -> u64;
    fn bytes(offset: u64, length: usize) -> io::Result<Bytes>;
    fn reader(offset: u64) -> Box<dyn Read + Send>;
    fn failure() -> FirstError;
}

#[derive(Debug)]
pub struct Upload {
    never: Infallible,
}

impl Upload {
    pub fn create(path: &Path, _failure: &FirstError) -> Result<Self> {
        without(&path.to_string_lossy())
    }
}

never! { Upload:
    fn path() -> &Path;
    fn commit() -> Result<FileStamp>;
}

impl Write for Upload {
    fn write(&mut self, _buffer: &[u8]) -> io::Result<usize> {
        match self.never {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.never {}
    }
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
