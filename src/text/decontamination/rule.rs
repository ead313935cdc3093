//! When a document is contaminated, and what is left of one that is cut.

use std::ops::Range;

use super::index::Index;
use super::scan::Hits;

/// Characters on each side of a hit that are cut with it (GPT-3).
const MARGIN: usize = 200;
/// Characters that a piece has at least to be kept.
const SHORTEST_PIECE: usize = 200;
/// Hits that a document can have and be cut; with more it is removed.
const MOST_COLLISIONS: usize = 10;

/// When a document is contaminated.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Rule {
    /// It holds one n-gram of the index.
    #[default]
    Any,
    /// It holds as many distinct n-grams of the index, and they are as large a share of its own distinct ones.
    Coverage {
        /// Distinct n-grams at least; MixtureVitae has 3.
        min_hits: usize,
        /// Share at least; MixtureVitae has 0.001.
        min_coverage: f64,
    },
    /// It holds as much of one item.
    Item {
        /// Share of the item's tokens, at least, that are in an n-gram that was hit.
        min_item: f64,
    },
}

impl Rule {
    /// Whether a document is contaminated, in which these are the hits of `index`.
    pub fn is_contaminated(&self, index: &Index, hits: &Hits) -> bool {
        match *self {
            _ if hits.is_empty() => false,
            Self::Any => true,
            Self::Coverage { min_hits, min_coverage } => {
                let distinct = hits.ngrams().len();
                let coverage = distinct as f64 / hits.distinct_ngrams as f64;
                distinct >= min_hits && coverage >= min_coverage
            }
            Self::Item { min_item } => {
                index.items_hit(hits).iter().any(|item| item.share >= min_item)
            }
        }
    }
}

/// What is left of `text` without the hits and 200 characters on each side of them: the pieces, in bytes, of at
/// least 200 characters. `None` where the document is removed: more than 10 hits, those that overlap
/// counted as one, or no piece left.
pub fn cut(text: &str, hits: &Hits) -> Option<Vec<Range<usize>>> {
    let spans = hits.spans();
    if spans.len() > MOST_COLLISIONS {
        return None;
    }
    let mut pieces = Vec::new();
    let mut start = 0;
    for span in &spans {
        let before = &text[..span.start];
        let end = before.char_indices().nth_back(MARGIN - 1).map_or(0, |(at, _)| at);
        pieces.push(start..end.max(start));
        let behind = &text[span.end..];
        let margin = behind.char_indices().nth(MARGIN).map_or(behind.len(), |(at, _)| at);
        start = span.end + margin;
    }
    pieces.push(start..text.len());
    pieces.retain(|piece| is_long(text, piece));
    (!pieces.is_empty()).then_some(pieces)
}

/// What is left of `text` where two indexes cut it into `pieces` and `others`: what is in both, as long as
/// [`cut`] has it. `None` where the document is removed.
pub fn cut_by_both(
    text: &str,
    pieces: &[Range<usize>],
    others: &[Range<usize>],
) -> Option<Vec<Range<usize>>> {
    let of_piece = |piece: &Range<usize>| {
        let piece = piece.clone();
        others.iter().map(move |other| piece.start.max(other.start)..piece.end.min(other.end))
    };
    let common = pieces.iter().flat_map(of_piece).filter(|piece| is_long(text, piece));
    Some(common.collect::<Vec<_>>()).filter(|pieces| !pieces.is_empty())
}

/// Whether a piece is long enough to be kept.
fn is_long(text: &str, piece: &Range<usize>) -> bool {
    let piece = text.get(piece.clone()).unwrap_or_default();
    piece.chars().nth(SHORTEST_PIECE - 1).is_some()
}
