//! Splits normalized text into words and encodes them: handles spaces, the metaspace, and a cache.
//! A word is the unit that the model gets: `▁` and the text up to the next one. Text arrives as it
//! is normalized, and only the current word is kept, so the work stops once there are enough ids.

use super::added_tokens::AddedTokens;
use super::bpe::Symbols;
use super::cache::WordCache;
use super::charmap::{CharMap, META};
use super::segments::Flow;
use super::unigram::{Lattice, Unigram};

/// Bytes at which the certain part of an unfinished word is encoded, for scripts without spaces.
const LONG_WORD: usize = if cfg!(test) { 24 } else { 1024 };
/// Number of ids and bytes whose memory is kept from text to text.
const KEPT: usize = 1 << 18;

/// XLM-RoBERTa's pipeline after the search for added tokens in the original text.
pub(super) struct WordModel {
    pub(super) map: CharMap,
    /// `WhitespaceSplit`: any white space ends a word and is dropped, and the next two do not apply.
    pub(super) splits: bool,
    /// `Strip` at the right end of a segment.
    pub(super) strips_end: bool,
    /// `Replace`: two or more `' '` become one `▁`.
    pub(super) collapses: bool,
    pub(super) unigram: Unigram,
    /// Added tokens that are searched in normalized text.
    pub(super) added_tokens: Option<AddedTokens>,
}

/// Where the current word begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum WordStart {
    /// Start of a segment, or text after an added token: the word's `▁` is not in the text.
    #[default]
    Segment,
    /// `▁` or `' '` in the text.
    Space,
    /// The middle of a long word whose beginning is already encoded.
    Continued,
}

/// Memory that is reused for every text.
#[derive(Default)]
pub(super) struct WordScratch {
    /// Ids of the text so far.
    pub(super) ids: Vec<u32>,
    /// Number of ids that is enough.
    pub(super) limit: usize,
    /// The current word; empty before the first one.
    word: String,
    start: WordStart,
    /// White space that is dropped if the segment ends.
    pending: String,
    /// Bytes at which an unfinished word is examined.
    long: usize,
    /// Paths through the word as far as it was examined.
    lattice: Lattice,
    pub(super) cache: WordCache,
    /// Used by the pipelines without words.
    pub(super) symbols: Symbols,
}

impl WordScratch {
    /// Breaks if there are enough ids.
    pub(super) fn break_if_enough(&self) -> Flow {
        if self.ids.len() >= self.limit { Flow::Break(()) } else { Flow::Continue(()) }
    }

    /// Empties the current word, with what was examined of it.
    pub(super) fn forget_word(&mut self) {
        self.word.clear();
        self.lattice.restart(0.0);
        self.long = LONG_WORD;
    }

    /// Forgets the text, and frees the memory that an unusually long one used.
    pub(super) fn shrink(&mut self) {
        self.forget_word();
        self.ids.clear();
        self.pending.clear();
        self.ids.shrink_to(KEPT);
        self.word.shrink_to(KEPT);
        self.pending.shrink_to(KEPT);
        self.symbols.shrink_to(KEPT);
    }
}

/// Writes normalized text as ids into `scratch`.
pub(super) struct WordWriter<'a> {
    pub(super) model: &'a WordModel,
    pub(super) scratch: &'a mut WordScratch,
}

