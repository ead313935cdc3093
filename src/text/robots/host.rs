//! Splits a URL into the parts that opt-outs depend on: authority, path, registrable domain.

use std::borrow::Cow;
use std::fmt;

use polysift_suffix::{Suffixes, public_suffix};
use url::{Position, Url};

use super::Matching;

/// Maximum bytes of the name of a host (RFC 1035).
const MOST_HOST_BYTES: usize = 253;

/// Parts of a document's URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentUrl<'a> {
    /// Authority that serves the robots.txt.
    pub authority: Authority<'a>,
    /// Path and query after parsing, without the fragment.
    parsed: Cow<'a, str>,
    /// The URL as written.
    url: &'a str,
}

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority<'a> {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host in lower-case ASCII, without user information and trailing dots; IPv6 in brackets.
    pub host: Cow<'a, str>,
    /// Port, or `None` for the default of the scheme.
    pub port: Option<u16>,
}

impl DocumentUrl<'_> {
    /// Returns the path for [`super::Robots::blocked`]; it begins with `/` unless noted below.
    ///
    /// Protego 0.4 uses the text as written, with dot segments and fragments. If a query follows
    /// the authority directly, a `/` is put before it, but not for Protego.
    pub fn path(&self, matching: Matching) -> &str {
        let behind = self.url.split_once("://").filter(|_| matching == Matching::Protego04);
        let Some((_, rest)) = behind else { return &self.parsed };
        match &rest[rest.find(['/', '?', '#']).unwrap_or(rest.len())..] {
            "" => "/",
            written => written,
        }
    }

    /// Returns path and query in a spelling that equal URLs share, whatever they escape (RFC 3986,
    /// section 6.2.2).
    pub fn spelling(&self) -> Cow<'_, str> {
        Matching::Rfc9309.spelling(&self.parsed)
    }
}

/// Splits a URL into parts, parsed by the WHATWG's standard.
///
/// # Errors
/// Returns the reason why it is no URL, or none of a web server.
pub fn locate(url: &str) -> Result<DocumentUrl<'_>, String> {
    let location = locate_plain(url).map_or_else(|| locate_any(url), Ok)?;
    if location.authority.host.len() > MOST_HOST_BYTES {
        return Err(format!("the host has more than {MOST_HOST_BYTES} bytes"));
    }
    Ok(location)
}

/// Splits a URL that parsing does not change; returns `None` if it might.
fn locate_plain(url: &str) -> Option<DocumentUrl<'_>> {
    let (scheme, rest) = match url.strip_prefix("http")? {
        rest if rest.starts_with("s://") => ("https", &rest[4..]),
        rest => ("http", rest.strip_prefix("://")?),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let parsed = path.split('#').next().unwrap_or_default();
    (is_plain_host(host) && is_plain_path(parsed)).then_some(DocumentUrl {
        authority: Authority { scheme, host: host.into(), port: None },
        parsed: parsed.into(),
        url,
    })
}

/// Returns true if a host has lower-case, unencoded labels and is not an IPv4 address.
fn is_plain_host(host: &str) -> bool {
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let is_name = |label: &str| label.starts_with(|c: char| c.is_ascii_lowercase());
    host.bytes().all(is_plain)
        && !host.starts_with('.')
        && !host.contains("..")
        && !host.contains("xn--")
        && host.rsplit('.').next().is_some_and(is_name)
}

/// Returns true if a path with its query has no escaped or replaced byte and no dot segment.
fn is_plain_path(path: &str) -> bool {
    let is_changed =
        |b| matches!(b, b'"' | b'#' | b'\'' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{'..=b'}');
    path.bytes().all(|byte| byte.is_ascii_graphic() && !is_changed(byte))
        && !["/.", "/%2e", "/%2E"].iter().any(|segment| path.contains(segment))
}

/// Splits any URL, with the help of the crate `url`.
fn locate_any(url: &str) -> Result<DocumentUrl<'_>, String> {
    let parsed = Url::parse(url).map_err(|error| format!("not a URL: {error}"))?;
    let scheme = ["http", "https"].into_iter().find(|scheme| *scheme == parsed.scheme());
    let scheme = scheme.ok_or("the scheme is neither http nor https")?;
    let host = parsed.host_str().unwrap_or_default().trim_end_matches('.');
    if host.is_empty() {
        return Err("the host has no name".to_owned());
    }
    let path = &parsed[Position::BeforePath..Position::AfterQuery];
    Ok(DocumentUrl {
        authority: Authority { scheme, host: host.to_owned().into(), port: parsed.port() },
        parsed: path.to_owned().into(),
        url,
    })
}

