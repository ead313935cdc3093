//! Numbered lines of a file, decompressed as they are read.
//!
//! Owns byte order marks, line ends, blank lines and damaged compression. Does not know JSON.
//! One line at a time is in memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::{Compression, Format, InputFile};
use crate::error::{Error, Result};
use crate::remote::{Failure, RemoteFile};

/// Longest line in bytes; Arrow's 32-bit offsets hold any text of such a line.
const MAX_LINE_BYTES: u64 = 1 << 30;

/// Frames compressed with `zstd --long=31`, as some corpora are, need a window of 2^31 bytes.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

const BUFFER_BYTES: usize = 1 << 18;

/// The content of the file `path`, decompressed as it is read.
pub(super) fn decompressed(
    path: &Path,
    compression: Compression,
) -> Result<Box<dyn BufRead + Send>> {
    let handle = File::open(path).map_err(Error::io(path, "open"))?;
    decompress(path, handle, compression)
}

fn decompress<R: Read + Send + 'static>(
    path: &Path,
    compressed: R,
    compression: Compression,
) -> Result<Box<dyn BufRead + Send>> {
    let buffered = BufReader::with_capacity(BUFFER_BYTES, compressed);
    Ok(match compression {
        Compression::None => Box::new(buffered),
        Compression::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(buffered)))
        }
        Compression::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(buffered)
                .map_err(Error::io(path, "start decompression"))?;
            (decoder.window_log_max(ZSTD_WINDOW_LOG_MAX))
                .map_err(Error::io(path, "start decompression"))?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        }
    })
}

/// One line without its end.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Number of the line, counted from 0, blank lines included.
    pub row: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reader of the lines that are not blank.
pub(super) struct Lines {
    path: PathBuf,
    format: &'static str,
    reader: Box<dyn BufRead + Send>,
    failure: Failure,
    next_row: u64,
}

impl Lines {
    pub(super) fn open(file: &InputFile) -> Result<Self> {
        let (format, compression) = match file.format {
            Format::Parquet | Format::JsonLines(Compression::None) => {
                ("JSON lines", Compression::None)
            }
            Format::JsonLines(Compression::Gzip) => {
                ("gzip-compressed JSON lines", Compression::Gzip)
            }
            Format::JsonLines(Compression::Zstd) => {
                ("zstd-compressed JSON lines", Compression::Zstd)
            }
        };
        if let Some(rows) = &file.rows {
            let reason = format!("rows {rows:?} are asked for, but {format} have no row groups");
            return Err(Error::verify(&file.path, reason));
        }
        let path = file.path.clone();
        let (reader, failure) = match file.object()? {
            None => (decompressed(&path, compression)?, Failure::default()),
            Some(object) => {
                let content = RemoteFile::sequential(object);
                (decompress(&path, content.reader(0), compression)?, content.failure())
            }
        };
        Ok(Self { path, format, reader, failure, next_row: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the next line that is not blank into `line`; false at the end of the file.
    pub(super) fn read(&mut self, line: &mut Line) -> Result<bool> {
        loop {
            line.bytes.clear();
            let mut limited = self.reader.by_ref().take(MAX_LINE_BYTES + 2);
            let read = limited.read_until(b'\n', &mut line.bytes);
            let length = self.failure.on(read.map_err(|e| self.damaged(e)))?;
            if length == 0 {
                return Ok(false);
            }
            line.row = self.next_row;
            self.next_row += 1;
            if length as u64 > MAX_LINE_BYTES {
                let reason = format!("is longer than {MAX_LINE_BYTES} bytes");
                let path = self.path.clone();
                return Err(Error::Row { path, row: line.row + 1, reason, count: 1 });
            }
            if line.row == 0 && line.bytes.starts_with(b"\xEF\xBB\xBF") {
                line.bytes.drain(..3);
            }
            while line.bytes.last().is_some_and(|end| matches!(end, b'\n' | b'\r')) {
                line.bytes.pop();
            }
            if !line.bytes.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// A plain file fails to be read; a compressed one may also be damaged.
    fn damaged(&self, error: std::io::Error) -> Error {
        if self.format == "JSON lines" || error.raw_os_error().is_some() {
            Error::io(&self.path, "read")(error)
        } else {
            Error::decode(&self.path, self.format, error)
        }
    }
}
