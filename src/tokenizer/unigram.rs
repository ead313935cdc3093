//! Finds the best segmentation of a word under a unigram model as the `tokenizers` crate does: with
//! the same sums in f64, and of equal scores the piece that starts first wins.

use std::collections::HashMap;

use daachorse::{CharwiseDoubleArrayAhoCorasick, CharwiseDoubleArrayAhoCorasickBuilder};

/// Bytes of a text without white space after which a border is taken for settled.
const LONGEST: usize = 1 << 16;
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
    /// counts. Returns `None` if there are too many pieces, or the scores are no log-probabilities.
    pub(crate) fn new(vocabulary: &[(impl AsRef<str>, f64)], unknown: u32) -> Option<Self> {
        let pieces = vocabulary.iter().zip(0..);
        let pieces = pieces.map(|((text, score), id)| (text.as_ref(), Piece { id, score: *score }));
        let mut pieces: Vec<(&str, Piece)> = pieces.filter(|piece| !piece.0.is_empty()).collect();
        pieces.sort_unstable_by(|a, b| (a.0, b.1.id).cmp(&(b.0, a.1.id)));
        pieces.dedup_by_key(|piece| piece.0);
        let lowest = vocabulary.iter().map(|v| v.1).fold(f64::INFINITY, f64::min);
        // So unknown characters side by side are never a piece: it would have a higher score.
        if lowest > 0.0 {
            return None;
        }
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
        let from = std::mem::replace(&mut lattice.end, text.len());
        let nodes = &mut lattice.nodes;
        nodes.resize(nodes.len().max(text.len() + 1), LatticeNode::default());
        if from == 0 {
            nodes[0] = LatticeNode { score: lattice.score_before, bytes: 0, id: 0 };
        }
        // A piece that ends here starts after `read`, so the text before it is not needed.
        let read = text.floor_char_boundary(from.saturating_sub(self.longest));
        let mut stepper = self.pieces.find_overlapping_stepper();
        text[read..from].chars().for_each(|c| stepper.consume(c));
        let mut end = from;
        for c in text[from..].chars() {
            stepper.consume(c);
            let start_of_char = end;
            end += c.len_utf8();
            let mut best: Option<LatticeNode> = None;
            let mut start = 0;
            for found in stepper.matches() {
                start = found.start() + read;
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

    /// Appends the ids of the best path to the byte `end`, one id for adjacent unknown characters.
    pub(crate) fn append_path(&self, mut end: usize, lattice: &Lattice, ids: &mut Vec<u32>) {
        let first = ids.len();
        while end > 0 {
            let node = lattice.nodes[end];
            if node.id != self.unknown.id || ids[first..].last() != Some(&node.id) {
                ids.push(node.id);
            }
            end -= node.bytes as usize;
        }
        ids[first..].reverse();
    }

    /// Returns the length of the part of the best segmentation that is the same whatever follows
    /// the text of `lattice`, without unknown characters at its end, and the score up to there.
    /// Returns `None` if that part is empty.
    ///
    /// Every segmentation of a longer text has a border among the last `longest` bytes. The part
    /// that the best paths to all of these share is settled. The best path up to the last piece of
    /// a text of [`LONGEST`] bytes is taken for settled, so that memory has a bound.
    pub(super) fn find_settled(&self, text: &str, lattice: &Lattice) -> Option<(usize, f64)> {
        let mut settled = text.len();
        let borders = text.len().saturating_sub(self.longest)..text.len();
        for border in borders.filter(|&at| text.is_char_boundary(at)) {
            let mut other = border;
            while other != settled {
                let later = if other > settled { &mut other } else { &mut settled };
                *later -= lattice.nodes[*later].bytes as usize;
            }
        }
        while settled > 0 {
            let node = lattice.nodes[settled];
            if node.id != self.unknown.id {
                return Some((settled, node.score));
            }
            settled -= node.bytes as usize;
        }
        // The last piece stays, so that the word goes on.
        let at = text.len() - lattice.nodes[text.len()].bytes as usize;
        (text.len() >= LONGEST && at > 0).then(|| (at, lattice.nodes[at].score))
    }
}

/// Takes out the pieces of one character of the Basic Multilingual Plane that is in no other.
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

/// The best path to a byte of the text: its last piece, the piece's length, and its score.
#[derive(Debug, Clone, Copy, Default)]
struct LatticeNode {
    score: f64,
    bytes: u32,
    id: u32,
}

/// The best paths through a text.
#[derive(Default)]
pub(super) struct Lattice {
    /// Nodes of the bytes up to `end`, followed by unused ones.
    nodes: Vec<LatticeNode>,
    end: usize,
    score_before: f64,
}

impl Lattice {
    /// Starts a new text after one with this score.
    #[inline]
    pub(super) fn restart(&mut self, score_before: f64) {
        (self.score_before, self.end) = (score_before, 0);
    }
}
