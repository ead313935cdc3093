//! Normalized text to words and words to ids: spaces, the metaspace, the ids of the words seen last.
//!
//! A word is what the model gets at once: `▁` and what follows up to the next one. Text comes in
//! as it is normalized; only the word that is being written is kept, so a reader who wants the
//! first ids stops the work behind them.

use std::ops::ControlFlow;

use super::added_tokens::AddedTokens;
use super::charmap::{META, Normal};
use super::unigram::{Lattice, Unigram};

/// Bytes at which what is certain of an unfinished word becomes ids: scripts without spaces.
const LONG_WORD: usize = if cfg!(test) { 24 } else { 1024 };

/// Ids and bytes for which memory is kept from text to text.
const KEPT: usize = 1 << 18;

/// Goes on, or stops because there are enough ids.
pub(super) type Flow<T = ()> = ControlFlow<(), T>;

/// What the pipeline does with white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spacing {
    /// `WhitespaceSplit`: any white space ends a word and is dropped. Then nothing else applies.
    pub(super) splits: bool,
    /// `Strip` on the right of a segment.
    pub(super) strips_end: bool,
    /// `Replace`: two and more `' '` are one `▁`.
    pub(super) collapses: bool,
}

/// What the words are made for and with.
pub(super) struct WordModel {
    pub(super) spacing: Spacing,
    pub(super) unigram: Unigram,
    /// Added tokens that are looked for in normalized text.
    pub(super) added_tokens: Option<AddedTokens>,
}

/// How a word begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordStart {
    /// The start of a segment, or text behind an added token: its `▁` is not in the text.
    Segment,
    /// `▁` in the text, or `' '`.
    Space,
    /// The middle of a long word, whose beginning has its ids already.
    Continued,
}

/// Memory that is used again for every text.
pub(super) struct WordScratch {
    /// Ids of the text so far.
    pub(super) ids: Vec<u32>,
    /// The word that is being written; empty before the first one.
    word: String,
    start: WordStart,
    /// White space that is dropped if the segment ends.
    pending: String,
    /// Bytes at which the word is looked at before its end.
    long: usize,
    /// Ways through the word as far as it was looked at.
    lattice: Lattice,
    cache: WordCache,
}

impl WordScratch {
    pub(super) fn new() -> Self {
        Self {
            ids: Vec::new(),
            word: String::new(),
            start: WordStart::Segment,
            pending: String::new(),
            long: LONG_WORD,
            lattice: Lattice::default(),
            cache: WordCache::new(),
        }
    }

    /// Gives back what a text of unusual length took.
    pub(super) fn shrink(&mut self) {
        self.ids.clear();
        self.word.clear();
        self.pending.clear();
        self.ids.shrink_to(KEPT);
        self.word.shrink_to(KEPT);
        self.pending.shrink_to(KEPT);
    }
}

/// Takes the normalized text of one text, segment by segment.
pub(super) struct WordWriter<'a> {
    model: &'a WordModel,
    scratch: &'a mut WordScratch,
    /// Ids that are enough.
    limit: usize,
}

impl<'a> WordWriter<'a> {
    /// For a new text.
    pub(super) fn new(model: &'a WordModel, scratch: &'a mut WordScratch, limit: usize) -> Self {
        scratch.ids.clear();
        scratch.pending.clear();
        let mut writer = Self { model, scratch, limit };
        writer.forget_word();
        writer
    }

    /// An added token between segments.
    pub(super) fn id(&mut self, id: u32) -> Flow {
        self.scratch.ids.push(id);
        self.enough()
    }

    /// Takes text that is neither white space nor [`META`].
    #[inline]
    pub(super) fn text(&mut self, text: &str) -> Flow {
        if text.is_empty() {
            return Flow::Continue(());
        }
        if !self.scratch.pending.is_empty() {
            self.write_pending()?;
        }
        self.append(text)
    }

    /// Takes one `' '`.
    #[inline]
    pub(super) fn space(&mut self) -> Flow {
        if self.model.spacing.splits {
            return self.end_word();
        }
        self.scratch.pending.push(' ');
        Flow::Continue(())
    }

    /// Takes what a character or a cluster `source` became.
    pub(super) fn normal(&mut self, normal: &Normal<'_>, source: &str) -> Flow {
        match normal {
            Normal::Same => self.text(source),
            Normal::Space => self.space(),
            Normal::Meta => self.meta(),
            Normal::Blank => self.blank(source),
            Normal::Text(text) => self.any(text),
        }
    }

