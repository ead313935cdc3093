//! Gzip as the tools read it: members one after another, which zeros may follow.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// What a member begins with.
const MAGIC: u8 = 0x1F;

/// The decompressed bytes of a gzip file.
pub(super) struct GzipReader<R> {
    /// `None` behind the last member.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipReader<R> {
    pub(super) fn new(compressed: R) -> Self {
        Self { member: Some(GzDecoder::new(compressed)) }
    }
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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

/// What follows a member: another one, or nothing but zeros.
fn next_member<R: BufRead>(mut rest: R) -> io::Result<Option<R>> {
    let mut is_padded = false;
    loop {
        let buffer = rest.fill_buf()?;
        match buffer.iter().position(|&byte| byte != 0) {
            None if buffer.is_empty() => return Ok(None),
            Some(0) if buffer[0] == MAGIC && !is_padded => return Ok(Some(rest)),
            Some(_) => {
                let reason =
                    "after the compressed data comes something that is neither gzip nor zeros";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
            None => {
                is_padded = true;
                let zeros = buffer.len();
                rest.consume(zeros);
            }
        }
    }
}
