//! Splits a robots.txt into lines of fields and values.

use std::borrow::Cow;

use super::{Matching, is_space};

/// Maximum bytes of a file that rfc9309 reads.
const MAX_BYTES: usize = 500 << 10;

/// Known fields by lower-case name, with the usual misspellings.
const FIELDS: [(Field, &[&str]); 5] = [
    (Field::UserAgent, &["user-agent", "useragent", "user agent"]),
    (Field::Allow, &["allow"]),
    (Field::Disallow, &["disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"]),
    (Field::Other, &["sitemap", "sitemaps", "site-map", "host"]),
    (Field::Other, &["crawl-delay", "crawl delay", "request-rate", "request rate", "visit-time"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    UserAgent,
    Allow,
    Disallow,
    Other,
    /// No name before the colon.
    Empty,
}

/// A line that has a field.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Number of the line, from 1.
    pub(super) number: usize,
    /// Text without comment and surrounding white space.
    pub(super) text: &'a str,
    pub(super) field: Field,
    /// Trimmed value, which may be empty.
    pub value: &'a str,
}

/// Returns the lines of a text that have a field.
pub(super) fn lines(text: &str, matching: Matching) -> impl Iterator<Item = Line<'_>> {
    let mut rest = text;
    let split = std::iter::from_fn(move || {
        let ends = |c| matching.ends_line(c);
        let (line, end) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
        let after = end.strip_prefix("\r\n").or_else(|| end.strip_prefix(ends));
        let is_some = !rest.is_empty();
        rest = after.unwrap_or_default();
        is_some.then_some(line)
    });
    split.enumerate().filter_map(move |(i, line)| {
        let text = line.split('#').next().unwrap_or_default().trim_matches(is_space);
        let (field, value) = matching.parse_line(text)?;
        Some(Line { number: i + 1, text, field, value })
    })
}

impl Field {
    /// Returns the field with this name, or the usual misspelling of it, in any case.
    fn from_name(name: &str) -> Option<Self> {
        let is_name = |known: &&str| known.eq_ignore_ascii_case(name);
        FIELDS.iter().find(|(_, names)| names.iter().any(is_name)).map(|(field, _)| *field)
    }
}

impl Matching {
    /// Returns the part of a file that is read (for RFC 9309 none of an HTML page); invalid UTF-8
    /// becomes U+FFFD.
    pub(super) fn decode(self, content: &[u8]) -> Cow<'_, str> {
        if self != Self::Rfc9309 {
            return String::from_utf8_lossy(content);
        }
        let mut content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
        if content.len() > MAX_BYTES {
            // A truncated rule would be another rule; one that ends with the last byte is whole.
            content = &content[..=MAX_BYTES];
            let end = content.iter().rposition(|byte| b"\n\r\0".contains(byte));
            content = &content[..end.unwrap_or(0)];
        }
        let markup = content.trim_ascii_start();
        let starts_with = |tag: &[u8]| {
            markup.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag))
        };
        if starts_with(b"<!doctype") || starts_with(b"<html") {
            return Cow::Borrowed("");
        }
        String::from_utf8_lossy(content)
    }

    fn ends_line(self, c: char) -> bool {
        match self {
            Self::Rfc9309 => matches!(c, '\n' | '\r' | '\0'),
            Self::Protego04 => matches!(
                c,
                '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
            ),
        }
    }

    /// Splits a line without its comment; `None` if it has no colon and no known field.
    fn parse_line(self, line: &str) -> Option<(Field, &str)> {
        let (field, value) = match line.split_once(':') {
            Some((name, value)) => {
                let name = name.trim_matches(is_space);
                let other = if name.is_empty() { Field::Empty } else { Field::Other };
                (Field::from_name(name).unwrap_or(other), value)
            }
            None if self == Self::Rfc9309 => {
                let (name, value) = line.split_once(is_space)?;
                let value = value.trim_matches(is_space);
                (Field::from_name(name).filter(|_| !value.contains(is_space))?, value)
            }
            None => line.match_indices(' ').take(2).find_map(|(space, _)| {
                let (name, value) = line.split_at(space);
                let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
                let field = Field::from_name(name).filter(|_| name != "visit-time");
                field.filter(|_| is_lower).map(|field| (field, value))
            })?,
        };
        Some((field, value.trim_matches(is_space)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str, matching: Matching) -> Vec<usize> {
        lines(text, matching).map(|line| line.number).collect()
    }

    #[test]
    fn lines_end_as_their_reader_says() {
        let text = "a:1\r\n\rb:2\0c:3\x0bd:4\u{2028}e:5\n";
        assert_eq!(numbers(text, Matching::Rfc9309), [1, 3, 4]);
        assert_eq!(numbers(text, Matching::Protego04), [1, 3, 4, 5]);
    }

    #[test]
    fn a_file_is_read_up_to_the_last_whole_line_of_500_kib() {
        let mut content = b"\xef\xbb\xbfa:1\n".to_vec();
        content.resize(3 + MAX_BYTES, b'b');
        assert_eq!(Matching::Rfc9309.decode(&content).len(), MAX_BYTES);
        content.push(b'\n');
        assert_eq!(Matching::Rfc9309.decode(&content).len(), MAX_BYTES);
        content[3 + MAX_BYTES] = b'b';
        assert_eq!(Matching::Rfc9309.decode(&content).len(), "a:1".len());
        assert_eq!(Matching::Protego04.decode(&content).len(), content.len());
    }

    #[test]
    fn pages_have_no_rules() {
        for page in ["\u{feff}\n <!DOCTYPE html>\nDisallow: /", "<HTML>\nDisallow: /"] {
            assert_eq!(Matching::Rfc9309.decode(page.as_bytes()), "");
        }
        assert_ne!(Matching::Rfc9309.decode(b"<pre>\nDisallow: /"), "");
    }

    #[test]
    fn a_colon_may_be_missing() {
        use Field::{Disallow, Other, UserAgent};
        let fields = |matching| {
            let text = "User-agent *\nuser agent  *\nDISALLOW\t/\nvisit-time x\ndisallow a:b";
            lines(text, matching).map(|line| line.field).collect::<Vec<_>>()
        };
        assert_eq!(fields(Matching::Rfc9309), [UserAgent, Disallow, Other, Other]);
        assert_eq!(fields(Matching::Protego04), [UserAgent, Other]);
    }
}
