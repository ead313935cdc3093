//! Repetition and definition levels of a Parquet page, run by run.
//!
//! The encoding is Parquet's hybrid of runs and bit-packed groups. Long lists of floats are one
//! run after another, so that what a level says is looked at once per run and not once per value.

use bytes::Bytes;

/// Values of a bit-packed group.
const GROUP: usize = 8;

/// The levels of a page that were not taken yet.
#[derive(Debug)]
pub(super) struct Levels {
    bytes: Bytes,
    /// Bits of a level, at most 8; 0 where all levels are 0 and none is stored.
    width: usize,
    /// Levels of the page not taken yet.
    left: usize,
    /// The run in progress, and how much of it is left.
    run: (u8, usize),
    /// Levels left in the bit-packed run in progress, and the bit at which the next one begins.
    packed: (usize, usize),
}

impl Levels {
    /// `count` levels of at most `max`, encoded in `bytes`.
    pub(super) fn new(bytes: Bytes, max: i16, count: usize) -> Self {
        let width = (16 - max.leading_zeros()) as usize;
        Self { bytes, width, left: count, run: (0, 0), packed: (0, 0) }
    }

    /// Number of levels not taken yet.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The next level; `None` as [`Levels::next_run`].
    pub(super) fn peek(&mut self) -> Option<u8> {
        while self.run.1 == 0 {
            if self.left == 0 {
                return None;
            }
            self.run = self.decode()?;
        }
        (self.left > 0).then_some(self.run.0)
    }

    /// Takes the next levels that are equal, at most `limit` of them (and at most those of one run
    /// of the encoding). `None` at the end, and where the encoding ends too early or is broken.
    pub(super) fn next_run(&mut self, limit: usize) -> Option<(u8, usize)> {
        let level = self.peek()?;
        let length = self.run.1;
        let taken = length.min(limit).min(self.left);
        self.run.1 -= taken;
        self.left -= taken;
        Some((level, taken))
    }

    /// The next run of the encoding.
    fn decode(&mut self) -> Option<(u8, usize)> {
        if self.width == 0 {
            return Some((0, self.left));
        }
        if self.packed.0 > 0 {
            return self.decode_packed();
        }
        let header = self.varint()?;
        let count = usize::try_from(header >> 1).ok()?;
        if header & 1 == 0 {
            let level = *self.bytes.first()?;
            self.bytes = self.bytes.slice(1..);
            return Some((level, count));
        }
        self.packed = (count.checked_mul(GROUP)?, 0);
        let length = count.checked_mul(self.width)?;
        if length > self.bytes.len() {
            return None;
        }
        if count == 0 { Some((0, 0)) } else { self.decode_packed() }
    }

    /// The next equal levels of the bit-packed run in progress.
    fn decode_packed(&mut self) -> Option<(u8, usize)> {
        let level = self.packed_level(self.packed.1)?;
        let mut length = 0;
        while self.packed.0 > 0 && self.packed_level(self.packed.1) == Some(level) {
            length += 1;
            self.packed.0 -= 1;
            self.packed.1 += self.width;
        }
        if self.packed.0 == 0 {
            self.bytes = self.bytes.slice(self.packed.1.div_ceil(8)..);
        }
        Some((level, length))
    }

    /// The level that begins at `bit`.
    fn packed_level(&self, bit: usize) -> Option<u8> {
        let byte = |at: usize| self.bytes.get(at).map(|&byte| u16::from(byte));
        let both = byte(bit / 8)? | byte(bit / 8 + 1).unwrap_or(0) << 8;
        Some((both >> (bit % 8)) as u8 & ((1u16 << self.width) - 1) as u8)
    }

    /// An unsigned number in seven bits a byte, least significant first.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (place, &byte) in self.bytes.iter().enumerate().take(9) {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.bytes = self.bytes.slice(place + 1..);
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All levels, taken at most `limit` at a time.
    fn all(encoded: &[u8], max: i16, count: usize, limit: usize) -> Vec<u8> {
        let mut levels = Levels::new(Bytes::copy_from_slice(encoded), max, count);
        let mut found = Vec::new();
        while let Some((level, length)) = levels.next_run(limit) {
            found.extend(std::iter::repeat_n(level, length));
        }
        found
    }

    #[test]
    fn the_bit_packed_example_of_the_format_is_read() {
        // 0 to 7 in three bits each, from Parquet's description of its encodings.
        let encoded = [0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        for limit in [1, 3, 100] {
            assert_eq!(all(&encoded, 7, 8, limit), [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        // The group is filled up beyond the last level.
        assert_eq!(all(&encoded, 7, 5, 100), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn runs_and_groups_follow_each_other() {
        // A bit-packed group 0, 2 seven times (two bits each), then 300 times 2.
        let encoded = [0b11, 0b1010_1000, 0b1010_1010, 0b1101_1000, 0b100, 2];
        let expected: Vec<u8> = std::iter::once(0).chain([2; 307]).collect();
        for limit in [1, 64, 1000] {
            assert_eq!(all(&encoded, 2, 308, limit), expected);
        }
    }

    #[test]
    fn a_column_without_levels_has_zeros() {
        assert_eq!(all(&[], 0, 3, 2), [0, 0, 0]);
    }

    #[test]
    fn what_ends_too_early_ends_the_levels() {
        for encoded in [&[][..], &[0b11], &[0b11, 0], &[0x80], &[4], &[0xff; 12]] {
            assert!(all(encoded, 7, 20, 100).len() < 20, "{encoded:?}");
        }
    }
}