    /// Takes any text.
    pub(super) fn any(&mut self, text: &str) -> Flow {
        let mut bytes = [0; 4];
        for c in text.chars() {
            match c {
                ' ' => self.space()?,
                META => self.meta()?,
                c if c.is_whitespace() => self.blank(c.encode_utf8(&mut bytes))?,
                c => self.text(c.encode_utf8(&mut bytes))?,
            }
        }
        Flow::Continue(())
    }

    /// Ends a segment.
    pub(super) fn end_segment(&mut self) -> Flow {
        if self.model.spacing.strips_end {
            self.scratch.pending.clear();
        } else {
            self.write_pending()?;
        }
        self.end_word()
    }

    fn meta(&mut self) -> Flow {
        self.write_pending()?;
        self.start_word(WordStart::Space)
    }

    fn blank(&mut self, blank: &str) -> Flow {
        if self.model.spacing.splits {
            return self.end_word();
        }
        self.scratch.pending.push_str(blank);
        Flow::Continue(())
    }

    fn write_pending(&mut self) -> Flow {
        if self.scratch.pending == " " {
            self.scratch.pending.clear();
            return self.start_word(WordStart::Space);
        }
        let pending = std::mem::take(&mut self.scratch.pending);
        for run in pending.as_bytes().chunk_by(|a, b| (*a == b' ') == (*b == b' ')) {
            match (run, std::str::from_utf8(run)) {
                ([b' ', b' ', ..], _) if self.model.spacing.collapses => {
                    self.start_word(WordStart::Space)?;
                }
                ([b' ', ..], _) => {
                    run.iter().try_for_each(|_| self.start_word(WordStart::Space))?;
                }
                // Blanks are whole between bytes of spaces.
                (_, blanks) => self.append(blanks.unwrap_or_default())?,
            }
        }
        // Gives the memory back for the next run.
        self.scratch.pending = pending;
        self.scratch.pending.clear();
        Flow::Continue(())
    }

    #[inline]
    fn append(&mut self, text: &str) -> Flow {
        let scratch = &mut *self.scratch;
        if scratch.word.is_empty() {
            scratch.word.push(META);
            scratch.start = WordStart::Segment;
        }
        scratch.word.push_str(text);
        if scratch.word.len() >= scratch.long { self.shorten() } else { Flow::Continue(()) }
    }

    #[inline]
    fn start_word(&mut self, start: WordStart) -> Flow {
        self.end_word()?;
        self.scratch.word.push(META);
        self.scratch.start = start;
        Flow::Continue(())
    }

    #[inline]
    fn end_word(&mut self) -> Flow {
        if self.scratch.word.is_empty() {
            return Flow::Continue(());
        }
        while self.take_added_token(0) {}
        if !self.scratch.word.is_empty() {
            self.tokenize_word();
        }
        self.forget_word();
        self.enough()
    }

    fn enough(&self) -> Flow {
        if self.scratch.ids.len() >= self.limit { Flow::Break(()) } else { Flow::Continue(()) }
    }

    fn forget_word(&mut self) {
        self.scratch.word.clear();
        self.scratch.lattice.restart(0.0);
        self.scratch.long = LONG_WORD;
    }

    /// Ids of the word, from the cache if it is short.
    #[inline]
    fn tokenize_word(&mut self) {
        let limit = self.limit.saturating_sub(self.scratch.ids.len());
        let WordScratch { ids, word, start, lattice, cache, .. } = &mut *self.scratch;
        let text = &word.as_bytes()[META.len_utf8().min(word.len())..];
        if text.len() > LONGEST_CACHED || *start == WordStart::Continued {
            self.model.unigram.forward(word, lattice);
            self.model.unigram.path(word, word.len(), lattice, limit, ids);
            return;
        }
        let key = key(text);
        if let Some(known) = cache.get(&key) {
            ids.extend_from_slice(known);
            return;
        }
        let first = ids.len();
        self.model.unigram.forward(word, lattice);
        self.model.unigram.path(word, word.len(), lattice, usize::MAX, ids);
        cache.set(&key, &ids[first..]);
    }

