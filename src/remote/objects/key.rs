//! Passes object keys between URLs, the client and its answers without changing a byte.
//!
//! The client treats keys as paths: it drops or refuses empty segments, dots, and slashes at the
//! ends. So it gets keys segment by segment, and keys in a listing are escaped before the client
//! parses it and unescaped afterwards.

use std::borrow::Cow;

use object_store::path::{Path as ClientKey, PathPart};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quick_xml::escape::unescape;

/// XML elements of a listing that hold a key or a prefix of keys.
const ELEMENTS: [&str; 3] = ["Key", "Prefix", "Name"];
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'=').remove(b'/');

/// Returns `key` for the client, or the reason why no request can contain it.
pub(super) fn client_key(key: &str) -> Result<ClientKey, &'static str> {
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

/// Encodes a path for a URL; slashes stay.
pub(super) fn encode(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Escapes all keys in `listing` (XML of S3, Google or Azure), so that [`decode`] returns
/// them. A truncated listing without a token gets an empty one: the client reads the token only.
pub(super) fn escape_listing(listing: &str) -> String {
    let mut listing = Cow::Borrowed(listing);
    if listing.contains("<IsTruncated>true<") && !listing.contains("<NextContinuationToken") {
        let token = "<NextContinuationToken/><IsTruncated>";
        listing = listing.replacen("<IsTruncated>", token, 1).into();
    }
    let mut pieces = listing.split('<');
    let mut escaped = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        escaped.push('<');
        match piece.split_once('>') {
            Some((element, text)) if ELEMENTS.contains(&element) => {
                let key = unescape(text).unwrap_or(Cow::Borrowed(text));
                escaped.extend([element, ">"]);
                escaped.extend(utf8_percent_encode(&key, NON_ALPHANUMERIC));
            }
            _ => escaped.push_str(piece),
        }
    }
    escaped
}

/// Decodes percent-encoded bytes in `text`; bytes that are not UTF-8 become `U+FFFD`.
pub(super) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_no_request_can_ask_for_is_told() {
        for key in ["/a", "a/", "a/../b", "./a", "a/.", "a\nb", "a/\u{7f}"] {
            assert!(client_key(key).is_err(), "{key}");
        }
    }

    #[test]
    fn a_path_is_put_into_a_url() {
        assert_eq!(encode("a b+c%é.parquet"), "a%20b%2Bc%25%C3%A9.parquet");
    }

    #[test]
    fn a_listing_keeps_its_other_elements() {
        let listing = "<?xml?><L><Name>b</Name><Contents><Key>a//b &amp;c</Key><Size>1</Size>";
        let escaped = "<?xml?><L><Name>b</Name><Contents><Key>a%2F%2Fb%20%26c</Key><Size>1</Size>";
        assert_eq!(escape_listing(listing), escaped);
        let references = "<Key>&lt;&#65;&#x42;&amp;amp;</Key>";
        assert_eq!(escape_listing(references), "<Key>%3CAB%26amp%3B</Key>");
    }

    /// Generates keys from characters that are special in one of the formats.
    fn keys() -> impl Strategy<Value = String> {
        "([a-z]|[/?#%+*\\[\\]{}&;<>'\"\\\\ =.:@~^|`]|%2F|%2e|//|&amp;|é|日|\u{1F600}){1,24}"
    }

    proptest! {
        #[test]
        fn a_key_is_itself_again_after_the_client(key in keys()) {
            if let Ok(path) = client_key(&key) {
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
            let listing = escape_listing(&format!("<Key>{text}</Key>"));
            let inner = listing.trim_start_matches("<Key>").trim_end_matches("</Key>");
            let path = ClientKey::parse(inner).map_err(|e| TestCaseError::fail(e.to_string()))?;
            prop_assert_eq!(decode(path.as_ref()), key);
        }
    }
}
