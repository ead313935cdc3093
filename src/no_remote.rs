//! The module `remote` of a build without that feature: every URL and every id of a hub is an error.

#![allow(
    dead_code,
    clippy::needless_pass_by_value,
    reason = "what is never made is never looked at"
)]

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::hub::HubSettings;
use crate::io::{FileStamp, FirstError, redacted};

#[path = "remote/listing.rs"]
mod listing;

pub(crate) use listing::{ListedObject, ObjectFilter, ObjectVersion, Snapshot};

fn without<T>(name: &str) -> Result<T> {
    Err(Error::without_feature(redacted(name), "remote"))
}

/// Takes nothing: there is no hub.
pub fn set_hub(_settings: &HubSettings) {}

/// Refuses every place.
pub(crate) fn check_destination(url: &str) -> Result<()> {
    without(url)
}

pub(crate) fn stat(url: &str) -> Result<ObjectVersion> {
    without(url)
}

pub(crate) fn create(url: &str, _content: &str) -> Result<Option<Bytes>> {
    without(url)
}

pub(crate) fn replace(url: &str, _content: &str) -> Result<()> {
    without(url)
}

#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) key: String,
    never: Infallible,
}

impl Location {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        without(url)
    }

    pub(crate) fn is_on_hub(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn can_be_searched(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn with_key(&self, _key: impl Into<String>) -> Self {
        match self.never {}
    }

    pub(crate) fn url(&self) -> String {
        match self.never {}
    }
}

pub(crate) enum Dataset {
    Online(Location),
    Cached(PathBuf),
}

pub(crate) fn dataset(location: &Location) -> Result<Dataset> {
    match location.never {}
}

pub(crate) fn list(location: &Location, _filter: &dyn ObjectFilter) -> Result<Vec<ListedObject>> {
    match location.never {}
}

#[derive(Debug)]
pub(crate) struct Object(Infallible);

impl Object {
    pub(crate) fn new(url: &Path, _version: ObjectVersion) -> Result<Self> {
        without(&url.to_string_lossy())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RemoteFile(Infallible);

impl RemoteFile {
    pub(crate) fn open(object: Object) -> Result<Self> {
        match object.0 {}
    }

    pub(crate) fn sequential(object: Object) -> Self {
        match object.0 {}
    }

    pub(crate) fn ahead(&self, _streams: &[Vec<Range<u64>>]) -> Self {
        match self.0 {}
    }

    pub(crate) fn len(&self) -> u64 {
        match self.0 {}
    }

    pub(crate) fn bytes(&self, _offset: u64, _length: usize) -> io::Result<Bytes> {
        match self.0 {}
    }

    pub(crate) fn reader(&self, _offset: u64) -> RemoteRead {
        match self.0 {}
    }

    pub(crate) fn failure(&self) -> FirstError {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct RemoteRead(Infallible);

impl Read for RemoteRead {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct Upload(Infallible);

impl Upload {
    pub(crate) fn create(path: &Path, _failure: &FirstError) -> Result<Self> {
        without(&path.to_string_lossy())
    }

    pub(crate) fn path(&self) -> &Path {
        match self.0 {}
    }

    pub(crate) fn commit(self) -> Result<FileStamp> {
        match self.0 {}
    }
}

impl Write for Upload {
    fn write(&mut self, _buffer: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

pub(crate) enum RepoType {
    Dataset,
    Model,
}

pub(crate) struct Repository<'a>(Infallible, PhantomData<&'a str>);

impl<'a> Repository<'a> {
    pub(crate) fn new(
        _kind: RepoType,
        id: &'a str,
        _revision: Option<&'a str>,
        _settings: &'a HubSettings,
    ) -> Result<Self> {
        without(id)
    }

    pub(crate) fn get(&self, _file: &str) -> Result<Option<PathBuf>> {
        match self.0 {}
    }

    pub(crate) fn missing(&self, _file: &str) -> Error {
        match self.0 {}
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        match self.0 {}
    }

    pub(crate) fn note(&self, _commit: &str) -> Result<()> {
        match self.0 {}
    }
}