impl WordWriter<'_> {
    /// Writes `text`, of which no character is white space or [`META`].
    #[inline]
    pub(super) fn write_plain(&mut self, text: &str) -> Flow {
        if text.is_empty() {
            return Flow::Continue(());
        }
        if !self.scratch.pending.is_empty() {
            self.write_pending()?;
        }
        self.append_to_word(text)
    }

    /// Writes `text`, which may hold white space and metas.
    pub(super) fn write_mixed(&mut self, text: &str) -> Flow {
        text.chars().try_for_each(|c| self.write_char(c))
    }

    /// Writes any character.
    pub(super) fn write_char(&mut self, c: char) -> Flow {
        let mut bytes = [0; 4];
        match c {
            META => {
                self.write_pending()?;
                self.start_word()
            }
            c if c.is_whitespace() => self.write_blank(c.encode_utf8(&mut bytes)),
            c => self.write_plain(c.encode_utf8(&mut bytes)),
        }
    }

    /// Ends the segment: drops or writes the pending white space, and ends the last word.
    pub(super) fn end_segment(&mut self) -> Flow {
        if self.model.strips_end {
            self.scratch.pending.clear();
        } else {
            self.write_pending()?;
        }
        self.end_word()
    }

    /// Ends the word if white space splits; else keeps `blank` until text follows.
    #[inline]
    fn write_blank(&mut self, blank: &str) -> Flow {
        if self.model.splits {
            return self.end_word();
        }
        self.scratch.pending.push_str(blank);
        Flow::Continue(())
    }

    /// Writes the pending white space: spaces start words, all other kinds are text.
    fn write_pending(&mut self) -> Flow {
        if self.scratch.pending == " " {
            self.scratch.pending.clear();
            return self.start_word();
        }
        let pending = std::mem::take(&mut self.scratch.pending);
        for run in pending.as_bytes().chunk_by(|a, b| (*a == b' ') == (*b == b' ')) {
            match (run, std::str::from_utf8(run)) {
                ([b' ', b' ', ..], _) if self.model.collapses => self.start_word()?,
                ([b' ', ..], _) => run.iter().try_for_each(|_| self.start_word())?,
                // A run between spaces consists of whole characters.
                (_, blanks) => {
                    let mut chars = blanks.unwrap_or_default().chars();
                    chars.try_for_each(|c| self.append_to_word(c.encode_utf8(&mut [0; 4])))?;
                }
            }
        }
        // Keeps the memory for the next run.
        self.scratch.pending = pending;
        self.scratch.pending.clear();
        Flow::Continue(())
    }

    /// Appends to the current word, or starts one; a long word is encoded as far as it is certain.
    #[inline]
    fn append_to_word(&mut self, text: &str) -> Flow {
        let scratch = &mut *self.scratch;
        if scratch.word.is_empty() {
            scratch.word.push(META);
            scratch.start = WordStart::Segment;
        }
        scratch.word.push_str(text);
        if scratch.word.len() >= scratch.long {
            self.encode_certain_part()
        } else {
            Flow::Continue(())
        }
    }

    /// Ends the current word and starts the next one with the `▁` of the text.
    #[inline]
    fn start_word(&mut self) -> Flow {
        self.end_word()?;
        self.scratch.word.push(META);
        self.scratch.start = WordStart::Space;
        Flow::Continue(())
    }

    /// Encodes what is left of the current word, added tokens in it too, and empties it.
    #[inline]
    fn end_word(&mut self) -> Flow {
        if self.scratch.word.is_empty() {
            return Flow::Continue(());
        }
        while self.take_added_token(0) {}
        if !self.scratch.word.is_empty() {
            self.tokenize_word();
        }
        self.scratch.forget_word();
        self.scratch.break_if_enough()
    }

    /// Appends the ids of the word, from the cache if it is short.
    #[inline]
    fn tokenize_word(&mut self) {
        let WordScratch { ids, word, start, lattice, cache, .. } = &mut *self.scratch;
        let mut encode = |ids: &mut Vec<u32>| {
            self.model.unigram.forward(word, lattice);
            self.model.unigram.append_path(word.len(), lattice, ids);
        };
        if *start == WordStart::Continued {
            encode(ids);
        } else {
            cache.append(&word.as_bytes()[META.len_utf8().min(word.len())..], ids, encode);
        }
    }

    /// Encodes and removes the part of a long word that is certain whatever follows. Without such a
    /// part, the word is examined again at twice its length.
    #[cold]
    fn encode_certain_part(&mut self) -> Flow {
        let margin = self.model.added_tokens.as_ref().map_or(0, |tokens| tokens.longest);
        while self.take_added_token(margin) {}
        self.scratch.break_if_enough()?;
        let WordScratch { ids, word, start, lattice, long, .. } = &mut *self.scratch;
        // Text that could be part of an added token is left alone.
        let known = word.floor_char_boundary(word.len().saturating_sub(2 * margin));
        self.model.unigram.forward(&word[..known], lattice);
        let Some((settled, score_there)) = self.model.unigram.find_settled(&word[..known], lattice)
        else {
            *long = word.len() * 2;
            return Flow::Continue(());
        };
        self.model.unigram.append_path(settled, lattice, ids);
        word.drain(..settled);
        lattice.restart(score_there);
        *start = WordStart::Continued;
        *long = word.len() * 2 + LONG_WORD;
        self.scratch.break_if_enough()
    }

    /// Encodes the word up to its first added token, and that token; the word is then the rest.
    /// Does so only if at least `margin` bytes follow, so that no longer token starts there.
    /// Returns false if there is no such token or there are enough ids.
    fn take_added_token(&mut self, margin: usize) -> bool {
        let Some(added_tokens) = &self.model.added_tokens else { return false };
        let scratch = &mut *self.scratch;
        let text_at = if scratch.start == WordStart::Continued { 0 } else { META.len_utf8() };
        let text_at = text_at.min(scratch.word.len());
        let found = added_tokens.find(&scratch.word, text_at);
        let found = found.filter(|(_, place)| place.end + margin <= scratch.word.len());
        let Some((&(id, _), place)) = found else { return false };
        let rest = scratch.word.split_off(place.end);
        scratch.word.truncate(place.start);
        // Without text before the token, the word's own `▁` is not in the text either.
        if place.start > text_at || self.scratch.start == WordStart::Space {
            self.tokenize_word();
        }
        self.scratch.forget_word();
        if self.scratch.break_if_enough().is_break() {
            return false;
        }
        self.scratch.ids.push(id);
        self.scratch.start = WordStart::Segment;
        if !rest.is_empty() {
            self.scratch.word.push(META);
            self.scratch.word.push_str(&rest);
        }
        true
    }
}
