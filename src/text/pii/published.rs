//! Replaces what the published formatters of Apertus and datatrove replace, faults included.
//! Both use the same patterns for e-mail and IPv4 addresses, the latter without boundaries, and
//! replace one kind after the other. A replacement never becomes part of a later match, so the
//! replaced parts are spans of the original text.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::ops::Range;

use aho_corasick::{AhoCorasick, Match};

use super::email::first_email;
use super::ip::{is_global, octet_len};
use super::options::{IpScope, PiiConfig, PiiMode};
use super::span::{PiiKind, PiiSpan};

/// Apertus' only IBAN form: `A` is a capital, `0` a digit, `X` either; one more `X` may follow.
const APERTUS_IBAN: &[u8] = b"AA00 0000 0000 0000 0000 X";

/// Returns what the formatter of the mode replaces, ascending: datatrove's the matches; Apertus'
/// every occurrence of each match, in order of discovery, unless it overlaps an earlier
/// replacement.
pub(super) fn find(text: &str, config: &PiiConfig) -> Vec<PiiSpan> {
    let is_apertus = config.mode == PiiMode::Apertus;
    let mut spans = BTreeMap::new();
    for kind in PiiKind::ALL.into_iter().filter(|kind| config.kinds.contains(kind)) {
        let matches = match kind {
            PiiKind::Email => find_emails(text), // the first kind: nothing is replaced yet
            PiiKind::Ip => leftmost_between(text, spans.values(), ipv4_len),
            PiiKind::Iban if is_apertus => leftmost_between(text, spans.values(), apertus_iban_len),
            PiiKind::Iban => Vec::new(),
        };
        if is_apertus {
            let mut seen = HashSet::new();
            let values = matches.into_iter().map(|range| &text[range]);
            let values: Vec<&str> = values.filter(|value| seen.insert(*value)).collect();
            // A search for each would take quadratic time, one for all too much memory.
            values.chunks(4096).for_each(|values| add_matches(text, kind, values, &mut spans));
            continue;
        }
        let is_in_scope = |range: &Range<usize>| {
            let ip = text[range.clone()].parse::<Ipv4Addr>(); // no leading zeros, as in Python
            ip.is_ok_and(|ip| config.ip == IpScope::All || is_global(ip.into()))
        };
        for range in matches.into_iter().filter(|r| kind != PiiKind::Ip || is_in_scope(r)) {
            PiiSpan::new(text, kind, range).add_to(&mut spans);
        }
    }
    spans.into_values().collect()
}

/// Adds the occurrences of `values`, one value after the other, unless they overlap one of `spans`.
fn add_matches(text: &str, kind: PiiKind, values: &[&str], spans: &mut BTreeMap<usize, PiiSpan>) {
    let Ok(finder) = AhoCorasick::new(values) else { return }; // fails from 2^31 states on only
    let mut hits: Vec<Match> = finder.find_overlapping_iter(text).collect();
    hits.sort_unstable_by_key(|hit| (hit.pattern(), hit.start()));
    for hit in hits {
        PiiSpan::new(text, kind, hit.range()).add_to(spans);
    }
}

/// Finds every e-mail address, each after the end of the one before.
fn find_emails(text: &str) -> Vec<Range<usize>> {
    let next = |range: &Range<usize>| first_email(text, range.end);
    std::iter::successors(first_email(text, 0), next).collect()
}

/// Finds the leftmost disjoint matches in the text between ascending `spans`; `matched_bytes`
/// returns the length of a match at the start of its argument.
fn leftmost_between<'a>(
    text: &str,
    spans: impl IntoIterator<Item = &'a PiiSpan>,
    matched_bytes: fn(&[u8]) -> Option<usize>,
) -> Vec<Range<usize>> {
    let mut matches = Vec::new();
    let mut at = 0;
    let ends = std::iter::once(text.len()..text.len());
    for span in spans.into_iter().map(|span| span.range.clone()).chain(ends) {
        let bytes = &text.as_bytes()[..span.start];
        while at < bytes.len() {
            let matched = matched_bytes(&bytes[at..]);
            matches.extend(matched.map(|matched| at..at + matched));
            at += matched.unwrap_or(1);
        }
        at = span.end;
    }
    matches
}

/// Returns the length of an IPv4 address at the start of `bytes`; numbers may have leading zeros.
fn ipv4_len(bytes: &[u8]) -> Option<usize> {
    let mut end = octet_len(bytes)?;
    for _ in 1..4 {
        end += octet_len(bytes[end..].strip_prefix(b".")?)? + 1;
    }
    Some(end)
}

/// Returns the length of an [`APERTUS_IBAN`] at the start of `bytes`.
fn apertus_iban_len(bytes: &[u8]) -> Option<usize> {
    let fits = |(form, byte): (&u8, &u8)| match form {
        b'A' => byte.is_ascii_uppercase(),
        b'0' => byte.is_ascii_digit(),
        b'X' => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        _ => byte == form,
    };
    let (start, rest) = bytes.split_at_checked(APERTUS_IBAN.len())?;
    let has_second = rest.first().is_some_and(|byte| fits((&b'X', byte)));
    APERTUS_IBAN.iter().zip(start).all(fits).then(|| start.len() + usize::from(has_second))
}
