//! Finds the best segmentation of a word under a unigram model as the `tokenizers` crate does: with
//! the same sums in f64, and of equal scores the piece that starts first wins.

use std::collections::HashMap;

use daachorse::{CharwiseDoubleArrayAhoCorasick, CharwiseDoubleArrayAhoCorasickBuilder};

/// Number of ids of a path that are kept even if fewer are requested.
const MOST_IDS: usize = 1 << 12;
/// Difference between the lowest score of the vocabulary and that of an unknown character.
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Debug, Clone, Copy)]
struct Piece {
    id: u32,
    score: f64,
}

pub(super) struct Unigram {
    /// Finds all pieces that end at a character, longest first.
    pieces: CharwiseDoubleArrayAhoCorasick<Piece>,
    /// Pieces of one character that occurs in no other piece. Thousands of them at the root of
    /// `pieces` would make it several times slower to build.
    lone: HashMap<char, Piece>,
    unknown: Piece,
    /// Bytes of the longest piece.
    longest: usize,
}

impl Unigram {
    /// Builds the model of `vocabulary`. Ids are indices, and of two equal pieces the later one
    /// counts. Returns `None` if there are too many pieces.
    pub(crate) fn new(vocabulary: &[(impl AsRef<str>, f64)], unknown: u32) -> Option<Self> {
        let pieces = vocabulary.iter().zip(0..);
        let pieces = pieces.map(|((text, score), id)| (text.as_ref(), Piece { id, score: *score }));
        let mut pieces: Vec<(&str, Piece)> = pieces.filter(|piece| !piece.0.is_empty()).collect();
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

    /// Extends `lattice` to the end of `text`, which begins with all the text read before.
    pub(super) fn forward(&self, text: &str, lattice: &mut Lattice) {
        if lattice.end > text.len() {
            lattice.restart(lattice.score_before);
        }
        loop {
            let to = lattice.block_end(text, self.longest);
            self.extend(text, to, lattice);
            if to == text.len() {
                return;
            }
            lattice.next_block(text, self.longest);
        }
    }

    /// Finds the best paths to the bytes of `text` up to `to`, in the current block of `lattice`.
    fn extend(&self, text: &str, to: usize, lattice: &mut Lattice) {
        let (first, from) = (lattice.first, lattice.end);
        let nodes = lattice.grow(to);
        // A piece that ends here starts after `read`, so the text before it is not needed.
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
            // Pieces come longest first: unless the last is this character, it is no piece.
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

    /// Appends the ids of the best path to the byte `end` of the text of `lattice`, or at least the
    /// first `limit` of them. Adjacent unknown characters are one piece. The lattice must be
    /// restarted afterwards.
    pub(crate) fn path(
        &self,
        text: &str,
        mut end: usize,
        lattice: &mut Lattice,
        limit: usize,
        ids: &mut Vec<u32>,
    ) {
        let first = ids.len();
        // End of the unknown characters that start at `end`.
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
            // The ids come in reverse order.
            if ids.len() - first > MOST_IDS.max(limit).saturating_mul(2) {
                ids.drain(first..ids.len() - limit);
            }
        }
        ids.extend(unknown_end.map(|to| self.unknown_id(&text[..to])));
        ids[first..].reverse();
    }

    /// Returns the length of the part of the best segmentation that is the same whatever follows
    /// the text of `lattice`, without unknown characters at its end, and the score up to there.
    /// Returns `None` if that part is empty or the current block cannot decide it.
    ///
    /// Every segmentation of a longer text has a border among the last `longest` bytes. The part
    /// that the best paths to all of these share is settled.
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

    /// Returns the id of adjacent unknown characters, which may be a piece together.
    fn unknown_id(&self, text: &str) -> u32 {
        if text.len() > self.longest {
            return self.unknown.id;
        }
        let mut stepper = self.pieces.find_overlapping_stepper();
        text.chars().for_each(|c| stepper.consume(c));
        let whole = stepper.matches().find(|found| found.start() == 0);
        whole.map_or(self.unknown.id, |found| found.value().id)
    }
}

/// Removes the pieces of one character of the Basic Multilingual Plane that is in no other.
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

/// The best path to a byte of the text: its last piece, the piece's length, and its score.
#[derive(Debug, Clone, Copy, Default)]
struct LatticeNode {
    score: f64,
    bytes: u32,
    id: u32,
}

/// The best paths through a text, in memory that hardly grows with it.
///
/// Only the nodes of one block of the text are in memory. The first nodes of each earlier block are
/// kept, so that it can be computed again when the path is followed back. A text without any
/// certain border (one letter a million times) takes little more than its own bytes.
#[derive(Default)]
pub(super) struct Lattice {
    /// Nodes of the bytes from `first` to `end`, followed by unused ones.
    nodes: Vec<LatticeNode>,
    first: usize,
    end: usize,
    score_before: f64,
    /// For every block but the first: its first byte, and the nodes from there on that it shares
    /// with the block before.
    starts: Vec<(usize, Vec<LatticeNode>)>,
}

impl Lattice {
    /// Starts a new text after one with this score.
    #[inline]
    pub(super) fn restart(&mut self, score_before: f64) {
        self.score_before = score_before;
        (self.first, self.end) = (0, 0);
        self.starts.clear();
    }

    /// Returns the node of the byte `at`, unless it is in an earlier block.
    #[inline]
    fn node(&self, at: usize) -> Option<LatticeNode> {
        Some(self.nodes[at.checked_sub(self.first)?])
    }

    /// Returns the end of the current block, for a vocabulary with pieces of up to `longest` bytes.
    fn block_end(&self, text: &str, longest: usize) -> usize {
        text.floor_char_boundary(self.first.saturating_add(longest + BLOCK))
    }

    /// Returns nodes for the current block and sets its end to `to`.
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

    fn next_block(&mut self, text: &str, longest: usize) {
        let first = text.floor_char_boundary(self.end.saturating_sub(longest));
        let shared = self.nodes[first - self.first..=self.end - self.first].to_vec();
        self.nodes[..shared.len()].copy_from_slice(&shared);
        self.first = first;
        self.starts.push((first, shared));
    }

    /// Moves back to the start of the block before.
    fn last_block(&mut self) {
        self.starts.pop();
        (self.first, self.end) = (0, 0);
        if let Some((first, shared)) = self.starts.last() {
            self.nodes[..shared.len()].copy_from_slice(shared);
            (self.first, self.end) = (*first, first + shared.len() - 1);
        }
    }
}
