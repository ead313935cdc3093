//! Filter for documents by their URLs: hosts, registrable domains, prefixes of paths.

use std::borrow::Cow;
use std::path::Path;

use super::document::{Filter, FilteredDocument, Finding, Verdict, judge_by_language};
use super::strings::{LanguageStrings, ListFormat, ListedStrings};
use polysift_base::error::Result;
use polysift_base::progress::Stop;
use polysift_config::{ListMode, UrlsConfig};
use polysift_text::robots::{Suffixes, locate, registrable_domain};

const URL: &str = "url";

pub(super) const UNREADABLE_URL: &str = "unreadable-url";

/// Maximum bytes of a URL; every start of it is looked up.
const MOST_URL_BYTES: usize = 1 << 14;

/// Finds documents with URLs that the lists name, or that they do not name ([`url_key`]).
#[derive(Debug)]
pub(super) struct UrlFilter {
    lists: ListedStrings,
    mode: ListMode,
    suffixes: Suffixes,
}

impl UrlFilter {
    pub(super) fn open(config: &UrlsConfig) -> Result<Self> {
        let format = ListFormat { column: URL, blocked_if: None, key: url_key };
        let lists = ListedStrings::open(&config.lists, format)?;
        Ok(Self { lists, mode: config.mode, suffixes: config.suffixes })
    }

    /// Judges a document by its URL; an unreadable one, also a very long one, is in no list.
    fn judge_url(&self, document: &FilteredDocument<'_>, listed: &LanguageStrings) -> Verdict {
        let url = document.url.filter(|url| url.len() <= MOST_URL_BYTES);
        let Some(location) = url.and_then(|url| locate(url).ok()) else {
            // Whatever the URL is, no list names it.
            let is_found = self.mode == ListMode::Include;
            let finding = is_found.then(|| Finding::of(UNREADABLE_URL));
            return Verdict { finding, ..Verdict::noted(UNREADABLE_URL) };
        };
        let host = &*location.authority.host;
        let entry = || {
            if let Some(domain) = listed_domain(host, self.suffixes, listed) {
                return Some(domain.to_owned());
            }
            let url = format!("{host}{}", location.spelling());
            // Ends of segments, with and without the character that ends them.
            let ends = url.match_indices(['/', '?']).flat_map(|(at, _)| [at, at + 1]);
            let mut starts = ends.chain([url.len()]).map(|end| &url[..end]);
            starts
                .find(|start| start.len() > host.len() && listed.contains(start))
                .map(str::to_owned)
        };
        let (entry, host) = (entry(), Some(host.to_owned()));
        let finding = match self.mode {
            ListMode::Exclude => entry.map(|entry| (vec![entry], "listed")),
            ListMode::Include => entry.is_none().then(|| (Vec::new(), "not-listed")),
        };
        let found = |(details, reason)| Finding { details, host, ..Finding::of(reason) };
        Verdict::of(finding.map(found))
    }
}

impl Filter for UrlFilter {
    fn files(&self) -> Vec<&Path> {
        self.lists.files().collect()
    }

    fn judge(&self, documents: &[FilteredDocument<'_>], stop: &Stop) -> Result<Vec<Verdict>> {
        judge_by_language(documents, |language| {
            let listed = self.lists.for_language(language, stop)?;
            Ok(move |document: &FilteredDocument<'_>| self.judge_url(document, &listed))
        })
    }
}

/// Returns true if `host` is a public suffix, below which domains are registered.
fn is_suffix(host: &str) -> bool {
    let below = format!("a.{host}");
    registrable_domain(&below, Suffixes::Icann) == Some(&below)
}

/// Returns the first that is listed: the host, its registrable domain, a dotted domain around it.
pub(super) fn listed_domain<'a>(
    host: &'a str,
    suffixes: Suffixes,
    listed: &LanguageStrings,
) -> Option<&'a str> {
    if listed.contains(host) {
        return Some(host);
    }
    let dotted = format!(".{host}");
    let mut ends = dotted.match_indices('.').map(|(at, _)| at);
    let registrable = registrable_domain(host, suffixes).filter(|domain| listed.contains(domain));
    registrable.or_else(|| ends.find(|at| listed.contains(&dotted[*at..])).map(|at| &host[at..]))
}

/// Parses an entry: a host, or a registrable domain for all of its hosts; `*.example.com` or
/// `.example.com` for any domain with its hosts; a host with a path for everything below. Entries
/// that no URL can match are errors: several in a line, wildcards in a path, a public suffix.
pub(super) fn url_key(entry: &str) -> Result<Cow<'_, str>, String> {
    let wrong = || format!("`{entry}` is no host and no URL");
    let below = entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.'));
    let name = below.unwrap_or(entry);
    let rest = name.split_once("://").map_or(name, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The URL parser would accept these characters or drop them.
    if authority.is_empty()
        || authority.ends_with(':') && name.parse::<std::net::Ipv6Addr>().is_err()
        || authority.contains(|c: char| c.is_whitespace() || "\"'*,\\".contains(c))
    {
        return Err(wrong());
    }
    let path = &rest[authority.len()..];
    if path.ends_with('*') || path.split('/').any(|segment| segment == "*") {
        return Err(format!(
            "`{entry}` has a wildcard in its path; name the beginning of the path"
        ));
    }
    let url = match name.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("http://[{name}]"),
        Err(_) if name.contains("://") => name.to_owned(),
        Err(_) => format!("http://{name}"),
    };
    let location = locate(&url).map_err(|_| wrong())?;
    let host = &location.authority.host;
    match &*location.spelling() {
        "/" if is_suffix(host) => Err(format!("`{entry}` is a public suffix, not a domain")),
        // A host matches by itself alone, unless its key begins with a dot.
        "/" if below.is_some() => Ok(Cow::Owned(format!(".{host}"))),
        "/" => Ok(Cow::Owned(host.to_string())),
        _ if below.is_some() => {
            Err(format!("`{entry}` has a path, which belongs to one host; name each host with it"))
        }
        path => Ok(Cow::Owned(format!("{host}{path}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_no_url_matches_are_refused() {
        for (entry, key) in [
            ("www.Example.com", "www.example.com"),
            ("*.example.com", ".example.com"),
            ("*.github.io", ".github.io"),
            ("e.com/ads/", "e.com/ads/"),
            ("e.com/%7euser/%c3%BC", "e.com/~user/%C3%BC"),
            ("*.blog.example.com", ".blog.example.com"),
            ("intranet", "intranet"),
            ("1.2.3.4", "1.2.3.4"),
        ] {
            assert_eq!(url_key(entry).as_deref(), Ok(key), "{entry}");
        }
        for (entry, reason) in [
            ("co.uk", "is a public suffix"),
            ("com", "is a public suffix"),
            ("e.com/*", "a wildcard in its path"),
            ("e.com/blog/*/x", "a wildcard in its path"),
            ("*.e.com/blog", "has a path"),
            ("https:/e.com", "is no host and no URL"),
            ("http:\\\\e.com", "is no host and no URL"),
            ("e.com,adult", "is no host and no URL"),
            ("/ads/", "is no host and no URL"),
            ("*example.com", "is no host and no URL"),
        ] {
            assert!(url_key(entry).is_err_and(|told| told.contains(reason)), "{entry}");
        }
    }
}
