//! Splits segments into stretches between seams (see `bpe`), and encodes the stretches.

use super::bpe::{Bpe, space_to_meta};
use super::segments::Flow;
use super::words::WordScratch;

impl Bpe {
    /// Appends the ids of a segment to those in `scratch`, stretch by stretch.
    pub(super) fn encode_segment(&self, text: &str, scratch: &mut WordScratch) -> Flow {
        let mut chars = text.char_indices();
        let Some((_, mut first)) = chars.next() else { return Flow::Continue(()) };
        let (mut start, mut last) = (0, space_to_meta(first));
        for (at, c) in chars {
            let next = space_to_meta(c);
            if !self.may_join(last, next) {
                self.encode_stretch(&text[start..at], first, scratch)?;
                (start, first) = (at, c);
            }
            last = next;
        }
        self.encode_stretch(&text[start..], first, scratch)
    }

    /// Appends the ids of a stretch that begins with `first`, from the cache if it is longer than
    /// `first`.
    #[inline]
    fn encode_stretch(&self, stretch: &str, first: char, scratch: &mut WordScratch) -> Flow {
        let WordScratch { ids, cache, symbols, .. } = &mut *scratch;
        if stretch.len() == first.len_utf8() {
            self.pass_symbols(space_to_meta(first), |id| ids.push(id));
        } else {
            cache.append(stretch.as_bytes(), ids, |ids| symbols.encode(stretch, self, ids));
        }
        scratch.break_if_enough()
    }
}
