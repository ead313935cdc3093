//! Finds personal data in the default mode: collects candidates of all kinds, resolves overlaps.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::address::first_address;
use super::iban::ibans;
use super::ip::ips;
use super::options::{PiiOptions, Placeholders};
use super::span::{PiiKind, PiiSpan};

/// Returns the personal data in `text` as ascending, disjoint, non-empty spans.
///
/// Of overlapping candidates the longest is kept; if equal, an e-mail address before an IBAN
/// before an IP address. The text between two replaced spans is then searched again, since it
/// will stand between two markers: the rest of a dropped candidate may be an address, as in
/// `<iban-pii>.x@y.ch`. So a second pass finds nothing.
pub(super) fn find(text: &str, options: &PiiOptions) -> Vec<PiiSpan> {
    let mut spans = Vec::new();
    let mut gaps: Vec<_> = std::iter::once(0..text.len()).collect();
    while let Some(gap) = gaps.pop() {
        let mut start = gap.start;
        let mut kept = Vec::new();
        for (kind, range) in disjoint(candidates(&text[gap.clone()], options)) {
            let range = gap.start + range.start..gap.start + range.end;
            let span = PiiSpan::new(text, kind, range.clone());
            if span.is_placeholder && options.placeholders == Placeholders::Keep {
                kept.push(span);
            } else {
                gaps.push(start..range.start);
                start = range.end;
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

fn candidates(text: &str, options: &PiiOptions) -> Vec<(PiiKind, Range<usize>)> {
    let mut candidates = Vec::new();
    for &kind in &options.kinds {
        let of_kind = |range| (kind, range);
        match kind {
            PiiKind::Email => candidates.extend(emails(text).map(of_kind)),
            PiiKind::Ip => candidates.extend(ips(text, options.ip).map(of_kind)),
            PiiKind::Iban => candidates.extend(ibans(text).map(of_kind)),
        }
    }
    candidates
}

/// Finds every e-mail address; the end of each counts as a new start of the text.
fn emails(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = first_address(&text[from..])?;
        let range = from + found.start..from + found.end;
        from = range.end;
        Some(range)
    })
}

/// Resolves overlaps among `candidates`; the result ascends.
fn disjoint(
    mut candidates: Vec<(PiiKind, Range<usize>)>,
) -> impl Iterator<Item = (PiiKind, Range<usize>)> {
    const PRECEDENCE: [PiiKind; 3] = [PiiKind::Email, PiiKind::Iban, PiiKind::Ip];
    candidates.sort_unstable_by_key(|(kind, range)| {
        let precedence = PRECEDENCE.iter().position(|other| other == kind);
        (Reverse(range.len()), precedence, range.start)
    });
    let mut kept = BTreeMap::<usize, (PiiKind, Range<usize>)>::new();
    for candidate in candidates {
        let Range { start, end } = candidate.1;
        let before = kept.range(..end).next_back();
        if before.is_none_or(|(_, (_, range))| range.end <= start) {
            kept.insert(start, candidate);
        }
    }
    kept.into_values()
}
