//! Splits segments into stretches between seams (see `bpe`), and encodes the stretches.

use super::bpe::{Bpe, spaced};
use super::cache::{LONGEST_CACHED, key};
use super::segments::{Flow, SegmentWriter};
use super::words::WordScratch;

pub(super) struct StretchWriter<'a> {
    pub(super) model: &'a Bpe,
    pub(super) scratch: &'a mut WordScratch,
}

impl StretchWriter<'_> {
    /// Appends the ids of a stretch that begins with `first`, from the cache if it is short.
    #[inline]
    fn stretch(&mut self, stretch: &str, first: char) -> Flow {
        let WordScratch { ids, cache, symbols, .. } = &mut *self.scratch;
        if stretch.len() == first.len_utf8() {
            self.model.symbols(spaced(first), |id| ids.push(id));
        } else if stretch.len() > LONGEST_CACHED {
            symbols.encode(stretch, self.model, ids);
        } else {
            let key = key(stretch.as_bytes());
            if let Some(known) = cache.get(&key) {
                ids.extend_from_slice(known);
            } else {
                let start = ids.len();
                symbols.encode(stretch, self.model, ids);
                cache.set(&key, &ids[start..]);
            }
        }
        self.scratch.enough()
    }
}

impl SegmentWriter for StretchWriter<'_> {
    fn write(&mut self, text: &str, at: usize, goes_on: bool) -> Flow<usize> {
        let mut chars = text[at..].char_indices();
        let Some((_, mut first)) = chars.next() else { return Flow::Continue(at) };
        let (mut start, mut last) = (at, spaced(first));
        for (offset, c) in chars {
            let next = spaced(c);
            if !self.model.may_join(last, next) {
                self.stretch(&text[start..at + offset], first)?;
                (start, first) = (at + offset, c);
            }
            last = next;
        }
        if goes_on {
            return Flow::Continue(start);
        }
        self.stretch(&text[start..], first)?;
        Flow::Continue(text.len())
    }

    fn id(&mut self, id: u32) -> Flow {
        self.scratch.id(id)
    }
}
