//! Matches paths with patterns, after both are put in the same spelling.

use std::borrow::{Borrow, Cow};

use percent_encoding::percent_encode_byte;

use super::Matching;

/// Separator of the literals of a pattern; no spelling contains it.
const ANYTHING: char = '\n';

/// A path pattern: literals with anything between them.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// Literals separated by [`ANYTHING`]; the first is at the start of the path.
    pub(super) literals: String,
    /// True if the last literal is at the end of the path.
    pub(super) is_anchored: bool,
    /// Length of the pattern in characters; the longest pattern that matches decides.
    pub(super) priority: usize,
}

/// Returns true if a pattern matches a path in the same spelling; linear in the length of the path.
pub(super) fn matches(literals: &str, is_anchored: bool, path: &str) -> bool {
    let mut literals = literals.split(ANYTHING);
    let first = literals.next().unwrap_or_default();
    let Some(mut rest) = path.strip_prefix(first) else { return false };
    let Some(last) = literals.next_back() else {
        return !is_anchored || rest.is_empty();
    };
    // The first occurrence of each literal leaves most of the path to the others.
    for literal in literals {
        let Some(at) = rest.find(literal) else { return false };
        rest = &rest[at + literal.len()..];
    }
    if is_anchored { rest.ends_with(last) } else { rest.contains(last) }
}

/// Returns true if a pattern certainly matches every path; false is inconclusive.
pub(super) fn matches_everything(literals: &str, is_anchored: bool) -> bool {
    let others = literals.strip_prefix('/').unwrap_or(literals);
    others.chars().all(|c| c == ANYTHING) && (!is_anchored || !others.is_empty())
}

impl Pattern {
    /// Returns the pattern of a value in RFC 9309's spelling.
    fn from_value(value: &str) -> Self {
        let (value, is_anchored) = strip_anchor(value);
        let mut is_query = false;
        let spelled = |literal| {
            let spelling = uri_spelling(literal, is_query);
            is_query |= literal.contains('?');
            spelling
        };
        let literals = join_literals(&value.split('*').map(spelled).collect::<Vec<_>>());
        let priority = literals.len() + usize::from(is_anchored);
        Self { literals, is_anchored, priority }
    }

    /// Returns the pattern of a value in Protego's spelling, or `None` if nothing can match it.
    fn from_spelling(spelling: &str) -> Option<Self> {
        let priority = spelling.chars().count();
        let (spelling, mut is_anchored) = strip_anchor(spelling);
        let mut literals: Vec<&str> = spelling.split('*').collect();
        // A `$` between two `*`, which Protego leaves in queries, marks the end in its regex.
        if let Some(end) = literals.iter().skip(1).position(|literal| *literal == "$") {
            let after = literals.split_off(end + 1);
            if after.iter().any(|literal| !matches!(*literal, "" | "$")) {
                return None;
            }
            literals.push("");
            is_anchored = false;
        }
        (priority > 0).then(|| Self { literals: join_literals(&literals), is_anchored, priority })
    }
}

impl Matching {
    /// Returns the patterns of a non-empty `Allow` or `Disallow` value.
    pub(super) fn patterns(self, value: &str, is_allow: bool) -> Vec<Pattern> {
        if self == Self::Rfc9309 {
            return vec![Pattern::from_value(value)];
        }
        let mut spellings = Vec::new();
        push_protego_spellings(value, is_allow, &mut spellings);
        spellings.iter().filter_map(|spelling| Pattern::from_spelling(spelling)).collect()
    }

    /// Returns the spelling of a path that patterns are compared with.
    pub(super) fn spelling(self, path: &str) -> Cow<'_, str> {
        match self {
            Self::Rfc9309 => uri_spelling(path, false),
            Self::Protego04 => {
                let quote = |path: &str| quoted(path, b"/%", b"/%").into_owned();
                let url = respell_path(&without_breaks(path), true, quote);
                if url.is_empty() { "/".into() } else { url.into() }
            }
        }
    }

    /// Returns true if every agent may fetch this path, whatever the file says.
    pub fn always_allows(self, path: &str) -> bool {
        self == Self::Rfc9309 && path.split('?').next() == Some("/robots.txt")
    }
}

