//! Splits a text into its added tokens and the segments between them.

use std::ops::ControlFlow;

use super::added_tokens::AddedTokens;

/// Continues, or breaks because there are enough ids.
pub(super) type Flow = ControlFlow<()>;

/// Returns the segments of `text` in order, each with the id of the added token after it. White
/// space that a token takes is in no segment; only the last segment has no token.
pub(super) fn split_segments<'a>(
    added_tokens: Option<&'a AddedTokens>,
    text: &'a str,
) -> impl Iterator<Item = (&'a str, Option<u32>)> {
    // Where the next segment starts, and the search for the token after it.
    let mut next = Some((0, 0));
    std::iter::from_fn(move || {
        let (segment, searched) = next.take()?;
        let found = added_tokens.and_then(|tokens| tokens.find(text, searched));
        let Some(((id, token), place)) = found else { return Some((&text[segment..], None)) };
        // White space taken by the token before may contain this one.
        let before = text.get(segment..place.start).unwrap_or_default();
        let before = if token.lstrip { before.trim_end() } else { before };
        let after = &text[place.end..];
        let taken = if token.rstrip { after.len() - after.trim_start().len() } else { 0 };
        next = Some((place.end + taken, place.end));
        Some((before, Some(*id)))
    })
}
