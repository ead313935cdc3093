//! Finds e-mail addresses in the default mode: in any script, under existing public suffixes.
//! The local part is read backwards from `@`: letters of one kind (Latin, or scripts with spaces,
//! RFC 6531), digits and common symbols. A domain ends in a public suffix, unlike `icon@2x.png`,
//! `pkg@1.3.0` and `df@idx.values`. `git@host:path` and high-density images are excluded.

use std::ops::Range;

use memchr::memchr_iter;
use polysift_suffix::{Suffixes, public_suffix};
use unicode_normalization::char::is_combining_mark;

use super::email::domain_end;
use super::letters::is_latin;

/// ASCII characters of a local part besides letters, digits and dots. Other allowed ones are left
/// out, because they mark the start of an address in URLs and code.
const SPECIALS: &str = "!#$%'*+^_~-";
/// Dots to go back from the end of a domain: the longest suffix has seven labels, and one more
/// label belongs to the domain.
const SUFFIX_LABELS: usize = 6;

/// Kind of a character in a local part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Latin,
    /// A letter of another script that has spaces between words.
    Other,
    /// ASCII digits, marks, invisible characters and [`SPECIALS`], which go with either kind.
    Common,
}

impl Kind {
    /// Returns the kind of `c`, or `None` if no local part contains it.
    fn of(c: char) -> Option<Self> {
        match c {
            'a'..='z' | 'A'..='Z' => Some(Self::Latin),
            '0'..='9' => Some(Self::Common),
            _ if c.is_ascii() => SPECIALS.contains(c).then_some(Self::Common),
            _ if is_latin(c) => Some(Self::Latin),
            _ if is_combining_mark(c) || is_invisible(c) => Some(Self::Common),
            _ if c.is_alphanumeric() && !has_no_spaces(c) => Some(Self::Other),
            _ => None,
        }
    }
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{AD}' | '\u{200B}'..='\u{200D}' | '\u{2060}' | '\u{FEFF}')
}

