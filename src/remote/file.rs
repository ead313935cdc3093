//! Reads an object like a file, at any offset or sequentially. In memory are at most `AHEAD_BYTES`
//! of announced ranges (`RemoteFile::reading_ahead`; a little more with over 256 columns), the last
//! [`TAIL_BYTES`] of the object, and what the decoder still uses.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use crate::Object;
use crate::windows::Windows;
use polysift_base::error::Result;
use polysift_base::io::FirstError;
use polysift_base::panics::lock;

/// Number of bytes at the end of a file that are read together: most footers fit.
const TAIL_BYTES: u64 = 64 << 10;

/// An object that is open for reading.
#[derive(Debug, Clone)]
pub struct RemoteFile {
    windows: Arc<Mutex<Windows>>,
    /// Holds the first error that made a read fail.
    pub failure: FirstError,
    /// Offset and bytes of the object's end.
    tail: Option<(u64, Bytes)>,
    /// Size in bytes.
    pub size: u64,
}

impl RemoteFile {
    /// Opens a file with an index at its end, and reads the end.
    pub fn open(object: Object) -> Result<Self> {
        let start = object.size().saturating_sub(TAIL_BYTES);
        let tail = object.read(start..object.size())?;
        Ok(Self { tail: Some((start, tail)), ..Self::new(object, &[]) })
    }

    /// Opens a file that is read from its start to its end.
    pub fn sequential(object: Object) -> Self {
        let all = 0..object.size();
        Self::new(object, &[vec![all]])
    }

    fn new(object: Object, streams: &[Vec<Range<u64>>]) -> Self {
        let size = object.size();
        let windows = Arc::new(Mutex::new(Windows::new(object, streams)));
        Self { windows, failure: FirstError::default(), tail: None, size }
    }

    /// Returns a new handle for a reader that goes through each of `streams`, ranges of the object,
    /// in its order; nothing is requested before the first read.
    #[must_use]
    pub fn reading_ahead(&self, streams: &[Vec<Range<u64>>]) -> Self {
        let object = lock(&self.windows).object.clone();
        Self { tail: self.tail.clone(), ..Self::new(object, streams) }
    }

    /// Returns `length` bytes at `offset`.
    pub fn bytes(&self, offset: u64, length: usize) -> std::io::Result<Bytes> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.size) {
            let reason = format!("{length} bytes at {offset} are not in {}", self.size);
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, reason));
        }
        match self.in_tail(offset, length).filter(|bytes| bytes.len() == length) {
            Some(bytes) => Ok(bytes),
            None => self.failure.keep(lock(&self.windows).bytes(offset, length)),
        }
    }

    /// Returns a reader that starts at `offset`.
    pub fn reader(&self, offset: u64) -> RemoteRead {
        RemoteRead { file: self.clone(), offset }
    }

    #[cfg(all(test, feature = "remote"))]
    pub(super) fn held(&self) -> u64 {
        lock(&self.windows).held()
    }

    /// Returns up to `most` bytes at `offset` if they begin in the kept end of the object.
    fn in_tail(&self, offset: u64, most: usize) -> Option<Bytes> {
        let (start, tail) = self.tail.as_ref()?;
        let at = usize::try_from(offset.checked_sub(*start)?).ok()?;
        let end = tail.len().min(at.saturating_add(most));
        (at < end).then(|| tail.slice(at..end))
    }
}

/// Reads an object from an offset on; a request outside announced ranges is as large as the buffer.
#[derive(Debug)]
pub struct RemoteRead {
    file: RemoteFile,
    offset: u64,
}

impl Read for RemoteRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let Self { file, offset } = self;
        if *offset >= file.size || buffer.is_empty() {
            return Ok(0);
        }
        let read = || lock(&file.windows).some_bytes(*offset, buffer.len());
        let some = file.in_tail(*offset, buffer.len());
        let some = some.map_or_else(|| file.failure.keep(read()), Ok)?;
        let length = some.len().min(buffer.len());
        buffer[..length].copy_from_slice(&some[..length]);
        *offset += length as u64;
        Ok(length)
    }
}
