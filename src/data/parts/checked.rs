//! Parts that detect changed bytes.
//!
//! A part is a Parquet file with checksums before its footer, where Parquet's readers do not look
//! (the `parquet` crate writes no page checksums):
//!
//! ```text
//! pages and their index | XXH3 of every block of them | XXH3 of these and the footer | footer
//! ```
//!
//! Invariant: a [`CheckedFile`] returns no bytes before it has verified them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::{Buf, Bytes};
use parquet::arrow::ArrowWriter;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use std::hash::Hasher;
use twox_hash::XxHash3_64;

use polysift_base::error::{Error, Result};
use polysift_base::io::{AtomicFile, FileStamp, if_there, open};

/// Format named in [`Error::Decode`].
pub(super) const PARQUET: &str = "parquet";
const BLOCK_BYTES: u64 = 1 << 13;
const CHECKSUM_BYTES: usize = size_of::<u64>();
/// Bytes at the end of a footer: its length and Parquet's magic word.
const END_BYTES: usize = 8;
/// Bytes read from the end of a part when it is opened: the footer, the checksums, and before them
/// all logits and scores of a part of the usual size (16,384 rows).
const TAIL_BYTES: u64 = 144 * 1024;
/// Bytes read to find the header of a page.
const HEADER_BYTES: u64 = 1 << 13;

/// A part under construction. The bytes of a Parquet file are written into it.
pub(super) struct CheckedWriter {
    pub file: AtomicFile,
    /// The bytes behind the last whole block.
    block: Vec<u8>,
    checksums: Vec<u8>,
    /// Bytes written since [`finish`] began. Where the footer starts is known only at the end.
    held: Option<Vec<u8>>,
}

impl CheckedWriter {
    /// Writes `bytes`, and keeps the checksum of each block that they fill.
    fn write_blocks(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.block.extend_from_slice(bytes);
        let whole = self.block.len() - self.block.len() % BLOCK_BYTES as usize;
        for block in self.block.drain(..whole).as_slice().chunks(BLOCK_BYTES as usize) {
            self.checksums.extend(XxHash3_64::oneshot(block).to_le_bytes());
        }
        Ok(())
    }

    /// Writes what was held: the pages' index, the checksums and the footer.
    fn write_end(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        let footer = footer_bytes(&held).and_then(|bytes| held.len().checked_sub(bytes));
        let footer = footer.ok_or_else(|| io::Error::other("a Parquet file without a footer"))?;
        let (index, footer) = held.split_at(footer);
        self.write_blocks(index)?;
        if !self.block.is_empty() {
            self.checksums.extend(XxHash3_64::oneshot(&self.block).to_le_bytes());
        }
        self.file.write_all(&self.checksums)?;
        self.file.write_all(&checksum_of_rest(&self.checksums, footer))?;
        self.file.write_all(footer)
    }
}

impl Write for CheckedWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.held {
            Some(held) => held.extend_from_slice(buffer),
            None => self.write_blocks(buffer)?,
        }
        Ok(buffer.len())
    }

    /// Does nothing: data counts only once the file has its name, and the end must be held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the part `path`; [`finish`] completes it.
pub(super) fn create(
    path: &Path,
    schema: SchemaRef,
    properties: WriterProperties,
) -> Result<ArrowWriter<CheckedWriter>> {
    let file = AtomicFile::create(path)?;
    let part = CheckedWriter { file, block: Vec::new(), checksums: Vec::new(), held: None };
    ArrowWriter::try_new(part, schema, Some(properties)).map_err(|e| Error::write(path, e))
}

/// Completes a part and gives it its name.
pub(super) fn finish(mut writer: ArrowWriter<CheckedWriter>) -> Result<FileStamp> {
    let path = writer.inner().file.path().to_owned();
    let failed = |e: ParquetError| Error::write(&path, e);
    writer.flush().map_err(failed)?;
    writer.sync().map_err(Error::io(&path, "write"))?;
    writer.inner_mut().held = Some(Vec::new());
    let mut part = writer.into_inner().map_err(failed)?;
    part.write_end().map_err(Error::io(&path, "write"))?;
    part.file.commit()
}

