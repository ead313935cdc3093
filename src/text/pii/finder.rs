//! The default way: candidates of every kind, of which those that overlap are settled.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::address::first_address;
use super::iban::ibans;
use super::ip::ips;
use super::options::{IpScope, Placeholders};
use super::span::{PiiKind, PiiSpan};

/// Finds personal data in texts.
#[derive(Debug, Clone)]
pub struct PiiFinder {
    kinds: Vec<PiiKind>,
    ip: IpScope,
    placeholders: Placeholders,
}

impl PiiFinder {
    /// Finds data of `kinds`; of IP addresses those of `ip`.
    pub fn new(kinds: &[PiiKind], ip: IpScope, placeholders: Placeholders) -> Self {
        Self { kinds: kinds.to_vec(), ip, placeholders }
    }

    /// What there is in `text`: ascending, disjoint and not empty.
    ///
    /// The longest of what overlaps stays, then an e-mail address before an IBAN before an IP
    /// address. What lies between two spans that are replaced is then looked at by itself, as it
    /// will stand between two markers: the rest of what was dropped may be an address, as in
    /// `<iban-pii>.x@y.ch`. So nothing is left for a second pass.
    pub fn find(&self, text: &str) -> Vec<PiiSpan> {
        let mut spans = Vec::new();
        let mut gaps: Vec<_> = std::iter::once(0..text.len()).collect();
        while let Some(gap) = gaps.pop() {
            let mut start = gap.start;
            let mut kept = Vec::new();
            for (kind, range) in disjoint(self.candidates(&text[gap.clone()])) {
                let range = gap.start + range.start..gap.start + range.end;
                let span = PiiSpan::new(text, kind, range.clone());
                if span.is_placeholder && self.placeholders == Placeholders::Keep {
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
                gaps.push(start..gap.end); // where what is kept is found again
            }
        }
        spans.sort_unstable_by_key(|span| span.range.start);
        spans
    }

    /// What may be data of each kind.
    fn candidates(&self, text: &str) -> Vec<(PiiKind, Range<usize>)> {
        let mut candidates = Vec::new();
        for &kind in &self.kinds {
            let of_kind = |range| (kind, range);
            match kind {
                PiiKind::Email => candidates.extend(emails(text).map(of_kind)),
                PiiKind::Ip => candidates.extend(ips(text, self.ip).map(of_kind)),
                PiiKind::Iban => candidates.extend(ibans(text).map(of_kind)),
            }
        }
        candidates
    }
}

/// Every e-mail address; after each, the text starts anew.
fn emails(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let found = first_address(&text[from..])?;
        let range = from + found.start..from + found.end;
        from = range.end;
        Some(range)
    })
}

/// Those of `candidates` that stay, ascending.
fn disjoint(
    mut candidates: Vec<(PiiKind, Range<usize>)>,
) -> impl Iterator<Item = (PiiKind, Range<usize>)> {
    candidates.sort_unstable_by_key(|(kind, range)| {
        let precedence = match kind {
            PiiKind::Email => 0,
            PiiKind::Iban => 1,
            PiiKind::Ip => 2,
        };
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
