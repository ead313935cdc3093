//! Reads the bytes of a local or remote file, and computes its fingerprint.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

use super::InputFile;
use polysift_base::error::{Error, Result};
use polysift_base::io::{FirstError, is_url, open};
use polysift_remote::{Object, ObjectVersion, RemoteFile};

/// Number of bytes at each end of a file that go into its fingerprint.
const FINGERPRINT_BYTES: u64 = 64 << 10;

/// An open file that can be read in any order.
#[derive(Debug)]
pub(super) enum Content {
    Local(File),
    Remote(RemoteFile),
}

impl Content {
    /// Opens `file`, and of an object reads its end, where Parquet has the footer.
    pub(super) fn open(file: &InputFile) -> Result<Self> {
        if let Some(object) = file.remote_object()? {
            return RemoteFile::open(object).map(Self::Remote);
        }
        let (path, handle) = (&file.path, open(&file.path)?);
        if handle.metadata().map_err(Error::io(path, "stat"))?.is_dir() {
            let error = std::io::Error::from(std::io::ErrorKind::IsADirectory);
            return Err(Error::io(path, "read")(error));
        }
        Ok(Self::Local(handle))
    }

    /// Opens the file once more, for a reader that reads each of `streams` in order.
    pub(super) fn reopen(&self, path: &Path, streams: &[Vec<Range<u64>>]) -> Result<Self> {
        match self {
            // Duplicated handles would share their position in the file.
            Self::Local(_) => open(path).map(Self::Local),
            Self::Remote(file) => Ok(Self::Remote(file.reading_ahead(streams))),
        }
    }

    /// Returns the slot that keeps the store's error when a decoder of this file fails.
    pub(super) fn failure(&self) -> FirstError {
        match self {
            Self::Local(_) => FirstError::default(),
            Self::Remote(file) => file.failure.clone(),
        }
    }
}

impl InputFile {
    /// Returns the object at the planned version if the path is a URL; `None` for a local file.
    pub(super) fn remote_object(&self) -> Result<Option<Object>> {
        if self.path.to_str().is_none_or(|text| !is_url(text)) {
            return Ok(None);
        }
        let version = ObjectVersion { bytes: self.bytes, tag: self.version.clone() };
        Object::new(&self.path, version).map(Some)
    }

    /// Returns the BLAKE3 digest (hex) of the file's size and its first and last 64 KiB, whatever
    /// its [`InputFile::rows`]; for an object, of its size and [`InputFile::version`].
    pub fn fingerprint(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.bytes.to_le_bytes());
        if self.remote_object()?.is_some() {
            hasher.update(self.version.as_deref().unwrap_or_default().as_bytes());
        } else {
            let mut file = open(&self.path)?;
            for start in [0, self.bytes.saturating_sub(FINGERPRINT_BYTES)] {
                let end = file.seek(SeekFrom::Start(start));
                end.and_then(|_| hasher.update_reader(file.by_ref().take(FINGERPRINT_BYTES)))
                    .map_err(Error::io(&self.path, "read"))?;
            }
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

impl Length for Content {
    fn len(&self) -> u64 {
        match self {
            Self::Local(file) => Length::len(file),
            Self::Remote(file) => file.size,
        }
    }
}

impl ChunkReader for Content {
    type T = BufReader<Box<dyn Read>>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let reader: Box<dyn Read> = match self {
            Self::Local(file) => Box::new(file.get_read(start)?.into_inner()),
            Self::Remote(file) => Box::new(file.reader(start)),
        };
        Ok(BufReader::new(reader))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            // The decoder asks for as many bytes as the file claims to hold.
            Self::Local(file) if start.saturating_add(length as u64) > Length::len(file) => {
                let reason = format!("{length} bytes at {start} are not in the file");
                Err(ParquetError::EOF(reason))
            }
            Self::Local(file) => file.get_bytes(start, length),
            Self::Remote(file) => {
                file.bytes(start, length).map_err(|e| ParquetError::External(Box::new(e)))
            }
        }
    }
}
