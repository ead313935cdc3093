//! What is known of a file before its rows are read: an identity, and how its rows are grouped.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::parquet_file::ParquetFile;
use super::{Format, InputFile};
use crate::error::{Error, Result};

/// Bytes at each end of a file that make its fingerprint.
const FINGERPRINT_BYTES: u64 = 64 << 10;

/// What a file says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFacts {
    /// [`InputFile::fingerprint`].
    pub fingerprint: String,
    /// Number of rows, where the format tells (Parquet).
    pub rows: Option<u64>,
    /// Row groups in the order of the file; none where the format has none.
    pub row_groups: Vec<RowGroup>,
}

/// Rows of a Parquet file that are stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowGroup {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of all columns as they are stored.
    pub bytes: u64,
}

impl InputFile {
    /// Cheap identity of the file, whatever its [`InputFile::rows`]: the BLAKE3 digest (hex) of its
    /// size and its first and last 64 KiB; of an object, of its size and [`InputFile::version`].
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn fingerprint(&self) -> Result<String> {
        if self.object()?.is_some() {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&self.bytes.to_le_bytes());
            hasher.update(self.version.as_deref().unwrap_or_default().as_bytes());
            return Ok(hasher.finalize().to_hex().to_string());
        }
        let mut file = File::open(&self.path).map_err(Error::io(&self.path, "open"))?;
        fingerprint(&mut file, self.bytes).map_err(Error::io(&self.path, "read"))
    }

    /// Reads the fingerprint, and of a Parquet file the footer; of one that is damaged neither the
    /// rows nor the row groups are known, and reading it is the error.
    ///
    /// # Errors
    /// [`Error::Io`]; of an object [`Error::Store`], [`Error::Missing`], [`Error::Corrupt`].
    pub fn facts(&self) -> Result<FileFacts> {
        let mut facts =
            FileFacts { fingerprint: self.fingerprint()?, rows: None, row_groups: Vec::new() };
        if self.format == Format::Parquet {
            match ParquetFile::open(self) {
                Ok(file) => {
                    facts.row_groups = file.row_groups();
                    facts.rows = Some(file.num_rows());
                }
                Err(Error::Decode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(facts)
    }
}

fn fingerprint(file: &mut File, bytes: u64) -> std::io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes.to_le_bytes());
    for start in [0, bytes.saturating_sub(FINGERPRINT_BYTES)] {
        file.seek(SeekFrom::Start(start))?;
        let mut end = Vec::new();
        file.by_ref().take(FINGERPRINT_BYTES).read_to_end(&mut end)?;
        hasher.update(&end);
    }
    Ok(hasher.finalize().to_hex().to_string())
}
