//! The best segmentation of a piece of text under a unigram model, as the `tokenizers` crate finds
//! it: same sums in f64, and among equal scores the token that starts first wins.

use daachorse::{CharwiseDoubleArrayAhoCorasick, CharwiseDoubleArrayAhoCorasickBuilder};

use super::lattice::{Lattice, Node};

/// Ids of a path that are kept however few are wanted.
const MOST_IDS: usize = 1 << 12;

/// How far below the lowest score of the vocabulary an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// What a token of the vocabulary found in a text says.
#[derive(Debug, Clone, Copy)]
struct Token {
    id: u32,
    score: f64,
}

/// The model.
pub(super) struct Unigram {
    /// Finds all tokens that end at a character, the longest first.
    tokens: CharwiseDoubleArrayAhoCorasick<Token>,
    unknown: Token,
    /// Bytes of the longest token.
    longest: usize,
}

impl Unigram {
    /// Of `vocabulary`, where ids are places; a later one of two equal tokens counts. `None` if
    /// there are too many.
    pub(super) fn new(vocabulary: &[(&str, f64)], unknown: u32) -> Option<Self> {
        let mut tokens: Vec<(&str, Token)> = Vec::with_capacity(vocabulary.len());
        for (id, (text, score)) in vocabulary.iter().enumerate().filter(|(_, v)| !v.0.is_empty()) {
            tokens.push((text, Token { id: id as u32, score: *score }));
        }
        tokens.sort_by(|a, b| (a.0, b.1.id).cmp(&(b.0, a.1.id)));
        tokens.dedup_by_key(|token| token.0);
        let lowest = vocabulary.iter().map(|v| v.1).fold(f64::INFINITY, f64::min);
        let longest = tokens.iter().map(|token| token.0.len()).max().unwrap_or(0);
        let tokens = CharwiseDoubleArrayAhoCorasickBuilder::new().build_with_values(tokens).ok()?;
        let unknown = Token { id: unknown, score: lowest - UNKNOWN_PENALTY };
        // An unknown character is a token too.
        Some(Self { tokens, unknown, longest: longest.max(char::MAX.len_utf8()) })
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
        // A token that ends here starts behind `read`, so what is before need not be known.
        let read = text.floor_char_boundary(from.saturating_sub(self.longest)).max(first);
        let mut stepper = self.tokens.find_overlapping_stepper();
        text[read..from].chars().for_each(|c| stepper.consume(c));
        let mut end = from - first;
        for c in text[from..to].chars() {
            stepper.consume(c);
            let start_of_char = end;
            end += c.len_utf8();
            let mut best: Option<Node> = None;
            let mut start = 0;
            for found in stepper.matches() {
                start = found.start() + (read - first);
                let token = found.value();
                let score = token.score + nodes[start].score;
                if best.is_none_or(|best| score > best.score) {
                    best = Some(Node { score, bytes: (end - start) as u32, id: token.id });
                }
            }
            // Tokens come longest first: a last one that is not this character says it is none.
            let is_token = best.is_some() && start == start_of_char;
            if !is_token {
                let score = self.unknown.score + nodes[start_of_char].score;
                if best.is_none_or(|best| score > best.score) {
                    best = Some(Node { score, bytes: c.len_utf8() as u32, id: self.unknown.id });
                }
            }
            nodes[end] = best.unwrap_or_default();
        }
    }

    /// Appends the ids on the best way to the byte `end` of the text that `lattice` is of, or the
    /// first of them and at least `limit`; unknown characters side by side are one token. The
    /// lattice has to be restarted afterwards.
    pub(super) fn path(
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
    /// more than the block that is held can tell.
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

    /// The id of unknown characters side by side: they may be a token together.
    fn unknown_id(&self, text: &str) -> u32 {
        self.id_of(text).unwrap_or(self.unknown.id)
    }

    /// The id of a text that is one token.
    fn id_of(&self, text: &str) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        let mut stepper = self.tokens.find_overlapping_stepper();
        text.chars().for_each(|c| stepper.consume(c));
        stepper.matches().find(|found| found.start() == 0).map(|found| found.value().id)
    }
}
