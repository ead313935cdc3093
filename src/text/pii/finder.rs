//! Finds personal data in the default mode: collects candidates of all kinds, resolves overlaps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::address::first_address;
use super::iban::find_ibans;
use super::ip::find_ips;
use super::options::{PiiConfig, Placeholders};
use super::span::{PiiKind, PiiSpan};

/// Returns the personal data in `text` as ascending, disjoint, non-empty spans.
///
/// Of overlapping candidates the longest is kept; if equal, an e-mail address before an IBAN
/// before an IP address. The text between two replaced spans is then searched again, since it
/// will stand between two markers: the rest of a dropped candidate may be an address, as in
/// `<iban-pii>.x@y.ch`. So a second pass finds nothing.
pub(super) fn find(text: &str, options: &PiiConfig) -> Vec<PiiSpan> {
    let mut spans = Vec::new();
    let mut gaps: Vec<_> = std::iter::once(0..text.len()).collect();
    while let Some(gap) = gaps.pop() {
        let mut start = gap.start;
        let mut kept = Vec::new();
        for span in resolve_overlaps(find_candidates(text, &gap, options)) {
            if span.is_placeholder && options.placeholders == Placeholders::Keep {
                kept.push(span);
            } else {
                gaps.push(start..span.range.start);
                start = span.range.end;
                spans.push(span);
            }
        }
        if start == gap.start {
            spans.append(&mut kept);
        } else {
            gaps.push(start..gap.end); // kept spans are found again there
        }
    }
    spans.sort_unstable_by_key(|span| span.range.start);
    spans
}

/// Returns the matches of the configured kinds in a part of `text`, as if nothing were around it;
/// they may overlap.
fn find_candidates(text: &str, part: &Range<usize>, options: &PiiConfig) -> Vec<PiiSpan> {
    let mut candidates = Vec::new();
    let (text_of_part, start) = (&text[part.clone()], part.start);
    for &kind in &options.kinds {
        let new =
            |range: Range<usize>| PiiSpan::new(text, kind, start + range.start..start + range.end);
        match kind {
            PiiKind::Email => candidates.extend(find_emails(text_of_part).map(new)),
            PiiKind::Ip => candidates.extend(find_ips(text_of_part, options.ip).map(new)),
            PiiKind::Iban => candidates.extend(find_ibans(text_of_part).map(new)),
        }
    }
    candidates
}

/// Finds every e-mail address; the end of each counts as a new start of the text.
fn find_emails(text: &str) -> impl Iterator<Item = Range<usize>> {
    let first = move |from: usize| {
        first_address(&text[from..]).map(|found| from + found.start..from + found.end)
    };
    std::iter::successors(first(0), move |before| first(before.end))
}

/// Keeps the longest of overlapping `candidates`, as [`find`] says; the result ascends.
fn resolve_overlaps(mut candidates: Vec<PiiSpan>) -> impl Iterator<Item = PiiSpan> {
    const PRECEDENCE: [PiiKind; 3] = [PiiKind::Email, PiiKind::Iban, PiiKind::Ip];
    candidates.sort_unstable_by_key(|PiiSpan { kind, range, .. }| {
        let precedence = PRECEDENCE.iter().position(|other| other == kind);
        (Reverse(range.len()), precedence, range.start)
    });
    let mut kept = BTreeMap::new();
    for candidate in candidates {
        candidate.add_to(&mut kept);
    }
    kept.into_values()
}