/// Appends the spellings of a value that Protego tries.
fn push_protego_spellings(value: &str, is_allow: bool, spellings: &mut Vec<String>) {
    // A `$` also stands for itself.
    if value.contains('$') {
        push_protego_spellings(&value.replace('$', "%24"), is_allow, spellings);
    }
    let spelling = protego_spelling(value);
    // Allowing the index page of a folder allows the folder.
    let folder = spelling.strip_suffix("index.html").filter(|f| is_allow && f.ends_with('/'));
    let folder = folder.map(|folder| format!("{folder}$"));
    spellings.push(spelling);
    if let Some(folder) = folder {
        push_protego_spellings(&folder, is_allow, spellings);
    }
}

fn join_literals<L: Borrow<str>>(literals: &[L]) -> String {
    literals.join(ANYTHING.encode_utf8(&mut [0]))
}

/// Removes the `$` that anchors a pattern, and returns whether it had one.
fn strip_anchor(pattern: &str) -> (&str, bool) {
    pattern.strip_suffix('$').map_or((pattern, false), |pattern| (pattern, true))
}

/// Returns RFC 9309's spelling: escapes what a URI cannot contain, and unescapes what needs no
/// escape. By section 2.2.2 a reserved character equals its escape. As in its examples, separators
/// do not: `#`, `&` and `=`, and before the query `/` and `?`. Patterns give up `*` and `$` before.
fn uri_spelling(text: &str, is_query: bool) -> Cow<'_, str> {
    let separators: &[u8] = if is_query { b"#%&=" } else { b"#%&=/?" };
    let is_verbatim = |byte: u8| is_unreserved(byte) || b"!#$%&'()*+,/:;=?@[]".contains(&byte);
    let is_unescaped = |byte: u8| is_verbatim(byte) && !separators.contains(&byte);
    match text.split_once('?').filter(|_| !is_query && text.contains('%')) {
        Some((path, query)) => {
            format!("{}?{}", uri_spelling(path, false), uri_spelling(query, true)).into()
        }
        None => respelled(text, is_unescaped, is_verbatim),
    }
}

/// Returns true for RFC 3986's unreserved characters, which Python's `quote` never escapes.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Undoes escapes of bytes that satisfy `is_unescaped`, and escapes bytes that do not satisfy
/// `is_verbatim`, which `%` must satisfy.
fn respelled(
    text: &str,
    is_unescaped: impl Fn(u8) -> bool,
    is_verbatim: impl Fn(u8) -> bool,
) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte != b'%' && is_verbatim(byte)) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let escape = (*first == b'%').then(|| rest.split_first_chunk::<2>()).flatten();
        if let Some((digits, after)) = escape
            && let [Some(high), Some(low)] = digits.map(|digit| char::from(digit).to_digit(16))
        {
            rest = after;
            let byte = (high * 16 + low) as u8;
            if is_unescaped(byte) {
                bytes.push(byte);
            } else {
                bytes.extend(percent_encode_byte(byte).as_bytes());
            }
        } else {
            bytes.push(*first);
        }
    }
    // Invalid UTF-8 becomes U+FFFD, as in Python.
    let mut spelling = String::with_capacity(bytes.len());
    for byte in String::from_utf8_lossy(&bytes).bytes() {
        if is_verbatim(byte) {
            spelling.push(char::from(byte));
        } else {
            spelling.push_str(percent_encode_byte(byte));
        }
    }
    spelling.into()
}

/// Returns Python's spelling: undoes escapes of bytes that are not in `escaped`, and escapes bytes
/// that are neither unreserved nor in `verbatim`.
fn quoted<'a>(text: &'a str, escaped: &[u8], verbatim: &[u8]) -> Cow<'a, str> {
    let is_verbatim = |byte: u8| is_unreserved(byte) || verbatim.contains(&byte);
    respelled(text, |byte| !escaped.contains(&byte), is_verbatim)
}