/// Returns true for scripts without spaces between words, and for wide forms.
fn has_no_spaces(c: char) -> bool {
    matches!(c, '\u{E00}'..='\u{109F}' | '\u{1100}'..='\u{11FF}' | '\u{1780}'..='\u{17FF}'
        | '\u{2E80}'..='\u{A4CF}' | '\u{A960}'..='\u{A97F}' | '\u{AC00}'..='\u{D7FF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{FF00}'..='\u{FFEF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Returns the byte range of the first e-mail address, as if nothing stood before `text`.
pub(super) fn first_address(text: &str) -> Option<Range<usize>> {
    memchr_iter(b'@', text.as_bytes()).find_map(|at| {
        let start = local_start(&text[..at])?;
        let domain = &text[at + 1..];
        let hidden = domain.len() - domain.trim_start_matches(is_invisible).len();
        let domain_start = at + 1 + hidden;
        let end = domain_end(text, domain_start, |c| c.is_alphanumeric() || is_combining_mark(c))?;
        let end = domain_start + known_domain_end(&text[domain_start..end])?;
        let is_of_git = &text[start..at] == "git" && text[end..].starts_with([':', '/']);
        (!is_of_git).then_some(start..end)
    })
}

/// Returns the start of the local part at the end of `text`; `None` if no character can begin one.
fn local_start(text: &str) -> Option<usize> {
    let (mut start, mut kind, mut after) = (None, Kind::Common, '@');
    for (i, c) in text.char_indices().rev() {
        if c == '.' {
            if matches!(after, '.' | '@') {
                break;
            }
        } else {
            match Kind::of(c) {
                Some(of) if of == Kind::Common || kind == Kind::Common || of == kind => {
                    kind = if of == Kind::Common { kind } else { of };
                }
                _ => break,
            }
            // A local part starts with a letter, a digit or an underscore.
            if c.is_alphanumeric() || c == '_' {
                start = Some(i);
            }
        }
        after = if is_invisible(c) && after == '@' { '@' } else { c };
    }
    start
}

/// Returns the end of the longest domain at the start of `text` that ends in a public suffix; an IP
/// address in brackets is taken whole.
fn known_domain_end(text: &str) -> Option<usize> {
    if text.starts_with('[') {
        return Some(text.len()); // an IP address
    }
    let first_dot = text.find('.')?;
    let is_known = |end: &usize| {
        // Only as many labels as a suffix can have: a domain may have any number of them.
        let labels = text[..*end].rmatch_indices('.').nth(SUFFIX_LABELS);
        let domain = text[labels.map_or(0, |(dot, _)| dot + 1)..*end].to_lowercase();
        public_suffix(&domain, Suffixes::Private).is_some()
    };
    let ends = std::iter::once(text.len()).chain(text.rmatch_indices('.').map(|(at, _)| at));
    let end = ends.take_while(|end| *end > first_dot).find(is_known)?;
    // `icon@2x.ai` is an image for high-density screens.
    let is_density = matches!(text.as_bytes()[..end], [b'0'..=b'9', b'x', b'.', ..]);
    (!is_density).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_any_script_and_whole() {
        for (text, expected) in [
            ("müller@firma.de", Some("müller@firma.de")),
            ("josé.garcia@correo.es", Some("josé.garcia@correo.es")),
            ("jose\u{301}.garcia@correo.es", Some("jose\u{301}.garcia@correo.es")),
            ("пишите: иван@пример.рф!", Some("иван@пример.рф")),
            ("Αλέξης@παράδειγμα.ελ", Some("Αλέξης@παράδειγμα.ελ")),
            ("راسل أحمد@example.com", Some("أحمد@example.com")),
            ("joe\u{200B}@acme.com", Some("joe\u{200B}@acme.com")),
            ("joe@\u{AD}acme.com", Some("joe@\u{AD}acme.com")),
            // Scripts without spaces are excluded; letters of another kind begin a new word.
            ("请联系zhang@example.cn", Some("zhang@example.cn")),
            ("почтаivan@mail.ru", Some("ivan@mail.ru")),
            ("メールはa.b@例え.jpまで", Some("a.b@例え.jp")),
            // In URLs and code only the address itself is found.
            ("https://x.org/u/joe@acme.com/edit", Some("joe@acme.com")),
            ("mail={joe.doe+x@acme.co.uk}", Some("joe.doe+x@acme.co.uk")),
            ("?user=joe@acme.com&a=b", Some("joe@acme.com")),
            ("joe@acme.com.The next", Some("joe@acme.com")),
            ("joe@[1.2.3.4]", Some("joe@[1.2.3.4]")),
            ("git@example.com", Some("git@example.com")),
            ("_a@b.co", Some("_a@b.co")),
            ("..+a@b.co", Some("a@b.co")),
            ("a..b@c.de", Some("b@c.de")),
        ] {
            let found = first_address(text).map(|range| &text[range]);
            assert_eq!(found, expected, "{text}");
        }
    }

    /// Looking at all labels for each label would take hours.
    #[test]
    fn a_domain_of_very_many_labels_takes_no_longer_than_its_text() {
        let labels = "x.".repeat(1 << 18);
        assert_eq!(first_address(&format!("a@{labels}y")), None);
        let text = format!("a@{labels}com.y");
        assert_eq!(first_address(&text), Some(0..text.len() - 2));
    }

    #[test]
    fn what_only_looks_like_an_address_is_none() {
        for text in [
            "<img src=\"icon@2x.png\"> hero@3x.webp logo@2x.ai",
            "npm install left-pad@1.3.0 react@18.2.0-rc.1 @types/node@20.1.x",
            "\\cite{foo@bar2020.x} y = df@idx.values + a@b.T",
            "git clone git@github.com:acme/widgets.git ssh://git@github.com/acme",
            "pip install git+https://github.com/x/y.git@v1.0.2",
            "see https://example.com/@user@v2.0.1/readme",
            "uses: actions/checkout@v4.1",
            "a.@b.co @b.co 请@b.co",
        ] {
            assert_eq!(first_address(text).map(|range| &text[range]), None, "{text}");
        }
    }
}
