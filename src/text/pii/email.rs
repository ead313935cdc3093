//! Finds e-mail addresses by datatrove's grammar, reading outwards from `@`. The local part is the
//! longest run of atoms between single dots before it, from its first character at a word boundary.
//! The domain has as many labels as possible, at least two, or is an address in brackets. This
//! equals the leftmost match of the regular expression, because neither side contains `@` and the
//! split into labels is unique.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memchr_iter;
use regex::Regex;

use super::ip::octet_len;
use super::letters::is_latin;
use crate::characters::is_match;

/// Letters and numbers, which with `_` form Python's `\w`. Unlike [`char::is_alphanumeric`], this
/// leaves out vowel signs.
static LETTER_OR_NUMBER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[\p{L}\p{N}]").ok());

/// Returns the byte range of the first address at or after `from`, with an ASCII domain; the text
/// before `from` only affects the word boundary.
pub(super) fn first_email(text: &str, from: usize) -> Option<Range<usize>> {
    memchr_iter(b'@', &text.as_bytes()[from..]).find_map(|at| {
        let at = from + at;
        let start = local_start(text, from, at)?;
        Some(start..domain_end(text, at + 1, |_| false)?)
    })
}

/// Returns the start of the local part before `at`, not before `from`; `None` if there is none.
fn local_start(text: &str, from: usize, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_atom = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-".contains(&b);
    let joins =
        |i: usize| is_atom(bytes[i]) || bytes[i] == b'.' && i + 1 < at && bytes[i + 1] != b'.';
    let run = (from..at).rev().take_while(|&i| joins(i)).count();
    (at - run..at).find(|&i| bytes[i] != b'.' && at_word_boundary(text, i))
}

/// Returns true if either the ASCII character at `at` or the one before it is in a word, not both.
fn at_word_boundary(text: &str, at: usize) -> bool {
    let is_word = |c: char| {
        c.is_ascii_alphanumeric()
            || c == '_'
            || !c.is_ascii() && is_match(LETTER_OR_NUMBER.as_ref(), c)
    };
    text[..at].chars().next_back().is_some_and(is_word) != text[at..].starts_with(is_word)
}

/// Returns the end of the domain that starts at `start`, or `None` for fewer than two labels;
/// `is_label` tells which characters beside ASCII may stand in it.
pub(super) fn domain_end(text: &str, start: usize, is_label: fn(char) -> bool) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.get(start) == Some(&b'[') {
        return literal_end(bytes, start + 1);
    }
    let is_in_label = |c: char| match c {
        '-' => true,
        _ if c.is_ascii() => c.is_ascii_alphanumeric(),
        _ => is_label(c),
    };
    let rest = &text[start..];
    let end = rest.find(|c: char| c != '.' && !is_in_label(c)).unwrap_or(rest.len());
    let (mut at, mut last) = (start, None);
    for label in rest[..end].split('.') {
        let kept = label.trim_end_matches('-');
        if kept.is_empty() || kept.starts_with('-') {
            break;
        }
        if at > start {
            last = Some(at..at + kept.len());
        }
        if kept.len() < label.len() {
            break;
        }
        at += label.len() + 1;
    }
    let last = last?;
    // Text that follows without a space in another script is no part of it, as in `a@b.jpまで`.
    let is_other = |c: char| !c.is_ascii() && !is_latin(c);
    let other = text[last.clone()].find(is_other).filter(|_| bytes[last.start].is_ascii());
    let Some(other) = other else { return Some(last.end) };
    let kept = text[last.start..last.start + other].trim_end_matches('-');
    Some(last.start + kept.len())
}

/// Returns the end of a bracketed domain, with its first byte after `[` at `start`: three octets,
/// then another octet or a tag with a colon.
fn literal_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut rest = &bytes[start..];
    for _ in 0..3 {
        rest = rest[octet_len(rest)?..].strip_prefix(b".")?;
    }
    let at = bytes.len() - rest.len();
    let tag = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'-').count();
    if octet_len(rest) == Some(tag) && rest[tag..].starts_with(b"]") {
        return Some(at + tag + 1);
    }
    (tag > 0 && rest[tag - 1] != b'-' && rest[tag..].starts_with(b":]")).then_some(at + tag + 2)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Returns the grammar as a regular expression, which matches from left to right and greedily.
    fn regex() -> Result<Regex, regex::Error> {
        let atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
        let letter = "[A-Za-z0-9]";
        let label = format!("{letter}(?:(?:{letter}|-)*{letter})?");
        let octet = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)";
        let literal = format!(r"\[(?:{octet}\.){{3}}(?:{octet}|[A-Za-z0-9-]*[A-Za-z0-9]:)\]");
        Regex::new(&format!(r"\b{atom}(?:\.{atom})*@(?:(?:{label}\.)+{label}|{literal})"))
    }

    /// Finds every address, each in the text after the previous one.
    fn emails(text: &str, first: impl Fn(&str) -> Option<Range<usize>>) -> Vec<Range<usize>> {
        let mut from = 0;
        std::iter::from_fn(|| {
            let range = first(&text[from..])?;
            let range = from + range.start..from + range.end;
            from = range.end;
            Some(range)
        })
        .collect()
    }

    #[test]
    fn domains_end_where_labels_do() {
        for (text, expected) in [
            ("a@b.co-", Some(0..6)),
            ("a@b-.co", None),
            ("a@b..co", None),
            ("a@b.c.-", Some(0..5)),
            ("..a.b@c.de.", Some(2..10)),
            ("a@b", None),
            ("a@[1.2.3.4]", Some(0..11)),
            ("a@[1.2.3.256]", None),
            ("a@[1.2.3.x-y:]", Some(0..14)),
            ("a@[1.2.3.x-:]", None),
            ("a@[1.2.3", None),
            ("+a@b.co", Some(1..7)),
            ("é+a@b.co", Some(2..9)),
            ("éa@b.co", None),
            ("a@münchen.de", None),
        ] {
            assert_eq!(first_email(text, 0), expected, "{text}");
        }
    }

    #[test]
    fn text_that_follows_in_another_script_is_no_part_of_a_domain() {
        for (text, expected) in [
            ("a@b.jpまで", 6),
            ("a@b.jp-まで", 6),
            ("a@b.まで", 10),
            ("a@münchen.vermögen", 20),
            ("a@例え.jp", 11),
        ] {
            assert_eq!(domain_end(text, 2, char::is_alphanumeric), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_comes_before_the_start_is_part_of_the_boundary() {
        assert_eq!(first_email("x_a@b.co", 1), None);
        assert_eq!(first_email("x+a@b.co", 1), Some(1..8));
        assert_eq!(first_email("mülla@b.de", 0), None);
        assert_eq!(first_email("。abc@x.cn", 0), Some(3..11));
    }

    #[test]
    fn addresses_are_those_of_the_regular_expression() -> Result<(), Box<dyn Error>> {
        let regex = regex()?;
        // Non-ASCII characters are letters only, because `\b` treats others differently.
        let parts = r"[ab1_.@+-]|[a@.]|\[|\]|é|中| |1\.2\.|300|25|x:|a@b\.co|@\[1\.2\.3\.";
        let texts = prop::string::string_regex(&format!("({parts}){{0,24}}"))?;
        let mut runner = TestRunner::new(ProptestConfig::with_cases(4096));
        Ok(runner.run(&texts, |text| {
            prop_assert_eq!(
                emails(&text, |rest| first_email(rest, 0)),
                emails(&text, |rest| regex.find(rest).map(|found| found.range()))
            );
            Ok(())
        })?)
    }
}
