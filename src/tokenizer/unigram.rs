//! The best segmentation of a word under a unigram model, as the `tokenizers` crate finds
//! it: same sums in f64, and among equal scores the piece that starts first wins.

use std::collections::HashMap;

use daachorse::{CharwiseDoubleArrayAhoCorasick, CharwiseDoubleArrayAhoCorasickBuilder};

/// Ids of a path that are kept however few are wanted.
const MOST_IDS: usize = 1 << 12;

/// How far below the lowest score of the vocabulary an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// An entry of the vocabulary.
#[derive(Debug, Clone, Copy)]
struct Piece {
    id: u32,
    score: f64,
}

/// The model.
pub(super) struct Unigram {
    /// Finds all pieces that end at a character, the longest first.
    pieces: CharwiseDoubleArrayAhoCorasick<Piece>,
    /// Pieces of one character that is in no other. Thousands of them at the root of `pieces` would make
    /// that take several times as long to build.
    lone: HashMap<char, Piece>,
    unknown: Piece,
    /// Bytes of the longest piece.
    longest: usize,
}

impl Unigram {
    /// Of `vocabulary`, where ids are places; a later one of two equal pieces counts. `None` if
    /// there are too many.
    pub(crate) fn new(vocabulary: &[(impl AsRef<str>, f64)], unknown: u32) -> Option<Self> {
        let mut pieces: Vec<(&str, Piece)> = Vec::with_capacity(vocabulary.len());
        for (id, (text, score)) in vocabulary.iter().enumerate() {
            pieces.push((text.as_ref(), Piece { id: id as u32, score: *score }));
        }
        pieces.retain(|piece| !piece.0.is_empty());
        pieces.sort_unstable_by(|a, b| (a.0, b.1.id).cmp(&(b.0, a.1.id)));
        pieces.dedup_by_key(|piece| piece.0);
        let lowest = vocabulary.iter().map(|v| v.1).fold(f64::INFINITY, f64::min);
        let longest = pieces.iter().map(|piece| piece.0.len()).max().unwrap_or(0);
        let lone = take_lone(&mut pieces);
        let pieces = CharwiseDoubleArrayAhoCorasickBuilder::new().build_with_values(pieces).ok()?;
        let unknown = Piece { id: unknown, score: lowest - UNKNOWN_PENALTY };
        // An unknown character is a piece too.
        Some(Self { pieces, lone, unknown, longest: longest.max(char::MAX.len_utf8()) })
    }

    /// Goes on with `lattice` to the end of `text`, which begins with all that was read before.
    pub(super) fn forward(&self, text: &str, lattice: &mut Lattice) {
        lattice.restart_if_beyond(text.len());
        loop {
            let to = lattice.block_end(text, self.longest);
            self.extend(text, to, lattice);
            if to == text.len() {
                return;
            }
            lattice.next_block(text, self.longest);
        }
    }

    /// Finds the best ways to the bytes of `text` up to `to`, in the block that `lattice` holds.
    fn extend(&self, text: &str, to: usize, lattice: &mut Lattice) {
        let (first, from) = (lattice.first(), lattice.end());
        let nodes = lattice.grow(to);
        // A piece that ends here starts behind `read`, so what is before need not be known.
        let read = text.floor_char_boundary(from.saturating_sub(self.longest)).max(first);
        let mut stepper = self.pieces.find_overlapping_stepper();
        text[read..from].chars().for_each(|c| stepper.consume(c));
        let mut end = from - first;
        for c in text[from..to].chars() {
            stepper.consume(c);
            let start_of_char = end;
            end += c.len_utf8();
            let mut best: Option<LatticeNode> = None;
            let mut start = 0;
            for found in stepper.matches() {
                start = found.start() + (read - first);
                let piece = found.value();
                let score = piece.score + nodes[start].score;
                if best.is_none_or(|best| score > best.score) {
                    best = Some(LatticeNode { score, bytes: (end - start) as u32, id: piece.id });
                }
            }
            // Pieces come longest first: a last one that is not this character says it is none.
            let is_piece = best.is_some() && start == start_of_char;
            if !is_piece {
                let Piece { id, score } = *self.lone.get(&c).unwrap_or(&self.unknown);
                let score = score + nodes[start_of_char].score;
                if best.is_none_or(|best| score > best.score) {
                    best = Some(LatticeNode { score, bytes: c.len_utf8() as u32, id });
                }
            }
            nodes[end] = best.unwrap_or_default();
        }
    }

    /// Appends the ids on the best way to the byte `end` of the text that `lattice` is of, or the
    /// first of them and at least `limit`; unknown characters side by side are one piece. The
    /// lattice has to be restarted afterwards.
    pub(crate) fn path(
        &self,
        text: &str,
        end: usize,
        lattice: &mut Lattice,
        limit: usize,
        ids: &mut Vec<u32>,
    ) {
        let first = ids.len();
        let mut end = end;
        // Where the unknown characters end of which `end` is the start.
        let mut unknown_end = None;
        while end > 0 {
            let Some(node) = lattice.node(end) else {
                lattice.last_block();
                let to = lattice.block_end(text, self.longest);
                self.extend(text, to, lattice);
                continue;
            };
            if node.id == self.unknown.id {
                unknown_end.get_or_insert(end);
            } else {
                ids.extend(unknown_end.take().map(|to| self.unknown_id(&text[end..to])));
                ids.push(node.id);
            }
            end -= node.bytes as usize;
            // The ids come last to first.
            if ids.len() - first > MOST_IDS.max(limit).saturating_mul(2) {
                ids.drain(first..ids.len() - limit);
            }
        }
        ids.extend(unknown_end.map(|to| self.unknown_id(&text[..to])));
        ids[first..].reverse();
    }

