//! Numbered lines of a file, decompressed as they are read: one is in memory, a long one in part.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::{Compression, InputFile};
use polysift_base::error::{Error, Result};
use polysift_base::io::{FirstError, open, without_byte_order_mark};
use polysift_remote::RemoteFile;

/// Number of bytes kept of a line beyond the limit.
const EXCERPT_BYTES: usize = 1 << 10;
/// Bytes that a line may have besides its content: a byte order mark and `\r\n`.
const MARK_AND_END_BYTES: u64 = 5;
/// Frames compressed with `zstd --long=31`, as in some corpora, need a window of 2^31 bytes.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;
const BUFFER_BYTES: usize = 1 << 18;

/// Returns the decompressed bytes of the file `path`; damage shows only when they are read.
pub(super) fn decompress(
    path: &Path,
    compressed: Box<dyn Read + Send>,
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

/// Counts the bytes that are read.
struct CountedRead {
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for CountedRead {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// One line without its end.
#[derive(Debug, Default)]
pub(super) struct TextLine {
    /// Number of the line, counted from 0, blank lines included.
    pub row: u64,
    /// Bytes of the line; only the first ones if the line is too long.
    pub bytes: Vec<u8>,
    /// Why the line is not held whole.
    too_long: Option<String>,
}

impl TextLine {
    /// Returns the line, or the message that it is too long.
    pub(super) fn whole_line(&self) -> Result<&[u8], String> {
        self.too_long.clone().map_or(Ok(&self.bytes), Err)
    }
}

/// Says that a text or line has more bytes than allowed; without a subject.
pub(super) fn too_long_message(bytes: u64, max_bytes: u64) -> String {
    format!("has {bytes} bytes, more than `input.max_document_bytes` = {max_bytes}")
}

/// Returns the message for a file that begins with `bytes` if they are no UTF-8, but a known form.
pub(super) fn encoding_error(bytes: &[u8]) -> Option<&'static str> {
    // Tables and objects begin with an ASCII character, if no mark is before it.
    Some(match *bytes {
        [0x1F, 0x8B, ..] => "it is compressed by gzip; its name must end with `.gz`",
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "it is compressed by zstd; its name must end with `.zst`",
        // In UTF-16 and UTF-32 the character has zeros beside it.
        [0xFF, 0xFE, ..]
        | [0xFE, 0xFF, ..]
        | [0, 0, 0xFE, 0xFF, ..]
        | [1..=255, 0, ..]
        | [0, 1..=255, ..]
        | [0, 0, 0, 1..=255, ..] => {
            "it is UTF-16 or UTF-32; convert it to UTF-8 (`iconv -t UTF-8 -f UTF-16`, or `-f UTF-32`)"
        }
        _ => return None,
    })
}

/// Reads the lines that are not blank.
pub(super) struct LineReader {
    pub path: PathBuf,
    format: &'static str,
    reader: Box<dyn BufRead + Send>,
    failure: FirstError,
    next_row: u64,
    max_bytes: u64,
    bytes_read: Arc<AtomicU64>,
}

impl LineReader {
    /// Opens `file`; lines are held up to `max_bytes`.
    pub(super) fn open(file: &InputFile, max_bytes: u64) -> Result<Self> {
        let compression = file.format.compression();
        let format = match compression {
            Compression::None => "JSON lines",
            Compression::Gzip => "gzip-compressed JSON lines",
            Compression::Zstd => "zstd-compressed JSON lines",
        };
        if let Some(rows) = &file.rows {
            let reason = format!("rows {rows:?} are asked for, but {format} have no row groups");
            return Err(Error::corrupt(&file.path, reason));
        }
        let (inner, failure): (Box<dyn Read + Send>, _) = match file.remote_object()? {
            None => (Box::new(open(&file.path)?), FirstError::default()),
            Some(object) => {
                let content = RemoteFile::sequential(object);
                (Box::new(content.reader(0)), content.failure.clone())
            }
        };
        let bytes_read = Arc::default();
        let counted = CountedRead { inner, bytes: Arc::clone(&bytes_read) };
        let reader = decompress(&file.path, Box::new(counted), compression)?;
        Ok(Self { failure, bytes_read, ..Self::new(reader, &file.path, format, max_bytes) })
    }

    /// Reads the lines of `reader`, called `path` and of `format` in messages.
    pub(super) fn new(
        reader: Box<dyn BufRead + Send>,
        path: &Path,
        format: &'static str,
        max_bytes: u64,
    ) -> Self {
        Self {
            path: path.to_owned(),
            format,
            reader,
            failure: FirstError::default(),
            next_row: 0,
            max_bytes,
            bytes_read: Arc::default(),
        }
    }

    /// Returns the bytes of the file read so far, before decompression and including buffered ones.
    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Reads the next line that is not blank into `line`. Returns false at the end of the file.
    pub(super) fn read(&mut self, line: &mut TextLine) -> Result<bool> {
        loop {
            let read = self.read_bytes(line).map_err(|e| self.read_error(e));
            let Some(unread) = self.failure.replace_error(read)? else { return Ok(false) };
            line.row = self.next_row;
            self.next_row += 1;
            if line.row == 0 {
                if let Some(reason) = encoding_error(&line.bytes) {
                    return Err(Error::decode(&self.path, self.format, reason));
                }
                let mark = line.bytes.len() - without_byte_order_mark(&line.bytes).len();
                line.bytes.drain(..mark);
            }
            while line.bytes.last().is_some_and(|end| matches!(end, b'\n' | b'\r')) {
                line.bytes.pop();
            }
            let bytes = line.bytes.len() as u64 + unread;
            if unread > 0 || bytes > self.max_bytes {
                line.too_long = Some(too_long_message(bytes, self.max_bytes));
                line.bytes.truncate(EXCERPT_BYTES);
                return Ok(true);
            }
            if !line.bytes.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// Reads a line with its end. Returns the bytes beyond the limit; `None` at the file's end.
    fn read_bytes(&mut self, line: &mut TextLine) -> std::io::Result<Option<u64>> {
        line.bytes.clear();
        line.too_long = None;
        let most = self.max_bytes + MARK_AND_END_BYTES;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut line.bytes)? as u64;
        if read == most && !line.bytes.ends_with(b"\n") {
            // The line feed does not count.
            return Ok(Some((self.reader.skip_until(b'\n')? as u64).saturating_sub(1)));
        }
        Ok((read > 0).then_some(0))
    }

    /// Returns a read error for a plain file; a compressed file may also be damaged.
    fn read_error(&self, error: std::io::Error) -> Error {
        if self.format == "JSON lines" || error.raw_os_error().is_some() {
            Error::io(&self.path, "read")(error)
        } else {
            Error::decode(&self.path, self.format, error)
        }
    }
}
