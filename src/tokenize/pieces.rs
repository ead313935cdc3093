//! Normalized text to pieces and pieces to ids: spaces, the metaspace, words of the model.
//!
//! A piece is what the model gets at once: `▁` and what follows up to the next one. Text comes in
//! as it is normalized; only the piece that is being written is kept, so a reader who wants the
//! first ids stops the work behind them.

use std::ops::ControlFlow;

use super::cache::{self, Cache};
use super::charmap::{META, Normal};
use super::lattice::Lattice;
use super::literals::Literals;
use super::unigram::Unigram;

/// Bytes at which what is certain of an unfinished piece becomes ids: scripts without spaces.
const LONG_PIECE: usize = if cfg!(test) { 24 } else { 1024 };

/// Ids and bytes for which memory is kept from text to text.
const KEPT: usize = 1 << 18;

/// Goes on, or stops because there are enough ids.
pub(super) type Flow<T = ()> = ControlFlow<(), T>;

/// What the pipeline does with white space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spacing {
    /// `WhitespaceSplit`: any white space ends a piece and is dropped. Then nothing else applies.
    pub(super) splits: bool,
    /// `Strip` on the right of a segment.
    pub(super) strips_end: bool,
    /// `Replace`: two and more `' '` are one `▁`.
    pub(super) collapses: bool,
}

/// What the pieces are made for and with.
pub(super) struct Model {
    pub(super) spacing: Spacing,
    pub(super) unigram: Unigram,
    /// Added tokens that are looked for in normalized text.
    pub(super) literals: Option<Literals>,
}

/// Where a piece comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    /// The start of a segment, or text behind an added token: its `▁` is not in the text.
    Start,
    /// `▁` in the text, or `' '`.
    Sign,
    /// The rest of a long piece.
    Rest,
}

/// Memory that is used again for every text.
pub(super) struct Scratch {
    /// Ids of the text so far.
    pub(super) ids: Vec<u32>,
    /// The piece that is being written; empty before the first one.
    piece: String,
    head: Head,
    /// White space that is dropped if the segment ends.
    pending: String,
    /// Bytes at which the piece is looked at before its end.
    long: usize,
    /// Ways through the piece as far as it was looked at.
    lattice: Lattice,
    cache: Cache,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            ids: Vec::new(),
            piece: String::new(),
            head: Head::Start,
            pending: String::new(),
            long: LONG_PIECE,
            lattice: Lattice::default(),
            cache: Cache::new(),
        }
    }

    /// Gives back what a text of unusual length took.
    pub(super) fn shrink(&mut self) {
        self.ids.clear();
        self.piece.clear();
        self.pending.clear();
        self.ids.shrink_to(KEPT);
        self.piece.shrink_to(KEPT);
        self.pending.shrink_to(KEPT);
    }
}

/// Takes the normalized text of one text, segment by segment.
pub(super) struct Writer<'a> {
    model: &'a Model,
    scratch: &'a mut Scratch,
    /// Ids that are enough.
    limit: usize,
}

impl<'a> Writer<'a> {
    /// For a new text.
    pub(super) fn new(model: &'a Model, scratch: &'a mut Scratch, limit: usize) -> Self {
        scratch.ids.clear();
        scratch.pending.clear();
        let mut writer = Self { model, scratch, limit };
        writer.forget_piece();
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
            return self.end_piece();
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
        self.end_piece()
    }

    fn meta(&mut self) -> Flow {
        self.write_pending()?;
        self.start_piece(Head::Sign)
    }

    fn blank(&mut self, blank: &str) -> Flow {
        if self.model.spacing.splits {
            return self.end_piece();
        }
        self.scratch.pending.push_str(blank);
        Flow::Continue(())
    }