#[derive(Debug, Clone)]
pub(super) struct CheckedFile {
    file: Arc<File>,
    length: u64,
    data_bytes: u64,
    checksums: Bytes,
    /// The end of the part, starting at a block.
    tail: Bytes,
}

impl CheckedFile {
    /// Opens the part `path`. Returns [`Error::Decode`] if its end is not what was written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let missing = || Error::missing(path, format!("is not there; {MAKE_AGAIN}"));
        let file = if_there(open(path))?.ok_or_else(missing)?;
        let length = file.metadata().map_err(Error::io(path, "stat"))?.len();
        let decode = |e| Error::decode(path, PARQUET, e);
        let read = |start| file.get_bytes(start, (length - start) as usize).map_err(decode);
        let damaged = || decode(changed_error(0..length));
        let mut start = block_start(length.saturating_sub(TAIL_BYTES));
        let mut tail = read(start)?;
        let (data_bytes, num_blocks) = locate_blocks(&tail, length).ok_or_else(damaged)?;
        if data_bytes < start {
            start = block_start(data_bytes);
            tail = read(start)?;
        }
        let mut rest = tail.slice((data_bytes - start) as usize..);
        let checksums = rest.split_to(num_blocks * CHECKSUM_BYTES);
        let own = rest.split_to(CHECKSUM_BYTES);
        if own != checksum_of_rest(&checksums, &rest)[..] {
            return Err(decode(changed_error(data_bytes..length)));
        }
        Ok(Self { file: Arc::new(file), length, data_bytes, checksums, tail })
    }
}

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for CheckedFile {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let limit = if start < self.data_bytes { self.data_bytes } else { self.length };
        let end = start.saturating_add(HEADER_BYTES).min(limit);
        Ok(self.get_bytes(start, end.saturating_sub(start) as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = start.checked_add(length as u64).filter(|&end| end <= self.length);
        let end = end.ok_or_else(|| ParquetError::EOF("a range beyond the end".into()))?;
        let tail_start = self.length - self.tail.len() as u64;
        if start >= self.data_bytes {
            let at = (start - tail_start) as usize;
            return Ok(self.tail.slice(at..at + length));
        }
        let first = block_start(start);
        let num_bytes = end.next_multiple_of(BLOCK_BYTES).min(self.data_bytes) - first;
        let blocks = match first.checked_sub(tail_start) {
            Some(at) => self.tail.slice(at as usize..(at + num_bytes) as usize),
            None => self.file.get_bytes(first, num_bytes as usize)?,
        };
        let checksums = &self.checksums[(first / BLOCK_BYTES) as usize * CHECKSUM_BYTES..];
        let checked = blocks.chunks(BLOCK_BYTES as usize).zip(checksums.chunks(CHECKSUM_BYTES));
        for (place, (block, checksum)) in (0u64..).zip(checked) {
            if XxHash3_64::oneshot(block).to_le_bytes() != *checksum {
                let at = first + place * BLOCK_BYTES;
                return Err(changed_error(at..at + block.len() as u64));
            }
        }
        let at = (start - first) as usize;
        if at + length > blocks.len() {
            return Err(ParquetError::EOF("a page beyond the pages".into()));
        }
        Ok(blocks.slice(at..at + length))
    }
}

/// Advice for a part that is missing or damaged.
pub const MAKE_AGAIN: &str =
    "`polysift run`, or the command of the stage that wrote it, makes it again";

/// Returns an error for damaged bytes, with advice.
fn changed_error(bytes: std::ops::Range<u64>) -> ParquetError {
    let std::ops::Range { start, end } = bytes;
    ParquetError::General(format!(
        "bytes {start} to {end} are not what was written; remove the file: {MAKE_AGAIN}"
    ))
}

fn block_start(position: u64) -> u64 {
    position - position % BLOCK_BYTES
}

/// Returns the length of the footer at the end of `end`, including its length and magic word;
/// `None` for fewer bytes than these. The footer may claim to be longer than `end`.
fn footer_bytes(end: &[u8]) -> Option<usize> {
    let length: &[u8; 4] = end[end.len().checked_sub(END_BYTES)?..].first_chunk()?;
    (u32::from_le_bytes(*length) as usize).checked_add(END_BYTES)
}

/// Returns how many bytes are in blocks, and how many blocks they are, in the `length` bytes that
/// end with `end`; `None` if the footer claims more than there is.
fn locate_blocks(end: &[u8], length: u64) -> Option<(u64, usize)> {
    let blocks = length.checked_sub(footer_bytes(end)? as u64 + CHECKSUM_BYTES as u64)?;
    let num_blocks = blocks.div_ceil(BLOCK_BYTES + CHECKSUM_BYTES as u64);
    let data_bytes = blocks.checked_sub(num_blocks * CHECKSUM_BYTES as u64)?;
    Some((data_bytes, usize::try_from(num_blocks).ok()?))
}

/// Computes the checksum of the other checksums and the footer.
fn checksum_of_rest(checksums: &[u8], footer: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hasher = XxHash3_64::new();
    hasher.write(checksums);
    hasher.write(footer);
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{DocumentBuilder, DocumentInfo};
    use crate::parts::{DocumentScore, ScoreRows, read_scores, write_scores};
    use polysift_config::HeadOutput;

    /// Writes a part of `len` rows whose columns hardly compress.
    fn part(path: &Path, len: usize) -> Result<ScoreRows> {
        let hash = |i: usize| XxHash3_64::oneshot(&i.to_le_bytes());
        let score = |i| DocumentScore::new(hash(i) as f32, HeadOutput::Raw);
        let mut documents = DocumentBuilder::default();
        for i in 0..len {
            let (id, num_bytes) = (&format!("<urn:{:016x}>", hash(i)), hash(i));
            let (row, language) = (i as u64, "deu_Latn");
            documents.push(&DocumentInfo { row, id, language, num_bytes, num_tokens: None });
        }
        let scores = (0..len).map(|i| Some(score(i))).collect();
        let rows = ScoreRows { documents: documents.finish(), scores };
        write_scores(path, &rows, None, 1)?;
        Ok(rows)
    }

    #[test]
    fn parts_of_any_size_come_back() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        let mut sizes = std::collections::BTreeSet::new();
        // Parts from less than a block to more than the tail, ending before, at and after block
        // ends.
        for len in (0..400).chain((1000..60_000).step_by(9_973)) {
            let rows = part(&path, len)?;
            let read = read_scores(&path)?;
            assert_eq!(read, rows, "{len} rows");
            sizes.insert(CheckedFile::open(&path)?.data_bytes % BLOCK_BYTES);
        }
        assert!(sizes.len() > 100, "{sizes:?}");
        Ok(())
    }

    #[test]
    fn no_flipped_bit_is_read() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        for len in [3, 30_000] {
            part(&path, len)?;
            let bytes = std::fs::read(&path)?;
            for at in (0..bytes.len()).step_by(bytes.len().div_ceil(2000)) {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << (at % 8);
                std::fs::write(&path, &flipped)?;
                // Reads every byte, even those that no reader requests.
                let all = CheckedFile::open(&path)
                    .map(|file| file.get_bytes(0, file.data_bytes as usize).is_ok());
                assert!(!matches!(all, Ok(true)), "{len} rows, byte {at}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_file_that_is_no_part_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("part");
        assert!(matches!(CheckedFile::open(&path), Err(Error::Missing { .. })));
        for content in [0, 16, 100_000].into_iter().flat_map(|len| [vec![0; len], vec![0xff; len]])
        {
            std::fs::write(&path, content)?;
            assert!(matches!(CheckedFile::open(&path), Err(Error::Decode { .. })));
        }
        Ok(())
    }
}
