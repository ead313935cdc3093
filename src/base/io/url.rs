//! Handles URLs of objects in stores, and their secrets: passwords and signed queries.
//!
//! A secret stays in the memory of the process that received it, for its requests. Plans, settings,
//! logs and errors contain the URL without its secrets.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::impostor::impostor;
use crate::error::{Error, Result};
use crate::panics::lock;

/// Query parameters that identify content and grant no access; all others may grant it.
const OPEN_PARAMETERS: [&str; 8] =
    ["download", "generation", "raw", "ref", "revision", "snapshot", "version", "versionId"];

/// Environment variable with URLs and their secrets, for commands that read URLs from a plan.
const SIGNED_URLS: &str = "POLYSIFT_SIGNED_URLS";
/// Replacement for a host that may be part of a password.
const UNREADABLE: &str = "://(unreadable)";
const ENDS: [char; 6] = ['"', '\'', '`', '<', '>', '\\'];

/// URLs as given, keyed by the URL without its secrets.
static WHOLE: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Returns true if `text` names an object in a store rather than a file.
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
}

/// Returns true if `url` is an HTTP(S) URL; only in these does a `?` begin a query.
pub fn is_web(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// Returns `url` without its secrets. Those of an HTTP(S) URL are kept for this process's requests;
/// it is an error if the URL was given before with other secrets, because the files may differ.
pub fn without_secrets(url: &str) -> Result<String> {
    let open = strip_secrets(url);
    if open == url {
        return Ok(open);
    }
    let refused = |reason: &str| Err(Error::config(&open, reason));
    if open.ends_with(UNREADABLE) {
        return refused("no number is behind the `:` of the host; a password has its `/` as %2F");
    }
    if !is_web(url) {
        return refused(
            "a name before `@` is not taken from such a URL: credentials come from the environment, \
             and a container of Azure is az://CONTAINER/KEY",
        );
    }
    let mut whole = lock(&WHOLE);
    let known = whole.entry(open.clone()).or_insert_with(|| url.to_owned());
    if known != url {
        return refused(
            "is given twice, with different passwords or queries; these are not kept, so the two \
             cannot be separated",
        );
    }
    Ok(open)
}

/// Returns the URL given for `open` with its secrets, here or in `SIGNED_URLS`, else `open`.
pub fn with_secrets(open: &str) -> String {
    lock(&WHOLE).get(open).cloned().unwrap_or_else(|| {
        let all = std::env::var(SIGNED_URLS).unwrap_or_default();
        let signed = all.split_whitespace().find(|url| strip_secrets(url) == open);
        signed.unwrap_or(open).to_owned()
    })
}

impl Error {
    /// Returns the error and its causes in one text, without the secrets of URLs.
    pub fn report(&self) -> String {
        if let Self::Decode { path, .. }
        | Self::Row { path, .. }
        | Self::Schema { path, .. }
        | Self::Model { path, .. } = self
            && let Some(what) = impostor(path)
        {
            return redacted(&format!("{}: {what}", path.display()));
        }
        let first = std::error::Error::source(self);
        let causes = std::iter::successors(first, |error| error.source());
        let report = causes.fold(self.to_string(), |text, cause| {
            let cause = cause.to_string();
            // Some libraries repeat their cause in their own message.
            if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
        });
        redacted(&report)
    }
}

/// Returns `text` with the secrets removed from all its URLs.
pub fn redacted(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let before = rest[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '+');
        let url = &rest[before.len()..];
        let end = url.find(|c: char| c.is_whitespace() || ENDS.contains(&c)).unwrap_or(url.len());
        let end = url[..end].find(",http").unwrap_or(end); // the next URL of a list
        // The sentence's punctuation.
        let end = url[..end].trim_end_matches([':', ';', '.', ',', ')']).len();
        redacted.push_str(before);
        // The end lies after `://` at least, so that every step advances.
        let end = end.max(at - before.len() + 3);
        redacted.push_str(&strip_secrets(&url[..end]));
        rest = &url[end..];
    }
    redacted + rest
}

/// Returns the last component of a URL, without the query of an HTTP(S) URL.
pub fn file_name(url: &str) -> &str {
    without_query(url).rsplit('/').next().unwrap_or_default()
}

/// Returns a URL without its query; only HTTP(S) URLs have one.
pub fn without_query(url: &str) -> &str {
    let query = url.find('?').filter(|_| is_web(url));
    query.map_or(url, |at| &url[..at])
}

