//! Splits a text into its added tokens and the segments between them.

use std::ops::ControlFlow;

use super::added_tokens::{AddedTokens, PlacedToken};

/// Bytes searched for added tokens at a time.
const WINDOW: usize = if cfg!(test) { 48 } else { 8192 };

/// Continues, or breaks because there are enough ids.
pub(super) type Flow<T = ()> = ControlFlow<(), T>;

/// Receives the segments of a text between its added tokens.
pub(super) trait SegmentWriter {
    /// Writes `text[at..]`. If the text `goes_on`, writes only what is certain whatever follows.
    /// Returns where it stopped.
    fn write(&mut self, text: &str, at: usize, goes_on: bool) -> Flow<usize>;

    fn end_segment(&mut self) -> Flow {
        Flow::Continue(())
    }

    /// Writes an added token between segments.
    fn id(&mut self, id: u32) -> Flow;
}

pub(super) fn write(
    added_tokens: Option<&AddedTokens>,
    text: &str,
    out: &mut impl SegmentWriter,
) -> Flow {
    let mut segment = 0;
    let mut searched = 0;
    loop {
        let (from, found) = next_added_token(added_tokens, text, segment, searched, out)?;
        let Some((token, place)) = found else {
            out.write(text, from, false)?;
            return out.end_segment();
        };
        // White space taken by the token before may contain this one.
        let before = text.get(from..place.start).unwrap_or_default();
        let kept = if token.lstrip { before.trim_end().len() } else { before.len() };
        out.write(&text[..from + kept], from, false)?;
        out.end_segment()?;
        out.id(token.id)?;
        searched = place.end;
        segment = place.end;
        if token.rstrip {
            segment += text[segment..].len() - text[segment..].trim_start().len();
        }
    }
}

/// Finds the next added token and writes the segment before it as far as it is certain: up to white
/// space, which the token may take, and the last cluster or stretch, which may go on. Returns the
/// start of the text that is not yet written, and the token.
fn next_added_token(
    added_tokens: Option<&AddedTokens>,
    text: &str,
    segment: usize,
    searched: usize,
    out: &mut impl SegmentWriter,
) -> Flow<(usize, Option<PlacedToken>)> {
    let Some(added_tokens) = added_tokens else {
        return Flow::Continue((segment, None));
    };
    let (mut at, mut searched, mut window) = (segment, searched, WINDOW);
    loop {
        let to = text.floor_char_boundary(searched.saturating_add(window));
        let found = added_tokens.find(text, searched, to);
        if found.is_some() || to == text.len() {
            return Flow::Continue((at, found));
        }
        searched = to;
        let certain = text[..to].trim_end().len().max(at);
        let written = out.write(&text[..certain], at, true)?;
        if written == at {
            window = window.saturating_mul(2);
        }
        at = written;
    }
}