    /// Makes ids of what is certain of a long word, whatever follows.
    #[cold]
    fn shorten(&mut self) -> Flow {
        let margin = self.model.added_tokens.as_ref().map_or(0, AddedTokens::longest);
        while self.take_added_token(margin) {}
        self.enough()?;
        let limit = self.limit.saturating_sub(self.scratch.ids.len());
        let WordScratch { ids, word, start, lattice, long, .. } = &mut *self.scratch;
        // What could be part of an added token is left alone.
        let known = word.floor_char_boundary(word.len().saturating_sub(2 * margin));
        self.model.unigram.forward(&word[..known], lattice);
        let Some((settled, score_there)) = self.model.unigram.settled(&word[..known], lattice)
        else {
            *long = word.len() * 2;
            return Flow::Continue(());
        };
        self.model.unigram.path(word, settled, lattice, limit, ids);
        word.drain(..settled);
        lattice.restart(score_there);
        *start = WordStart::Continued;
        *long = word.len() * 2 + LONG_WORD;
        self.enough()
    }

    /// Makes ids of the word up to the first added token in it and of that; the word is then
    /// what follows. Only if at least `margin` bytes follow, so that no longer token starts there.
    fn take_added_token(&mut self, margin: usize) -> bool {
        let Some(added_tokens) = &self.model.added_tokens else { return false };
        let scratch = &mut *self.scratch;
        let text_at = if scratch.start == WordStart::Continued { 0 } else { META.len_utf8() };
        let text_at = text_at.min(scratch.word.len());
        let Some(found) = added_tokens.find(&scratch.word, text_at, scratch.word.len()) else {
            return false;
        };
        if found.end + margin > scratch.word.len() {
            return false;
        }
        let rest = scratch.word.split_off(found.end);
        scratch.word.truncate(found.start);
        // Without text before it, its own `▁` is not in the text either.
        if found.start > text_at || self.scratch.start == WordStart::Space {
            self.tokenize_word();
        }
        self.forget_word();
        if self.enough().is_break() {
            return false;
        }
        self.scratch.ids.push(found.token.id);
        self.scratch.start = WordStart::Segment;
        if !rest.is_empty() {
            self.scratch.word.push(META);
            self.scratch.word.push_str(&rest);
        }
        true
    }
}

/// Bytes of the longest word that is kept.
const LONGEST_CACHED: usize = 31;
/// Most ids of a word that is kept.
const MOST_IDS: usize = 7;
/// log2 of the entries: 1 MiB, half of a usual core's second-level cache.
const BITS: u32 = 14;

/// A word padded with zeros, its length and one in the last byte; all zeros is no word.
type WordKey = [u64; 4];

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct CacheEntry {
    key: WordKey,
    ids: [u32; MOST_IDS],
    len: u32,
}

/// Ids of the words seen last: a fixed table, one cache line an entry, newer words replace older.
struct WordCache(Box<[CacheEntry]>);

impl WordCache {
    fn new() -> Self {
        Self(vec![CacheEntry::default(); 1 << BITS].into_boxed_slice())
    }

    /// The ids of a word.
    #[inline]
    fn get(&self, key: &WordKey) -> Option<&[u32]> {
        let entry = &self.0[slot(key)];
        (entry.key == *key).then(|| &entry.ids[..entry.len as usize])
    }

    /// Keeps the ids of a word if they fit.
    fn set(&mut self, key: &WordKey, ids: &[u32]) {
        if ids.len() <= MOST_IDS {
            let entry = &mut self.0[slot(key)];
            entry.key = *key;
            entry.ids[..ids.len()].copy_from_slice(ids);
            entry.len = ids.len() as u32;
        }
    }
}

/// The key of a word of at most [`LONGEST_CACHED`] bytes.
#[inline]
fn key(word: &[u8]) -> WordKey {
    let mut bytes = [0u8; 32];
    bytes[..word.len()].copy_from_slice(word);
    bytes[LONGEST_CACHED] = word.len() as u8 + 1;
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

#[inline]
fn slot(key: &WordKey) -> usize {
    // Odd constants of splitmix64 and friends; the products mix, the high bits are taken.
    let a = (key[0] ^ key[2].rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let b = (key[1] ^ key[3].rotate_left(32)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (a ^ b.rotate_left(29) ^ (a >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed >> (u64::BITS - BITS)) as usize
}
