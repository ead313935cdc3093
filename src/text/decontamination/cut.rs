//! Decides what remains of a contaminated document that is cut.

use std::ops::Range;

use super::scan::Hits;

/// Characters cut together with a hit on each side (GPT-3).
const MARGIN: usize = 200;
/// Minimum characters of a piece that is kept.
const SHORTEST_PIECE: usize = 200;
/// Maximum hits of a document that is cut; one with more is removed.
const MOST_COLLISIONS: usize = 10;

/// Returns the pieces of `text`, in bytes, without the hits and 200 characters on each side of
/// them; a piece has at least 200 characters. `None` means that the document is removed: it has
/// more than 10 hits, overlapping ones counting as one, or no piece is left.
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

/// Returns the parts of `text` that are in both `pieces` and `others`, which two filters left, in
/// ascending order. If both cut by an index, parts shorter than [`cut`] allows are left out too.
/// `None` means that the document is removed.
pub fn cut_by_both(
    text: &str,
    pieces: &[Range<usize>],
    others: &[Range<usize>],
    are_by_indexes: bool,
) -> Option<Vec<Range<usize>>> {
    let of_piece = |piece: &Range<usize>| {
        let piece = piece.clone();
        let first = others.partition_point(|other| other.end <= piece.start);
        let others = others[first..].iter().take_while(move |other| other.start < piece.end);
        others.map(move |other| piece.start.max(other.start)..piece.end.min(other.end))
    };
    let stays = |piece: &Range<usize>| {
        if are_by_indexes { is_long(text, piece) } else { !piece.is_empty() }
    };
    let common: Vec<_> = pieces.iter().flat_map(of_piece).filter(stays).collect();
    let is_blank =
        |piece: &Range<usize>| text.get(piece.clone()).is_none_or(|piece| piece.trim().is_empty());
    Some(common).filter(|pieces| !pieces.iter().all(is_blank))
}

/// Returns true for a piece of [`SHORTEST_PIECE`] characters or more, not only white space.
fn is_long(text: &str, piece: &Range<usize>) -> bool {
    let piece = text.get(piece.clone()).unwrap_or_default();
    piece.chars().nth(SHORTEST_PIECE - 1).is_some() && !piece.trim().is_empty()
}
