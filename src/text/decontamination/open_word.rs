//! A word that is put together, with its place in the text.

use std::ops::Range;

/// A word in normal form; empty before its first part and after its end.
pub(super) struct OpenWord<F> {
    /// Gets each word at its end.
    pub(super) take: F,
    word: Vec<u8>,
    /// Place of its characters in the text, in bytes.
    pub(super) place: Range<usize>,
}

impl<F: FnMut(&[u8], Range<usize>)> OpenWord<F> {
    pub(super) fn new(take: F) -> Self {
        Self { take, word: Vec::new(), place: 0..0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.word.is_empty()
    }

    /// Adds the normal form of the characters at `place`.
    pub(super) fn push(&mut self, form: &[u8], place: Range<usize>) {
        if self.word.is_empty() {
            self.place.start = place.start;
        }
        self.place.end = place.end;
        // Most are short, and copying a known number of bytes takes no call.
        match *form {
            [a] => self.word.push(a),
            [a, b] => self.word.extend_from_slice(&[a, b]),
            [a, b, c] => self.word.extend_from_slice(&[a, b, c]),
            _ => self.word.extend_from_slice(form),
        }
    }

    /// Passes on the word, if there is one.
    pub(super) fn end(&mut self) {
        if !self.word.is_empty() {
            (self.take)(&self.word, self.place.clone());
            self.word.clear();
        }
    }
}
