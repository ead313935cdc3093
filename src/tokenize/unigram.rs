//! The best segmentation of a piece of text under a unigram model, as the `tokenizers` crate finds
//! it: same sums in f64, and among equal scores the token that starts first wins.

use daachorse::{CharwiseDoubleArrayAhoCorasick, CharwiseDoubleArrayAhoCorasickBuilder};

/// How far below the lowest score of the vocabulary an unknown character is.
const UNKNOWN_PENALTY: f64 = 10.0;

/// What a token of the vocabulary found in a text says.
#[derive(Debug, Clone, Copy)]
struct Token {
    id: u32,
    score: f64,
}

/// The best way to a byte of the text: the last token on it, where that starts, the score.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    score: f64,
    start: u32,
    id: u32,
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

    /// Fills `nodes` for all ends in `text`, from the score before it.
    pub(super) fn forward(&self, text: &str, before: f64, nodes: &mut Vec<Node>) {
        if nodes.len() <= text.len() {
            nodes.resize(text.len() + 1, Node::default());
        }
        nodes[0] = Node { score: before, start: 0, id: 0 };
        let mut stepper = self.tokens.find_overlapping_stepper();
        let mut end = 0;
        for c in text.chars() {
            stepper.consume(c);
            let start_of_char = end;
            end += c.len_utf8();
            let mut best: Option<Node> = None;
            let mut start = 0;
            for found in stepper.matches() {
                start = found.start();
                let token = found.value();
                let score = token.score + nodes[start].score;
                if best.is_none_or(|best| score > best.score) {
                    best = Some(Node { score, start: start as u32, id: token.id });
                }
            }
            // Tokens come longest first: a last one that is not this character says it is none.
            let is_token = best.is_some() && start == start_of_char;
            if !is_token {
                let score = self.unknown.score + nodes[start_of_char].score;
                if best.is_none_or(|best| score > best.score) {
                    best = Some(Node { score, start: start_of_char as u32, id: self.unknown.id });
                }
            }
            nodes[end] = best.unwrap_or_default();
        }
    }

    /// Appends the ids on the best way to the byte `end` of the text that `nodes` are of; unknown
    /// characters side by side are one token.
    pub(super) fn path(&self, text: &str, end: usize, nodes: &[Node], ids: &mut Vec<u32>) {
        let first = ids.len();
        let mut end = end;
        while end > 0 {
            let node = nodes[end];
            let mut start = node.start as usize;
            let mut id = node.id;
            if id == self.unknown.id {
                start = self.unknown_run(end, nodes);
                if start != node.start as usize {
                    id = self.id_of(&text[start..end]).unwrap_or(id);
                }
            }
            ids.push(id);
            end = start;
        }
        ids[first..].reverse();
    }

    /// How much of the best segmentation is the same whatever follows the text that `nodes` are of,
    /// without unknown characters at its end, and the score up to there.
    ///
    /// Every segmentation of a longer text has a border among the last `longest` bytes; what the
    /// best ways to all of these share is settled.
    pub(super) fn settled(&self, text: &str, nodes: &[Node]) -> (usize, f64) {
        let mut settled = text.len();
        let borders = text.len().saturating_sub(self.longest)..text.len();
        for border in borders.filter(|&at| text.is_char_boundary(at)) {
            let mut other = border;
            while other != settled {
                let later = if other > settled { &mut other } else { &mut settled };
                *later = nodes[*later].start as usize;
            }
        }
        if settled > 0 && nodes[settled].id == self.unknown.id {
            settled = self.unknown_run(settled, nodes);
        }
        (settled, nodes[settled].score)
    }

    /// Where the unknown characters that end at `end` start.
    fn unknown_run(&self, end: usize, nodes: &[Node]) -> usize {
        let mut start = end;
        while start > 0 && nodes[start].id == self.unknown.id {
            start = nodes[start].start as usize;
        }
        start
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
