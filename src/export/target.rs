//! Where an exported file goes: to a path, or to a store.

use std::io::{self, Write};
use std::path::Path;

use crate::error::Result;
use crate::io::FirstError;
use crate::io::is_url;
use crate::io::{AtomicFile, FileStamp};
use crate::remote::Upload;

/// A file or an object that appears whole when it is committed.
#[derive(Debug)]
pub(super) enum Target {
    File(Box<AtomicFile>),
    Object(Box<Upload>),
}

impl Target {
    /// Begins the file `path`, or the object of that URL; `failure` keeps the error of its store.
    pub(super) fn create(path: &Path, failure: &FirstError) -> Result<Self> {
        if path.to_str().is_some_and(is_url) {
            return Upload::create(path, failure).map(Box::new).map(Self::Object);
        }
        AtomicFile::create(path).map(Box::new).map(Self::File)
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Object(upload) => upload.path(),
        }
    }

    pub(super) fn commit(self) -> Result<FileStamp> {
        match self {
            Self::File(file) => file.commit(),
            Self::Object(upload) => upload.commit(),
        }
    }
}

impl Write for Target {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(buffer),
            Self::Object(upload) => upload.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Object(upload) => upload.flush(),
        }
    }
}