/// Returns the registered part of the host of an [`Authority`]: one label before a public suffix.
/// `None` for IP addresses, `localhost`, public suffixes, and names below none of them.
pub fn registrable_domain(host: &str, suffixes: Suffixes) -> Option<&str> {
    let suffix = public_suffix(host, suffixes)?;
    let before = host[..host.len() - suffix.len()].strip_suffix('.')?;
    let start = before.rfind('.').map_or(0, |dot| dot + 1);
    (start < before.len()).then(|| &host[start..])
}

impl fmt::Display for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_longer_than_names_of_hosts_is_refused() {
        for label in ["a.", "A."] {
            let url = |labels: usize| format!("http://{}b/", label.repeat(labels));
            assert!(locate(&url(126)).is_ok());
            assert!(locate(&url(127)).is_err_and(|reason| reason.contains("253")));
        }
    }

    #[test]
    fn spellings_of_one_authority_are_one() -> Result<(), String> {
        for (url, authority) in [
            ("http://WWW.Example.COM:80/", "http://www.example.com"),
            ("https://user:pw@example.com./", "https://example.com"),
            (" https:\\\\example.com:443\\x", "https://example.com"),
            ("https://example.com:8443?x", "https://example.com:8443"),
            ("http://münchen.de/", "http://xn--mnchen-3ya.de"),
            ("http://MÜNCHEN.de/", "http://xn--mnchen-3ya.de"),
            ("http://例え。jp", "http://xn--r8jz45g.jp"),
            ("http://%65xample.com", "http://example.com"),
            ("http://0x7f.1/", "http://127.0.0.1"),
            ("http://[::0:1]:81/", "http://[::1]:81"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(locate(url)?.authority.to_string(), authority, "{url}");
        }
        Ok(())
    }

    #[test]
    fn paths_are_parsed_or_as_written() -> Result<(), String> {
        for (url, parsed, written) in [
            ("http://a.com", "/", "/"),
            ("http://a.com/?x", "/?x", "/?x"),
            ("http://a.com?x#y", "/?x", "?x#y"),
            ("http://a.com/x?#y", "/x?", "/x?#y"),
            ("http://a.com/b/../é?é#f", "/%C3%A9?%C3%A9", "/b/../é?é#f"),
            ("http://a.com/%2e%2E/%7e", "/%7e", "/%2e%2E/%7e"),
            ("http:a.com\\x", "/x", "/x"),
        ] {
            let location = locate(url)?;
            assert_eq!(location.path(Matching::Rfc9309), parsed, "{url}");
            assert_eq!(location.path(Matching::Protego04), written, "{url}");
        }
        Ok(())
    }

    #[test]
    fn what_has_no_authority_says_why() {
        for (url, reason) in [
            ("", "not a URL: relative URL without a base"),
            ("example.com/x", "not a URL: relative URL without a base"),
            ("http://a.com:99999/", "not a URL: invalid port number"),
            ("http://a b/", "not a URL: invalid international domain name"),
            ("ftp://a.com/", "the scheme is neither http nor https"),
            ("example.com:80/x", "the scheme is neither http nor https"),
            ("http://./", "the host has no name"),
        ] {
            assert_eq!(locate(url).err().as_deref(), Some(reason), "{url}");
        }
    }

    #[test]
    fn domains_of_companies_are_a_choice() {
        let domain = |host| registrable_domain(host, Suffixes::Icann);
        assert_eq!(domain("alice.github.io"), Some("github.io"));
        assert_eq!(
            registrable_domain("alice.github.io", Suffixes::Private),
            Some("alice.github.io")
        );
        for host in ["127.0.0.1", "[::1]", "localhost", "co.uk", "", ".", "..com", "a..", "é.ü"] {
            assert_eq!(domain(host), None, "{host}");
        }
    }

    proptest! {
        #[test]
        fn the_short_way_ends_where_the_long_way_does(
            url in "https?://[a-z0-9x.:@A-Z_-]{0,9}(xn--|0x1|[.]1)?[.]?([a-z]{1,3})?([/.?#%2eE]{1,4}|/[!-~\té]{0,9}){0,4}"
        ) {
            if let Some(location) = locate_plain(&url) {
                prop_assert_eq!(Ok(location), locate_any(&url));
            }
        }

        #[test]
        fn nothing_panics(url: String, rest: String, host: String) {
            let _ = locate(&url);
            if let Ok(location) = locate(&format!("http://{rest}")) {
                prop_assert!(location.path(Matching::Rfc9309).starts_with('/'));
                prop_assert!(location.path(Matching::Protego04).starts_with(['/', '?', '#']));
                registrable_domain(&location.authority.host, Suffixes::Icann);
            }
            registrable_domain(&host, Suffixes::Icann);
            registrable_domain(&host, Suffixes::Private);
        }
    }
}
