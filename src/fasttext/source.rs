//! Reads numbers and texts of a file with a known size. A length in the file is checked against the
//! bytes that are left before memory is allocated.

use std::io::{self, ErrorKind, Read};

/// Number of floats that are read at a time.
const FLOATS: usize = 1 << 16;

/// Returns an error of the kind `InvalidData`: the content of the file is wrong, not the reading.
pub(super) fn broken<T>(reason: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, reason.into()))
}

/// Reads a file from its start, little-endian, and computes its digest.
pub(super) struct ModelReader<R> {
    reader: R,
    pub(super) left: u64,
    hasher: blake3::Hasher,
}

impl<R: Read> ModelReader<R> {
    pub(super) fn new(reader: R, bytes: u64) -> Self {
        Self { reader, left: bytes, hasher: blake3::Hasher::new() }
    }

    /// Reads the next bytes and adds them to the digest; fails if fewer are left.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.len() as u64 > self.left {
            return broken("ends too early");
        }
        self.reader.read_exact(buffer)?;
        self.hasher.update(buffer);
        self.left -= buffer.len() as u64;
        Ok(())
    }

    pub(super) fn read_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn read_i32(&mut self) -> io::Result<i32> {
        self.read_array().map(i32::from_le_bytes)
    }

    pub(super) fn read_i64(&mut self) -> io::Result<i64> {
        self.read_array().map(i64::from_le_bytes)
    }

    /// Reads a byte, which must be 0 or 1.
    pub(super) fn read_bool(&mut self) -> io::Result<bool> {
        match self.read_array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => broken(format!("has {other} where only 0 and 1 can be")),
        }
    }

    /// Reads a count of `what`, which must not be negative.
    pub(super) fn read_count(&mut self, what: &str) -> io::Result<usize> {
        let count = self.read_i64()?;
        usize::try_from(count).or_else(|_| broken(format!("has {count} {what}")))
    }

    /// Fails unless the bytes that are left can hold `count` entries of at least `size` bytes.
    pub(super) fn check_left(&self, count: usize, size: usize, what: &str) -> io::Result<()> {
        let left = self.left;
        if count as u128 * size as u128 <= u128::from(left) {
            return Ok(());
        }
        broken(format!("ends too early: it announces {count} {what}, {left} bytes are left"))
    }

    /// Reads `len` bytes; `what` names them in errors.
    pub(super) fn read_bytes(&mut self, len: usize, what: &str) -> io::Result<Vec<u8>> {
        self.check_left(len, 1, what)?;
        let mut bytes = vec![0; len];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads `len` values of f32; `what` names them in errors.
    pub(super) fn read_floats(&mut self, len: usize, what: &str) -> io::Result<Vec<f32>> {
        self.check_left(len, size_of::<f32>(), what)?;
        let mut floats = Vec::with_capacity(len);
        let mut buffer = vec![[0; 4]; FLOATS.min(len)];
        while floats.len() < len {
            buffer.truncate(len - floats.len());
            self.fill(buffer.as_flattened_mut())?;
            floats.extend(buffer.iter().copied().map(f32::from_le_bytes));
        }
        Ok(floats)
    }

    /// Appends the bytes up to the next zero, and skips the zero.
    pub(super) fn read_text(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        loop {
            match self.read_array()? {
                [0] => return Ok(()),
                [byte] => text.push(byte),
            }
        }
    }

    /// Returns the digest of all bytes; fails if bytes are left.
    pub(super) fn finish(self) -> io::Result<String> {
        if self.left > 0 {
            return broken(format!("goes on for {} bytes after its end", self.left));
        }
        Ok(self.hasher.finalize().to_hex().to_string())
    }
}
