//! Splits segments into stretches between seams (see `bpe`), and encodes the stretches.

use super::bpe::{Bpe, spaced};
use super::segments::Flow;
use super::words::WordScratch;

impl Bpe {
    /// Appends the ids of a segment.
    pub(super) fn segment(&self, text: &str, scratch: &mut WordScratch) -> Flow {
        let mut chars = text.char_indices();
        let Some((_, mut first)) = chars.next() else { return Flow::Continue(()) };
        let (mut start, mut last) = (0, spaced(first));
        for (at, c) in chars {
            let next = spaced(c);
            if !self.may_join(last, next) {
                self.stretch(&text[start..at], first, scratch)?;
                (start, first) = (at, c);
            }
            last = next;
        }
        self.stretch(&text[start..], first, scratch)
    }

    /// Appends the ids of a stretch that begins with `first`.
    #[inline]
    fn stretch(&self, stretch: &str, first: char, scratch: &mut WordScratch) -> Flow {
        let WordScratch { ids, cache, symbols, .. } = &mut *scratch;
        if stretch.len() == first.len_utf8() {
            self.symbols(spaced(first), |id| ids.push(id));
        } else {
            cache.append(stretch.as_bytes(), ids, |ids| symbols.encode(stretch, self, ids));
        }
        scratch.enough()
    }
}