/// Returns `url` without name and password and, in an HTTP(S) URL, without parameters that may
/// grant access; its host becomes [`UNREADABLE`] if no number follows a `:`.
fn strip_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let whole_path = || format!("{scheme}://{host}{path}");
    if !is_web(url) {
        return whole_path();
    }
    let port = host.rsplit_once(']').map_or(host, |(_, after)| after).split_once(':');
    if port.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return format!("{scheme}{UNREADABLE}");
    }
    let Some((path, query)) = path.split_once('?') else { return whole_path() };
    let is_open = |parameter: &&str| {
        let name = parameter.split_once('=').map_or(*parameter, |(name, _)| name);
        OPEN_PARAMETERS.contains(&name)
    };
    let open: Vec<&str> = query.split('&').filter(is_open).collect();
    let mark = if open.is_empty() { "" } else { "?" };
    format!("{scheme}://{host}{path}{mark}{}", open.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_unknown_parameters_are_taken_out() {
        for (url, open) in [
            ("https://h/a.parquet", "https://h/a.parquet"),
            ("https://me:pa@ss@h:8/a.parquet", "https://h:8/a.parquet"),
            ("https://h/a.parquet?X-Amz-Signature=5&X-Amz-Date=7", "https://h/a.parquet"),
            ("https://h/a?sig=1&versionId=3&se=4", "https://h/a?versionId=3"),
            ("https://h/a?download=true", "https://h/a?download=true"),
            ("http://me:pass@h?token=1", "http://h"),
            ("s3://b/a?b=c&sig=d.parquet", "s3://b/a?b=c&sig=d.parquet"),
            ("s3://key:secret@b/a", "s3://b/a"),
            ("https://[::1]:80/a?t=1", "https://[::1]:80/a"),
            ("https://me:half/other@h/a", "https://(unreadable)"),
            ("hf://datasets/o/n@v1/a?.parquet", "hf://datasets/o/n@v1/a?.parquet"),
        ] {
            assert_eq!(strip_secrets(url), open);
        }
    }

    #[test]
    fn texts_are_cleared_of_every_url() {
        for (text, clear) in [
            ("no URL: at all", "no URL: at all"),
            ("GET http://u:p@h/x?sig=1 in 3 ms", "GET http://h/x in 3 ms"),
            ("from http://u:p@h:9: refused", "from http://h:9: refused"),
            ("[\"https://h/a?t=1\", \"https://h/b?t=2\"]", "[\"https://h/a\", \"https://h/b\"]"),
            ("<Url>https://u:p@h</Url>", "<Url>https://h</Url>"),
            ("https://u:p,x@h/a", "https://h/a"),
            ("(http://h/a?sig=b,c) is gone", "(http://h/a) is gone"),
            ("(http://u:p@h/a), then", "(http://h/a), then"),
            ("s3://b/a,http://u:p@h/b?t=1", "s3://b/a,http://h/b"),
            (":// and x://", ":// and x://"),
            ("日本://u:p@h/", "日本://h/"),
        ] {
            assert_eq!(redacted(text), clear);
        }
    }

    #[test]
    fn requests_have_what_was_given() -> Result<()> {
        let given = "https://only.in.this.test/a.parquet?sig=first";
        let open = without_secrets(given)?;
        assert_eq!(open, "https://only.in.this.test/a.parquet");
        assert_eq!(with_secrets(&open), given);
        assert_eq!(without_secrets(&open)?, open);
        let other = without_secrets(&given.replace("first", "second"));
        let message = other.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("given twice") && !message.contains("second"), "{message}");
        Ok(())
    }

    #[test]
    fn paths_are_no_urls() {
        for path in ["/a/b.parquet", "a:b", "C:/x", "./s3:/b", "://x", "a b://c"] {
            assert!(!is_url(path), "{path}");
        }
        assert!(is_url("s3://b/k") && is_url("hf://datasets/o/n") && is_url("ftp://x"));
    }

    #[test]
    fn a_query_is_no_part_of_the_file_name() {
        assert_eq!(file_name("https://h/a/b.jsonl.gz?x=c/d.txt"), "b.jsonl.gz");
        assert_eq!(file_name("s3://b/a.parquet"), "a.parquet");
        assert_eq!(file_name("s3://b/x/q?a.parquet"), "q?a.parquet");
    }
}
