//! The best ways through a text, in memory that hardly grows with it.
//!
//! Held are the nodes of one block of the text. What the blocks before it began with is kept, so
//! that each can be made again when the path is followed back; a text without any border that is
//! certain (one letter a million times) takes little more than its own bytes.

/// Bytes of a block, besides those at its start that it shares with the one before.
const BLOCK: usize = if cfg!(test) { 96 } else { 1 << 16 };

/// The best way to a byte of the text: the last token on it, its length, the score.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Node {
    pub(super) score: f64,
    pub(super) bytes: u32,
    pub(super) id: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Lattice {
    /// Of the bytes from `first` to `end`, and unused ones behind them.
    nodes: Vec<Node>,
    first: usize,
    end: usize,
    score_before: f64,
    /// What every block but the first began with: its first byte, and the nodes from there on that
    /// it shares with the one before.
    starts: Vec<(usize, Vec<Node>)>,
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
    pub(super) fn restart_if_beyond(&mut self, bytes: usize) {
        if self.end > bytes {
            self.restart(self.score_before);
        }
    }

    /// The first byte whose node is held.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Bytes of the text that were read.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// The node of the byte `at`, unless it is in a block before.
    #[inline]
    pub(super) fn node(&self, at: usize) -> Option<Node> {
        Some(self.nodes[at.checked_sub(self.first)?])
    }

    /// Where the block that is held ends, in a vocabulary with tokens of up to `longest` bytes.
    pub(super) fn block_end(&self, text: &str, longest: usize) -> usize {
        text.floor_char_boundary(self.first.saturating_add(longest + BLOCK))
    }

    /// Nodes of the block for the bytes up to `to`, which become its end.
    pub(super) fn grow(&mut self, to: usize) -> &mut [Node] {
        if self.nodes.len() <= to - self.first {
            self.nodes.resize(to - self.first + 1, Node::default());
        }
        if self.end == 0 {
            self.nodes[0] = Node { score: self.score_before, bytes: 0, id: 0 };
        }
        self.end = to;
        &mut self.nodes
    }

    /// Goes on to the next block.
    pub(super) fn next_block(&mut self, text: &str, longest: usize) {
        let first = text.floor_char_boundary(self.end.saturating_sub(longest));
        let shared = self.nodes[first - self.first..=self.end - self.first].to_vec();
        self.nodes[..shared.len()].copy_from_slice(&shared);
        self.first = first;
        self.starts.push((first, shared));
    }

    /// Goes back to the start of the block before.
    pub(super) fn last_block(&mut self) {
        self.starts.pop();
        (self.first, self.end) = (0, 0);
        if let Some((first, shared)) = self.starts.last() {
            self.nodes[..shared.len()].copy_from_slice(shared);
            (self.first, self.end) = (*first, first + shared.len() - 1);
        }
    }
}
