//! Numbered lines of a file, decompressed as they are read. Only one line is in memory, and only
//! its beginning if it exceeds the limit.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::GzDecoder;

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

pub(super) fn decompressed(
    path: &Path,
    compression: Compression,
) -> Result<Box<dyn BufRead + Send>> {
    decompress(path, Box::new(open(path)?), compression)
}

fn decompress(
    path: &Path,
    compressed: Box<dyn Read + Send>,
    compression: Compression,
) -> Result<Box<dyn BufRead + Send>> {
    let buffered = BufReader::with_capacity(BUFFER_BYTES, compressed);
    Ok(match compression {
        Compression::None => Box::new(buffered),
        Compression::Gzip => {
            let decoder = GzipReader { member: Some(GzDecoder::new(buffered)) };
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
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
    pub(super) fn whole(&self) -> Result<&[u8], String> {
        self.too_long.clone().map_or(Ok(&self.bytes), Err)
    }
}

pub(super) fn too_long(bytes: u64, max_bytes: u64) -> String {
    format!("has {bytes} bytes, more than `input.max_document_bytes` = {max_bytes}")
}

/// Returns the message for a file that begins with `bytes` if they are no UTF-8, but a known form.
pub(super) fn encoding_error(bytes: &[u8]) -> Option<&'static str> {
    // Tables and objects begin with an ASCII character, if no mark is before it.
    Some(match *bytes {
        [GZIP_MAGIC, 0x8B, ..] => "it is compressed by gzip; its name must end with `.gz`",
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "it is compressed by zstd; its name must end with `.zst`",
        [0xFF, 0xFE, 0, 0, ..]
        | [0, 0, 0xFE, 0xFF, ..]
        | [1..=255, 0, 0, 0, ..]
        | [0, 0, 0, 1..=255, ..] => {
            "it is UTF-32; convert it to UTF-8 (`iconv -f UTF-32 -t UTF-8`)"
        }
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [1..=255, 0, ..] | [0, 1..=255, ..] => {
            "it is UTF-16; convert it to UTF-8 (`iconv -f UTF-16 -t UTF-8`)"
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
        let (inner, failure): (Box<dyn Read + Send>, _) = match file.object()? {
            None => (Box::new(open(&file.path)?), FirstError::default()),
            Some(object) => {
                let content = RemoteFile::sequential(object);
                (Box::new(content.reader(0)), content.failure())
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
            let read = self.read_bytes(line).map_err(|e| self.damaged(e));
            let Some(unread) = self.failure.on(read)? else { return Ok(false) };
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
                line.too_long = Some(too_long(bytes, self.max_bytes));
                line.bytes.truncate(EXCERPT_BYTES);
                return Ok(true);
            }
            if !line.bytes.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    /// Reads a line with its end; returns the bytes beyond the limit, or `None` after the last
    /// line.
    fn read_bytes(&mut self, line: &mut TextLine) -> std::io::Result<Option<u64>> {
        line.bytes.clear();
        line.too_long = None;
        let most = self.max_bytes + MARK_AND_END_BYTES;
        let read = self.reader.by_ref().take(most).read_until(b'\n', &mut line.bytes)? as u64;
        if read == most && !line.bytes.ends_with(b"\n") {
            return self.skip_line().map(Some);
        }
        Ok((read > 0).then_some(0))
    }

    /// Skips to the next line. Returns the number of skipped bytes, without the line feed.
    fn skip_line(&mut self) -> std::io::Result<u64> {
        let mut skipped = 0;
        loop {
            let buffer = self.reader.fill_buf()?;
            let (bytes, end) = match buffer.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at, 1),
                None => (buffer.len(), 0),
            };
            let is_end = end == 1 || buffer.is_empty();
            self.reader.consume(bytes + end);
            skipped += bytes as u64;
            if is_end {
                return Ok(skipped);
            }
        }
    }

    /// Returns a read error for a plain file; a compressed file may also be damaged.
    fn damaged(&self, error: std::io::Error) -> Error {
        if self.format == "JSON lines" || error.raw_os_error().is_some() {
            Error::io(&self.path, "read")(error)
        } else {
            Error::decode(&self.path, self.format, error)
        }
    }
}

const GZIP_MAGIC: u8 = 0x1F;

/// Decompresses a gzip file as the common tools do: consecutive members, which zeros may follow.
struct GzipReader<R> {
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(member) = self.member.take() else { break };
            self.member = next_member(member.into_inner())?.map(GzDecoder::new);
        }
        Ok(0)
    }
}

/// Returns the input at the next member, or `None` if only zeros follow.
fn next_member<R: BufRead>(mut rest: R) -> std::io::Result<Option<R>> {
    let mut is_padded = false;
    loop {
        let buffer = rest.fill_buf()?;
        match buffer.iter().position(|&byte| byte != 0) {
            None if buffer.is_empty() => return Ok(None),
            Some(0) if buffer[0] == GZIP_MAGIC && !is_padded => return Ok(Some(rest)),
            Some(_) => {
                let reason =
                    "after the compressed data comes something that is neither gzip nor zeros";
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, reason));
            }
            None => {
                is_padded = true;
                let zeros = buffer.len();
                rest.consume(zeros);
            }
        }
    }
}
