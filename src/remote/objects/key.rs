//! Passes object keys between URLs, the client and its answers without changing a byte.
//!
//! The client treats keys as paths: it drops or refuses empty segments, dots, and slashes at the
//! ends. So it gets keys segment by segment, and keys in a listing are escaped before the client
//! parses it and unescaped afterwards.

use std::fmt::Write as _;

use object_store::path::{Path as ClientKey, PathPart};

/// XML elements of a listing that hold a key or a prefix of keys.
const ELEMENTS: [&str; 3] = ["Key", "Prefix", "Name"];

/// Returns `key` for the client, or the reason why no request can contain it.
pub(super) fn for_client(key: &str) -> Result<ClientKey, &'static str> {
    if key.is_empty() {
        return Ok(ClientKey::default());
    }
    if key.starts_with('/') {
        return Err("begins with a slash");
    }
    if key.ends_with('/') {
        return Err("ends with a slash, as folders do");
    }
    key.split('/').try_fold(ClientKey::default(), |path, segment| {
        let part = PathPart::parse(segment).map_err(|_| {
            if segment.starts_with('.') {
                "holds the segment `.` or `..`, which clients take for a way through folders"
            } else {
                "holds a control character"
            }
        })?;
        Ok(path.join(part))
    })
}

/// Encodes a path for a URL.
pub(super) fn encoded(path: &str) -> String {
    let mut encoded = String::new();
    escape(path, b"-._~=/", &mut encoded);
    encoded
}

/// Escapes all keys in `listing` (XML of S3, Google or Azure).
pub(super) fn escaped_listing(listing: &str) -> String {
    let mut pieces = listing.split('<');
    let mut escaped = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        escaped.push('<');
        match piece.split_once('>') {
            Some((element, text)) if ELEMENTS.contains(&element) => {
                escaped.push_str(element);
                escaped.push('>');
                escape(text, b"", &mut escaped);
            }
            _ => escaped.push_str(piece),
        }
    }
    escaped
}

/// Returns the key that [`escaped_listing`] escaped.
pub(super) fn unescaped(escaped: &ClientKey) -> String {
    without_references(&decoded(escaped.as_ref()))
}

/// Appends `text` to `to`, with all bytes except letters, digits and `plain` percent-encoded.
pub(super) fn escape(text: &str, plain: &[u8], to: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            to.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

/// Decodes percent-encoded bytes in `text`; bytes that are not UTF-8 become `U+FFFD`.
pub(super) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// Replaces the XML references in `text` with their characters.
fn without_references(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let reference = after.split_once(';');
        let found = reference.and_then(|(name, rest)| Some((referred(name)?, rest)));
        plain.push(found.map_or('&', |(character, _)| character));
        rest = found.map_or(after, |(_, rest)| rest);
    }
    plain + rest
}

fn referred(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_no_request_can_ask_for_is_told() {
        for key in ["/a", "a/", "a/../b", "./a", "a/.", "a\nb", "a/\u{7f}"] {
            assert!(for_client(key).is_err(), "{key}");
        }
    }

    #[test]
    fn a_path_is_put_into_a_url() {
        assert_eq!(encoded("a b+c%é.parquet"), "a%20b%2Bc%25%C3%A9.parquet");
    }

    #[test]
    fn a_listing_keeps_its_other_elements() {
        let listing = "<?xml?><L><Name>b</Name><Contents><Key>a//b &amp;c</Key><Size>1</Size>";
        let escaped =
            "<?xml?><L><Name>b</Name><Contents><Key>a%2F%2Fb%20%26amp%3Bc</Key><Size>1</Size>";
        assert_eq!(escaped_listing(listing), escaped);
        assert_eq!(without_references("&lt;&#65;&#x42;&none;&amp;amp; &"), "<AB&none;&amp; &");
    }

    /// Generates keys from characters that are special in one of the formats.
    fn keys() -> impl Strategy<Value = String> {
        "([a-z]|[/?#%+*\\[\\]{}&;<>'\"\\\\ =.:@~^|`]|%2F|%2e|//|&amp;|é|日|\u{1F600}){1,24}"
    }

    proptest! {
        #[test]
        fn a_key_is_itself_again_after_the_client(key in keys()) {
            if let Ok(path) = for_client(&key) {
                prop_assert_eq!(path.as_ref(), key.as_str());
            } else {
                let is_dots = |segment| segment == "." || segment == "..";
                prop_assert!(
                    key.starts_with('/') || key.ends_with('/') || key.split('/').any(is_dots)
                );
            }
        }

        #[test]
        fn a_key_is_itself_again_after_a_listing(key in keys()) {
            let text = key.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let listing = escaped_listing(&format!("<Key>{text}</Key>"));
            let inner = listing.trim_start_matches("<Key>").trim_end_matches("</Key>");
            let path = ClientKey::parse(inner).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(unescaped(&path), key);
        }
    }
}