    fn write_pending(&mut self) -> Flow {
        if self.scratch.pending == " " {
            self.scratch.pending.clear();
            return self.start_piece(Head::Sign);
        }
        let pending = std::mem::take(&mut self.scratch.pending);
        for run in pending.as_bytes().chunk_by(|a, b| (*a == b' ') == (*b == b' ')) {
            match (run, std::str::from_utf8(run)) {
                ([b' ', b' ', ..], _) if self.model.spacing.collapses => {
                    self.start_piece(Head::Sign)?;
                }
                ([b' ', ..], _) => {
                    run.iter().try_for_each(|_| self.start_piece(Head::Sign))?;
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
        if scratch.piece.is_empty() {
            scratch.piece.push(META);
            scratch.head = Head::Start;
        }
        scratch.piece.push_str(text);
        if scratch.piece.len() >= scratch.long { self.shorten() } else { Flow::Continue(()) }
    }

    #[inline]
    fn start_piece(&mut self, head: Head) -> Flow {
        self.end_piece()?;
        self.scratch.piece.push(META);
        self.scratch.head = head;
        Flow::Continue(())
    }

    #[inline]
    fn end_piece(&mut self) -> Flow {
        if self.scratch.piece.is_empty() {
            return Flow::Continue(());
        }
        while self.cut_literal(0) {}
        if !self.scratch.piece.is_empty() {
            self.tokenize_piece();
        }
        self.forget_piece();
        self.enough()
    }

    fn enough(&self) -> Flow {
        if self.scratch.ids.len() >= self.limit { Flow::Break(()) } else { Flow::Continue(()) }
    }

    fn forget_piece(&mut self) {
        self.scratch.piece.clear();
        self.scratch.lattice.restart(0.0);
        self.scratch.long = LONG_PIECE;
    }

    /// Ids of the piece, from the cache if it is short.
    #[inline]
    fn tokenize_piece(&mut self) {
        let limit = self.limit.saturating_sub(self.scratch.ids.len());
        let Scratch { ids, piece, head, lattice, cache, .. } = &mut *self.scratch;
        let word = &piece.as_bytes()[META.len_utf8().min(piece.len())..];
        if word.len() > cache::LONGEST || *head == Head::Rest {
            self.model.unigram.forward(piece, lattice);
            self.model.unigram.path(piece, piece.len(), lattice, limit, ids);
            return;
        }
        let key = cache::key(word);
        if let Some(known) = cache.get(&key) {
            ids.extend_from_slice(known);
            return;
        }
        let first = ids.len();
        self.model.unigram.forward(piece, lattice);
        self.model.unigram.path(piece, piece.len(), lattice, usize::MAX, ids);
        cache.set(&key, &ids[first..]);
    }

    /// Makes ids of what is certain of a long piece, whatever follows.
    #[cold]
    fn shorten(&mut self) -> Flow {
        let margin = self.model.literals.as_ref().map_or(0, Literals::longest);
        while self.cut_literal(margin) {}
        self.enough()?;
        let limit = self.limit.saturating_sub(self.scratch.ids.len());
        let Scratch { ids, piece, head, lattice, long, .. } = &mut *self.scratch;
        // What could be part of a literal is left alone.
        let known = piece.floor_char_boundary(piece.len().saturating_sub(2 * margin));
        self.model.unigram.forward(&piece[..known], lattice);
        let Some((settled, score_there)) = self.model.unigram.settled(&piece[..known], lattice)
        else {
            *long = piece.len() * 2;
            return Flow::Continue(());
        };
        self.model.unigram.path(piece, settled, lattice, limit, ids);
        piece.drain(..settled);
        lattice.restart(score_there);
        *head = Head::Rest;
        *long = piece.len() * 2 + LONG_PIECE;
        self.enough()
    }

    /// Makes ids of the piece up to the first added token in it and of that; the piece is then
    /// what follows. Only if at least `margin` bytes follow, so that no longer token starts there.
    fn cut_literal(&mut self, margin: usize) -> bool {
        let Some(literals) = &self.model.literals else { return false };
        let scratch = &mut *self.scratch;
        let text_at = if scratch.head == Head::Rest { 0 } else { META.len_utf8() };
        let text_at = text_at.min(scratch.piece.len());
        let Some(found) = literals.find(&scratch.piece, text_at, scratch.piece.len()) else {
            return false;
        };
        if found.end + margin > scratch.piece.len() {
            return false;
        }
        let rest = scratch.piece.split_off(found.end);
        scratch.piece.truncate(found.start);
        // Without text before it, its own `▁` is not in the text either.
        if found.start > text_at || self.scratch.head == Head::Sign {
            self.tokenize_piece();
        }
        self.forget_piece();
        if self.enough().is_break() {
            return false;
        }
        self.scratch.ids.push(found.literal.id);
        self.scratch.head = Head::Start;
        if !rest.is_empty() {
            self.scratch.piece.push(META);
            self.scratch.piece.push_str(&rest);
        }
        true
    }
}