    /// How much of the best segmentation is the same whatever follows the text that `lattice` is of,
    /// without unknown characters at its end, and the score up to there. `None` if that is nothing, or
    /// more than the block that is held can decide.
    ///
    /// Every segmentation of a longer text has a border among the last `longest` bytes; what the
    /// best ways to all of these share is settled.
    pub(super) fn settled(&self, text: &str, lattice: &Lattice) -> Option<(usize, f64)> {
        let mut settled = text.len();
        let borders = text.len().saturating_sub(self.longest)..text.len();
        for border in borders.filter(|&at| text.is_char_boundary(at)) {
            let mut other = border;
            while other != settled {
                let later = if other > settled { &mut other } else { &mut settled };
                *later -= lattice.node(*later)?.bytes as usize;
            }
        }
        while settled > 0 {
            let node = lattice.node(settled)?;
            if node.id != self.unknown.id {
                return Some((settled, node.score));
            }
            settled -= node.bytes as usize;
        }
        None
    }

    /// The id of unknown characters side by side: they may be a piece together.
    fn unknown_id(&self, text: &str) -> u32 {
        self.id_of(text).unwrap_or(self.unknown.id)
    }

    /// The id of a text that is one piece.
    fn id_of(&self, text: &str) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        let mut stepper = self.pieces.find_overlapping_stepper();
        text.chars().for_each(|c| stepper.consume(c));
        stepper.matches().find(|found| found.start() == 0).map(|found| found.value().id)
    }
}

/// Takes the pieces of one character of the Basic Multilingual Plane that is in no other.
fn take_lone(pieces: &mut Vec<(&str, Piece)>) -> HashMap<char, Piece> {
    let mut occurrences = vec![0u32; 0x1_0000];
    for c in pieces.iter().flat_map(|piece| piece.0.chars()) {
        if let Some(count) = occurrences.get_mut(c as usize) {
            *count += 1;
        }
    }
    let is_lone = |c: &char| occurrences.get(*c as usize) == Some(&1);
    let mut lone = HashMap::new();
    pieces.retain(|(text, piece)| {
        let mut chars = text.chars();
        let only = chars.next().filter(|c| is_lone(c) && chars.as_str().is_empty());
        only.is_none_or(|c| {
            lone.insert(c, *piece);
            false
        })
    });
    lone
}

/// Bytes of a block, besides those at its start that it shares with the one before.
const BLOCK: usize = if cfg!(test) { 96 } else { 1 << 16 };

/// The best way to a byte of the text: the last piece on it, its length, the score.
#[derive(Debug, Clone, Copy, Default)]
struct LatticeNode {
    score: f64,
    bytes: u32,
    id: u32,
}

/// The best ways through a text, in memory that hardly grows with it.
///
/// Held are the nodes of one block of the text. What the blocks before it began with is kept, so
/// that each can be made again when the path is followed back; a text without any border that is
/// certain (one letter a million times) takes little more than its own bytes.
#[derive(Default)]
pub(super) struct Lattice {
    /// Of the bytes from `first` to `end`, and unused ones behind them.
    nodes: Vec<LatticeNode>,
    first: usize,
    end: usize,
    score_before: f64,
    /// What every block but the first began with: its first byte, and the nodes from there on that
    /// it shares with the one before.
    starts: Vec<(usize, Vec<LatticeNode>)>,
}

impl Lattice {
    /// For a new text that follows on what has this score.
    #[inline]
    pub(super) fn restart(&mut self, score_before: f64) {
        self.score_before = score_before;
        (self.first, self.end) = (0, 0);
        self.starts.clear();
    }

    /// Forgets everything where it reached further than `bytes`.
    fn restart_if_beyond(&mut self, bytes: usize) {
        if self.end > bytes {
            self.restart(self.score_before);
        }
    }

    /// The first byte whose node is held.
    fn first(&self) -> usize {
        self.first
    }

    /// Bytes of the text that were read.
    fn end(&self) -> usize {
        self.end
    }

    /// The node of the byte `at`, unless it is in a block before.
    #[inline]
    fn node(&self, at: usize) -> Option<LatticeNode> {
        Some(self.nodes[at.checked_sub(self.first)?])
    }

    /// Where the block that is held ends, in a vocabulary with pieces of up to `longest` bytes.
    fn block_end(&self, text: &str, longest: usize) -> usize {
        text.floor_char_boundary(self.first.saturating_add(longest + BLOCK))
    }

    /// Nodes of the block for the bytes up to `to`, which become its end.
    fn grow(&mut self, to: usize) -> &mut [LatticeNode] {
        if self.nodes.len() <= to - self.first {
            self.nodes.resize(to - self.first + 1, LatticeNode::default());
        }
        if self.end == 0 {
            self.nodes[0] = LatticeNode { score: self.score_before, bytes: 0, id: 0 };
        }
        self.end = to;
        &mut self.nodes
    }

    /// Goes on to the next block.
    fn next_block(&mut self, text: &str, longest: usize) {
        let first = text.floor_char_boundary(self.end.saturating_sub(longest));
        let shared = self.nodes[first - self.first..=self.end - self.first].to_vec();
        self.nodes[..shared.len()].copy_from_slice(&shared);
        self.first = first;
        self.starts.push((first, shared));
    }

    /// Goes back to the start of the block before.
    fn last_block(&mut self) {
        self.starts.pop();
        (self.first, self.end) = (0, 0);
        if let Some((first, shared)) = self.starts.last() {
            self.nodes[..shared.len()].copy_from_slice(shared);
            (self.first, self.end) = (*first, first + shared.len() - 1);
        }
    }
}
