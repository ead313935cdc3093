//! URLs of objects in stores, and what is secret in them: passwords, and the queries by which a
//! request is signed.
//!
//! A secret stays in the memory of the process that was given it, for its requests. Plans, settings, logs
//! and errors have what is left of the URL.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::impostor::impostor;
use crate::error::{Error, Result};
use crate::panics::lock;

/// Parameters of a query that identify a content and open nothing; all others may.
const OPEN_PARAMETERS: [&str; 8] =
    ["download", "generation", "raw", "ref", "revision", "snapshot", "version", "versionId"];

/// Environment variable: URLs with their secrets, for commands that have them from a plan.
const SIGNED_URLS: &str = "POLYSIFT_SIGNED_URLS";

/// In place of a host that may be half a password.
const UNREADABLE: &str = "://(unreadable)";

/// What ends a URL in a text.
const ENDS: [char; 8] = ['"', '\'', '`', '<', '>', ',', ')', '\\'];

/// URLs as they were given, by what is left of them without their secrets.
static WHOLE: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Whether `text` names something in a store, rather than a file.
pub fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
}

/// Whether `url` is that of a web server: only there does a `?` begin a query.
pub fn is_web(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// `url` without its secrets. Those of a web server are kept for the requests of this process.
///
/// # Errors
/// [`Error::Config`] where it was given before with other secrets, since the two may be different
/// files; for a password that cannot be separated from the rest; for one in the URL of a bucket.
pub fn without_secrets(url: &str) -> Result<String> {
    let open = open_part(url);
    if open == url {
        return Ok(open);
    }
    let refused = |reason: &str| Err(Error::config(&open, reason));
    if open.ends_with(UNREADABLE) {
        return refused("no number is behind the `:` of the host; a password has its `/` as %2F");
    }
    if !is_web(url) {
        return refused("credentials are not taken from such a URL; give them in the environment");
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

/// The URL that was given for `open`, with its secrets: to this process, or in `SIGNED_URLS`.
pub fn with_secrets(open: &str) -> String {
    let whole = lock(&WHOLE);
    if let Some(secret) = whole.get(open) {
        return secret.clone();
    }
    let all = std::env::var(SIGNED_URLS).unwrap_or_default();
    let signed = all.split_whitespace().find(|url| open_part(url) == open);
    signed.unwrap_or(open).to_owned()
}

impl Error {
    /// The error with its causes, in one line, and without the secrets of URLs.
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

/// `text` with the secrets taken out of all URLs in it.
pub fn redacted(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let before = rest[..at].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '+');
        let url = &rest[before.len()..];
        let end = url.find(|c: char| c.is_whitespace() || ENDS.contains(&c)).unwrap_or(url.len());
        let end = url[..end].trim_end_matches([':', ';', '.']).len(); // of the sentence
        redacted.push_str(before);
        // A text between two words that holds `://` ends behind it at least.
        let end = end.max(at - before.len() + 3);
        redacted.push_str(&open_part(&url[..end]));
        rest = &url[end..];
    }
    redacted + rest
}

/// The last component of a URL; of a web server's, without the query.
pub fn file_name(url: &str) -> &str {
    without_query(url).rsplit('/').next().unwrap_or_default()
}

/// A URL without its query; only those of web servers have one.
pub fn without_query(url: &str) -> &str {
    let query = url.find('?').filter(|_| is_web(url));
    query.map_or(url, |at| &url[..at])
}

fn open_part(url: &str) -> String {
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
            assert_eq!(open_part(url), open);
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