/// Respells the path of a URL without authority, and keeps the non-empty parts behind it. Python's
/// `urllib.parse.urlparse` splits it like this.
fn respell_path(url: &str, has_params: bool, respell: impl FnOnce(&str) -> String) -> String {
    let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    // Only the last segment has parameters.
    let segment = url.rfind('/').unwrap_or(0);
    let at = url[segment..].find(';').filter(|_| has_params).map(|at| segment + at);
    let (path, params) = at.map_or((url, ""), |at| (&url[..at], &url[at + 1..]));
    let mut respelled = respell(path);
    for (mark, part) in [(';', params), ('?', query), ('#', fragment)] {
        if !part.is_empty() {
            respelled.push(mark);
            respelled.push_str(part);
        }
    }
    respelled
}

/// Removes tabs and line ends, as `urlparse` does.
fn without_breaks(url: &str) -> Cow<'_, str> {
    let is_break = |c| matches!(c, '\t' | '\r' | '\n');
    if url.contains(is_break) { url.replace(is_break, "").into() } else { url.into() }
}

/// Returns the spelling of a pattern that Protego compares, made with `urlparse` and `quote`.
fn protego_spelling(pattern: &str) -> String {
    let mut pattern = Cow::Borrowed(pattern);
    // As a pattern, a whole URL stands for a path that contains it.
    if pattern.starts_with("http://") || pattern.starts_with("https://") {
        pattern = format!("/{pattern}").into();
    }
    // `urlparse` must not take the first segment for an authority.
    if pattern.starts_with("//") {
        pattern = format!("//{pattern}").into();
    }
    let is_kept_apart = |c| matches!(c, '?' | ';' | '$');
    let end = pattern.len() - usize::from(pattern.ends_with(is_kept_apart));
    let (url, last) = pattern.split_at(end);
    let url = without_breaks(url.trim_start_matches(|c| c <= ' '));
    let (scheme, mut rest) =
        url.split_once(':').filter(|(s, _)| is_scheme(s)).unwrap_or(("", &url));
    if let Some(authority) = rest.strip_prefix("//") {
        let path = authority.find(['/', '?', '#']).unwrap_or(authority.len());
        rest = &authority[path..];
    }
    let scheme = scheme.to_ascii_lowercase();
    let quote = |path: &str| format!("{}{last}", quoted(path, b"/*$%", b"/*%="));
    respell_path(rest, SCHEMES_WITH_PARAMS.contains(&scheme.as_str()), quote)
}

/// Schemes for which `urlparse` splits off parameters.
const SCHEMES_WITH_PARAMS: [&str; 16] = [
    "", "ftp", "hdl", "prospero", "http", "imap", "https", "shttp", "rtsp", "rtsps", "rtspu",
    "sip", "sips", "mms", "sftp", "tel",
];

/// Returns true for the scheme of a URL by its characters.
fn is_scheme(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Matches letter by letter, by the definition of a pattern.
    fn is_match(pattern: &str, path: &str) -> bool {
        let mut letters = pattern.chars();
        match letters.next() {
            None => true,
            Some('$') if pattern == "$" => path.is_empty(),
            Some('*') => (0..=path.len()).any(|at| is_match(letters.as_str(), &path[at..])),
            Some(letter) => {
                path.strip_prefix(letter).is_some_and(|path| is_match(letters.as_str(), path))
            }
        }
    }

    proptest! {
        #[test]
        fn matches_are_those_of_the_definition(
            pattern in "/?[ab*]{0,8}[$]?",
            path in "/[ab]{0,12}",
        ) {
            for compiled in [Pattern::from_value(&pattern)].iter().chain(&Pattern::from_spelling(&pattern)) {
                let Pattern { literals, is_anchored, priority } = compiled;
                let is_found = matches(literals, *is_anchored, &path);
                prop_assert_eq!(is_found, is_match(&pattern, &path));
                prop_assert!(!matches_everything(literals, *is_anchored) || is_found);
                prop_assert_eq!(*priority, pattern.len());
            }
        }

        #[test]
        fn spellings_are_final(text in "/([a2Ff*$ é~:/?=]|%[0-9a-fA-F]{2}){0,12}") {
            for is_query in [false, true] {
                let spelling = uri_spelling(&text, is_query).into_owned();
                prop_assert!(spelling.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert_eq!(uri_spelling(&spelling, is_query), spelling.as_str());
            }
        }
    }
}
